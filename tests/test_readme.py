"""The README's commands as a user types them, made small, its Python, and what it names."""

import configparser
import json
import os
import pathlib
import re
import runpy
import shlex
import subprocess
import sys

import numpy as np
import pytest
import training_support as support
from launch_support import LAUNCH, write_stub
from PIL import Image
from test_launch import Slurm
from test_launch_kubernetes import FOLDER as MANIFESTS
from test_launch_tpu import Tpu

from draw_jax import completion
from draw_jax import config as config_lib
from draw_jax.data import registry
from draw_jax.data.builders import binarized_mnist, preparation, svhn

ROOT = support.ROOT
README = (ROOT / 'README.md').read_text()

# Each pattern is that of one test below, and every command fits one of them.
PROGRAMS = 'train|evaluate|sample|figures|export|sweep|page|compress|decompress'
TRAINED = rf'python (-m draw_jax\.({PROGRAMS})|launch/local_processes\.py) .+'
PREPARED = r'python -m draw_jax\.prepare .+'
SCRIPT = r'bash launch/(quickstart|test)\.sh'
SLURM = r'sbatch .+'
TPU = r'bash launch/tpu_vm\.sh \w+'
KUBERNETES = r'kubectl apply .+'
PATTERNS = (TRAINED, PREPARED, SCRIPT, SLURM, TPU, KUBERNETES)

CACHE = f' --compilation_cache={support.CACHE}'
STEPS = 2
TINY = CACHE + ''.join(
  f' --config.{field}={value}'
  for field, value in {
    'model.glimpses': 2, 'model.hidden': 4, 'model.latent': 2, 'train.num_steps': STEPS,
    'train.batch_size': 4, 'eval.batch_size': 100, 'eval.images': 1,
  }.items()
)  # fmt: skip
# What is put behind the commands of each program.
SMALL = {
  'evaluate': CACHE,
  'export': CACHE,
  'page': CACHE,
  'compress': CACHE,
  'decompress': CACHE,
  'sample': f'{CACHE} --num=4',
  'figures': f'{CACHE} --num=1',
}

# Everything but installing and testing is done.
PYTHON = f"""#!/bin/sh
case "$*" in
  '-m pip install '* | '-m pytest '*) echo "python $*" >>called ;;
  *) exec {shlex.quote(sys.executable)} "$@" ;;
esac
"""
RUFF = """#!/bin/sh
echo "ruff $*" >>called
"""
# Takes what is in DIR for the published files.
REGISTER = """
import dataclasses, hashlib, pathlib, runpy
from draw_jax.data.builders.binarized_mnist import DrawBinarizedMnist

def found(file):
  content = pathlib.Path('DIR', file.name).read_bytes()
  return dataclasses.replace(file, size=len(content), sha256=hashlib.sha256(content).hexdigest())

DrawBinarizedMnist.files = tuple(map(found, DrawBinarizedMnist.files))
runpy.run_module('draw_jax.prepare', run_name='__main__', alter_sys=True)
"""
# What the example in Python leaves.
SHOW = """
import json
shapes = {'images': images.shape, 'write': trace.write.stride.shape}
print(json.dumps({'bound': float(bound), **shapes}))
"""


def blocks(kind: str) -> list[str]:
  return re.findall(rf'^```{kind}\n(.*?)^```$', README, re.M | re.S)


def commands(pattern: str = '.+') -> list[str]:
  """Those of all blocks for a shell that have a form, in order, without their comments."""
  text = re.sub(r'\\\n\s*', ' ', ''.join(blocks('sh')))
  lines = [re.sub(r'(^|\s)#.*', '', line).strip() for line in text.splitlines()]
  return [line for line in lines if line and re.fullmatch(pattern, line)]


def flag(command: str, name: str) -> str | None:
  found = re.search(rf' --{name}=(\S+)', command)
  return found and found[1]


def by_workdir() -> dict[str, list[str]]:
  """Commands that go on from each other; those without a workdir by their model."""
  groups = {}
  for command in commands(TRAINED):
    name = flag(command, 'workdir') or flag(command, 'model')
    groups.setdefault(name, []).append(command)
  return groups


