"""The command line of every command: its help, its slips, and its name when installed."""

import configparser
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SLIPS = {
  'python -m draw_jax.sample --output=x --num=many': '--num=many',
  'python -m draw_jax.figures --output=x --wrkdir=y': 'Did you mean: workdir',
  'python -m draw_jax.evaluate runs/mnist': "unknown argument 'runs/mnist'",
  'python -m draw_jax.compress --model=mnist x': 'give INPUT and OUTPUT: see --help',
  'python -m draw_jax.decompress x y z': "unknown argument 'z'",
  'python -m draw_jax.prepare': '--dataset must be given',
  'python -m draw_jax.train': '--config and --workdir must be given',
  'draw-train --workdir=x': '--config must be given',
  'draw-sample': '--output must be given',
  f'draw-train --config={ROOT}/experiments/quickstart.py:small --workdir=runs': 'has no variants',
  'draw-train --config=svnh --workdir=runs': 'no experiment svnh: did you mean svhn?',
  'draw-train --config=quickstart:small --workdir=runs': 'has no variants',
  'draw-sweep --config=svnh --workdir=runs': 'no experiment svnh: did you mean svhn?',
  'draw-train --config=svhn --workdir=runs --config.train.epoch=3': 'mean config.train.epochs?',
}
# Imports what all commands need once, and runs each command in a copy of itself, with the
# module started as by `python -m` or by the console script that an installer writes.
PROGRAM = """
import importlib, json, os, runpy, sys, traceback
from draw_jax.cli import config_errors
from draw_jax.evaluation import report
from draw_jax.training import loop
from draw_jax.figures import gallery

scripts, commands = json.loads(sys.argv[1])

def run(command):
  sys.argv = command.split()
  if sys.argv[0] == 'python':
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)
  else:
    module, function = scripts[sys.argv[0]].split(':')
    sys.exit(getattr(importlib.import_module(module), function)())

for number, command in enumerate(commands):
  if os.fork() == 0:
    for descriptor, suffix in ((1, 'out'), (2, 'err')):
      os.dup2(os.open(f'{number}.{suffix}', os.O_CREAT | os.O_WRONLY), descriptor)
    code = 0
    try:
      run(command)
    except SystemExit as error:
      code = error.code or 0
    except BaseException:
      traceback.print_exc()
      code = 1
    sys.stdout.flush()
    os._exit(code)  # at once: to take so many modules down takes a second
  print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def console_scripts() -> dict[str, str]:
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg')
  lines = config['options.entry_points']['console_scripts'].strip().splitlines()
  return dict(line.split(' = ') for line in lines)


SCRIPTS = console_scripts()
MODULES = {name: f'python -m {name.replace("draw-", "draw_jax.")}' for name in SCRIPTS}


@pytest.fixture(scope='module')
def results(tmp_path_factory) -> dict[str, tuple[int, str, str]]:
  """By command line: exit code, standard output and standard error."""
  folder = tmp_path_factory.mktemp('commands')
  commands = [*SLIPS, *(f'{name} --help' for name in (*SCRIPTS, *MODULES.values()))]
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, json.dumps([SCRIPTS, commands])],
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    cwd=folder,
    capture_output=True,
    text=True,
    check=True,
  )
  codes = [int(line) for line in done.stdout.splitlines()]
  names = {f'{number}.{suffix}' for number in range(len(commands)) for suffix in ('out', 'err')}
  assert {path.name for path in folder.iterdir()} == names  # and nothing that they left
  return {
    command: (code, *((folder / f'{number}.{suffix}').read_text() for suffix in ('out', 'err')))
    for number, (command, code) in enumerate(zip(commands, codes, strict=True))
  }


@pytest.mark.parametrize('command', SLIPS)
def test_a_slip_ends_with_one_line(results, command):
  code, out, err = results[command]
  assert code == 2
  assert out == ''
  assert SLIPS[command] in err
  assert err.startswith('error: ')
  assert err.count('\n') == 1


@pytest.mark.parametrize('name', SCRIPTS)
def test_help_has_examples_and_own_flags_first(results, name):
  code, out, err = results[f'{name} --help']
  assert (code, err) == (0, '')
  others = {'draw-sample': 'output', 'draw-export': 'output', 'draw-decompress': 'checkpoint'}
  own = others.get(name, 'data_dir')
  order = [f'{MODULES[name]} --', f'\n  --{own} ', '\n  --compilation_cache ']
  places = [out.find(text) for text in order]
  assert -1 not in places
  assert places == sorted(places)
  assert ('--coordinator_address' in out) == (name in ('draw-train', 'draw-evaluate'))
  assert '--verbosity' not in out
  assert out.count('\n') < 60
  assert results[f'{MODULES[name]} --help'] == (code, out, err)


def test_the_console_scripts():
  names = ('train', 'evaluate', 'sample', 'figures', 'prepare', 'sweep', 'export')
  names += ('page', 'compress', 'decompress')
  assert set(SCRIPTS) == {f'draw-{name}' for name in names}