def small(command: str) -> str:
  """What can be done in seconds; a command that only prints others is left as it is."""
  if '--print' in command.split():
    return command
  program = re.search(r'draw_jax\.(\w+)', command)[1]
  return command + SMALL.get(program, TINY)


def test_every_command_is_run():
  assert set(re.findall(r'^```(\w+)$', README, re.M)) == {'sh', 'python'}
  for command in commands():
    fitting = [pattern for pattern in PATTERNS if re.fullmatch(pattern, command)]
    assert len(fitting) == 1, (
      f'No test runs this command of README.md: {command!r}. Give '
      'tests/test_readme.py a pattern for it, and a test of all that fit the pattern.'
    )
  unused = [pattern for pattern in PATTERNS if not commands(pattern)]
  assert not unused, f'No command of README.md fits these any more: {unused}.'


@pytest.fixture
def checkout(tmp_path):
  """A folder in which the README's commands can be run, with the images that they name."""
  for name in ('experiments', 'launch', 'setup.cfg'):
    (tmp_path / name).symlink_to(ROOT / name)
  for name, stub in (('python', PYTHON), ('ruff', RUFF)):
    write_stub(tmp_path / 'environment' / 'bin' / name, stub)
  rng = np.random.default_rng(0)
  for name in ('FOLDER', 'DIR'):
    (tmp_path / name).mkdir()
  for i in range(20):
    pixels = rng.integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / 'FOLDER' / f'{i}.png')
  for split in ('train', 'valid', 'test'):
    lines = [' '.join(map(str, bits)) + '\n' for bits in rng.integers(0, 2, (20, 784))]
    (tmp_path / 'DIR' / f'binarized_mnist_{split}.amat').write_text(''.join(lines))
  return tmp_path


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  """Prepared datasets of a few images of noise, for what is published elsewhere."""
  folder = tmp_path_factory.mktemp('data')
  rng = np.random.default_rng(1)

  def examples(builder, count: int):
    for i in range(count):
      yield i, {'image': rng.choice([0, 255], builder.image_shape).astype(np.uint8)}

  def splits(builder, _):
    return {split: examples(builder, n) for split, n in (('train', 50), ('valid', 4), ('test', 4))}

  with pytest.MonkeyPatch.context() as patch:
    for builder in (binarized_mnist.DrawBinarizedMnist, svhn.DrawSvhn):
      patch.setattr(builder, '_split_generators', splits)
      preparation.prepare(builder, str(folder))
  return folder


def shell(command: str, folder: pathlib.Path, data_dir: pathlib.Path) -> str:
  """Runs a command in a folder as a user would, in an active environment; what it printed."""
  environment = support.environment()
  path = [str(folder / 'environment' / 'bin'), environment['PATH']]
  variables = {
    'PATH': os.pathsep.join(path),
    'VIRTUAL_ENV': str(folder / 'environment'),
    'TFDS_DATA_DIR': str(data_dir),
    'XLA_FLAGS': f'{environment["XLA_FLAGS"]} --xla_cpu_use_fusion_emitters=false',
  }
  done = subprocess.run(
    ['bash', '-c', command],
    cwd=folder,
    env={**environment, **variables},
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  assert done.returncode == 0, f'{command}\n{done.stdout}\n{done.stderr}'
  return done.stdout


def is_there(path: pathlib.Path) -> bool:
  """Whether something was written: a file, or a folder with one."""
  return any(file.stat().st_size for file in (path, *path.rglob('*')) if file.is_file())


@pytest.mark.parametrize('workdir', by_workdir())
def test_training_and_what_follows(workdir, checkout, data_dir):
  for command in by_workdir()[workdir]:
    printed = shell(small(command), checkout, data_dir)
    if 'draw_jax.train' in command:
      assert json.loads((checkout / workdir / 'result.json').read_text())['step'] == STEPS
    if output := flag(command, 'output'):
      assert is_there(checkout / output)
    if 'compress' in command:
      assert is_there(checkout / command.split()[-1])
    for samples in re.findall('--importance_samples=(.+)', command):
      assert f'importance-weighted, K {samples} ' in printed
    for glimpses in re.findall('--glimpses=(.+)', command):
      assert re.findall(r'^T (\d+) ', printed, re.M) == glimpses.split(',')
    if '--print' in command.split():
      lines = (checkout / command.rpartition('> ')[2]).read_text().splitlines()
      assert all(line.startswith('python -m draw_jax.train --config=') for line in lines)
      assert len(lines) == num_runs(command)
    elif 'draw_jax.sweep' in command:
      runs = json.loads((checkout / workdir / 'sweep.json').read_text())
      assert [run['state'] for run in runs] == ['finished'] * num_runs(command)
      assert all(is_there(checkout / workdir / f'sweep.{end}') for end in ('csv', 'png'))


def num_runs(command: str) -> int:
  return len(runpy.run_path(config_lib.find_experiment(flag(command, 'config')))['get_sweep']())


def test_preparing(checkout, tmp_path):
  """From files first: with what that leaves, the others have nothing to download."""
  (checkout / 'register.py').write_text(REGISTER)
  for command in sorted(commands(PREPARED), key=lambda command: '--manual_dir=' not in command):
    if flag(command, 'manual_dir'):
      command = command.replace('-m draw_jax.prepare', 'register.py')
    printed = shell(command, checkout, tmp_path / 'data')
    assert f'{flag(command, "dataset")} ' in printed
    if preview := flag(command, 'preview'):
      with Image.open(checkout / preview) as image:
        assert min(image.size) > 4 * 28
  assert is_there(tmp_path / 'data')


@pytest.mark.parametrize('command', commands(SCRIPT))
def test_scripts(command, checkout, tmp_path):
  """With stand-ins for pip, ruff and pytest, which runs this."""
  further = TINY if 'quickstart' in command else ''
  shell(command + further, checkout, tmp_path / 'data')
  install, *others = (checkout / 'called').read_text().splitlines()
  constraints, extras = re.search(r' --constraint (\S+) --editable \.\[(\S+)\]$', install).groups()
  assert (ROOT / constraints).exists() and are_extras(extras)
  if 'quickstart' in command:
    run = checkout / 'runs' / 'quickstart'
    assert json.loads((run / 'result.json').read_text())['step'] == STEPS
    assert is_there(run / 'bounds.json') and is_there(run / 'pictures') and not others
    assert is_there(run / 'draw.html')
    assert extras == 'digits'  # no tools of the tests in the user's environment
  else:
    assert others == ['ruff check .', 'ruff format --check .', 'python -m pytest --numprocesses=2']


@pytest.mark.parametrize('command', commands(SLURM))
def test_slurm(command, tmp_path):
  """The script with stand-ins, as in test_launch.py; of training, how it takes its flags."""
  words = shlex.split(command)[1:]
  start = next(i for i, word in enumerate(words) if not word.startswith('--'))
  options = dict(word.split('=') for word in words[:start])
  script, *rest = words[start:]
  assert (ROOT / script).samefile(LAUNCH / 'slurm.sbatch')
  assert all(f'{option}=' in (ROOT / script).read_text() for option in options)
  slurm = Slurm(tmp_path)
  if '--array' not in options:
    done = slurm.submit(*rest, '--only_check_args')
    assert (done.returncode, done.stderr) == (0, '')
    return
  # A line each of the file that the sweep above it wrote.
  (sweep,) = [c for c in commands(TRAINED) if c.endswith(f' --print > {rest[0]}')]
  assert options['--array'] == f'1-{num_runs(sweep)}' and len(rest) == 1
  (tmp_path / rest[0]).write_text(''.join(f'echo {i + 1}\n' for i in range(num_runs(sweep))))
  gpus = {'tasks': int(options['--ntasks-per-node']), 'gpus': int(options['--gpus-per-node'])}
  last = slurm.submit(tmp_path / rest[0], SLURM_ARRAY_TASK_ID=num_runs(sweep), **gpus)
  assert (last.stdout, last.stderr) == (f'{num_runs(sweep)}\n', '')


@pytest.mark.parametrize('command', commands(TPU))
def test_tpu(command, tmp_path):
  """The script shows what it would do; test_launch_tpu.py has stand-ins do it."""
  _, script, verb = command.split()
  assert (ROOT / script).samefile(LAUNCH / 'tpu_vm.sh')
  tpu = Tpu(tmp_path)
  done = tpu('--dry_run', verb)
  assert (done.returncode, done.stderr) == (0, '')
  # Those in the comment are all that there are.
  then = re.search(rf'^{re.escape(command)} +# then (.+)$', README, re.M)[1]
  accepted = tpu('nothing').stderr.partition(' is not ')[2]
  assert [verb, *re.findall(r'\b[a-z]+', then)] == re.findall(r'(?!or\b)\b[a-z]+', accepted)


@pytest.mark.parametrize('command', commands(KUBERNETES))
def test_kubernetes(command):
  """The files are those that test_launch_kubernetes.py validates, all of them."""
  words = command.split()[2:]
  assert set(words[::2]) == {'-f'}
  assert sorted(ROOT / path for path in words[1::2]) == sorted(MANIFESTS.glob('*.yaml'))


def test_python(checkout):
  (block,) = [block for block in blocks('python') if 'optax' in block]
  (checkout / 'example.py').write_text(block + SHOW)
  shown = json.loads(shell('python example.py', checkout, checkout))
  assert np.isfinite(shown['bound'])
  assert shown['images'] == [20, 28, 28, 1]
  assert shown['write'] == [8, 20]


def test_methods_of_a_trained_model(monkeypatch):
  """Those shown, in as few particles as there can be."""
  (block,) = [block for block in blocks('python') if 'draw_jax.load' in block]
  monkeypatch.setattr(completion, '_POOL', 64)
  *lines, last = block.strip().splitlines()
  names = {}
  exec('\n'.join(lines), names)
  assert names['m'].name == 'mnist' and set(np.unique(names['x'])) == {0, 1}
  assert eval(last.partition('#')[0], names).stride.shape == (64, 4)


def setup_cfg() -> configparser.ConfigParser:
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg')
  return config


def are_extras(names: str) -> bool:
  return set(names.split(',')) <= set(setup_cfg()['options.extras_require'])


def test_installing_by_hand():
  (extras,) = re.findall(r"-e '\.\[(\S+)\]'", README)
  assert are_extras(extras)
  scripts = setup_cfg()['options.entry_points']['console_scripts']
  programs = set(re.findall(r'-m draw_jax\.(\w+)', ' '.join(commands())))
  assert len(programs) >= 6
  for program in programs:
    assert f'draw-{program} = draw_jax.{program}' in scripts


def test_datasets():
  """The table has all of them, and their binarizations."""
  rows = re.findall(r'^\| `(\w+)` \| .* \| .* \| ([\w, ]+) \|$', README, re.M)
  specs = map(registry.find, registry.NAMES)
  assert rows == [(spec.name, ', '.join(spec.binarizations)) for spec in specs]


def test_experiments():
  files = [
    path for path in (ROOT / 'experiments').glob('*.py') if '\ndef get_config(' in path.read_text()
  ]
  section = README.split('\n## Train\n')[1].split('\n## ')[0]
  named = re.findall(r'`(\w+)`|--config=(\w+)', section)
  named = {name for names in named for name in names} | {'quickstart'}
  assert [path.stem for path in files if path.stem not in named] == []


def test_paths():
  """Those named anywhere, in the block of the layout with what follows a comma."""
  named = set(re.findall(r'\b(?:draw_jax|experiments|launch|tests)/[\w./-]*', README))
  layout = re.search(r'^## Layout\n\n((?:    .+\n)+)', README, re.M)[1]
  for line in layout.splitlines():
    first, *others = re.split(', ', re.split(r' {2,}', line.strip())[0])
    named |= {first, *(f'{first.partition("/")[0]}/{name}' for name in others if name != '...')}
  assert 'draw_jax/models/' in named and 'experiments/notebooks/' in named
  assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize(
  'name',
  ['README.md', 'CONTRIBUTING.md', 'experiments/README.md', 'docs/accelerators.md', 'SECURITY.md'],
)
def test_links(name):
  links = re.findall(r'\]\(([^)\s]+)', (ROOT / name).read_text())
  inside = [link.partition('#')[0] for link in links if not re.match(r'https?://|#', link)]
  assert inside or name != 'README.md'
  folder = (ROOT / name).parent
  assert [link for link in inside if not (folder / link).exists()] == []
