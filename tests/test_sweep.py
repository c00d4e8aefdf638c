"""Sweeps: their runs and names, and how they are run, with a stand-in for training."""

import csv
import fcntl
import io
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
import rich.console
import training_support as support

from draw_jax import config as config_lib
from draw_jax import sweeps
from draw_jax.errors import UserError
from draw_jax.sweeps import local, report
from draw_jax.tasks import registry as models

RATE, SIZE = 'optimizer.learning_rate', 'train.batch_size'
EXPERIMENT = """
from draw_jax import config, sweeps

def get_config(variant=''):
  made = config.default()
  made.model.attention = variant != 'plain'
  return made

def get_sweep():
  return {sweep}
"""
# Leaves what training leaves, in no time: learning rate 1 fails, 2 has to be stopped.
TRAIN = """
import json, os, pathlib, shutil, signal, sys, time

(workdir,) = [pathlib.Path(word[10:]) for word in sys.argv if word.startswith('--workdir=')]
(rate,) = [float(word.split('=')[1]) for word in sys.argv if '.learning_rate=' in word]
(workdir / 'result.json').unlink(missing_ok=True)
shutil.copy(f'{workdir}.config', workdir / 'config.json')
with (workdir / 'starts').open('a') as file:
  file.write(f'{len(os.sched_getaffinity(0))}\\n')
if rate == 1:
  sys.exit('error: no good')

def end(number=None, frame=None):
  step = 3 if number else 9
  best = {'step': step, 'value': 10 * rate}
  with (workdir / 'metrics.jsonl').open('a') as file:
    file.write(json.dumps({'split': 'valid', 'step': step, 'bound': 10 * rate}) + '\\n')
  result = {'step': step, 'num_steps': 9, 'best': best, 'metric': 'bound', 'split': 'valid'}
  (workdir / 'result.json').write_text(json.dumps(result))
  sys.exit(128 + number if number else 0)

signal.signal(signal.SIGTERM, end)
print('step 1/9  bound 5.00  0:00:08 left', flush=True)
if rate == 2 and not (workdir / 'metrics.jsonl').exists():
  time.sleep(60)
end()
"""


def write_experiment(folder, sweep: str) -> str:
  path = folder / 'experiment.py'
  path.write_text(EXPERIMENT.format(sweep=sweep))
  return str(path)


def rates(*values: float) -> str:
  return f'sweeps.values({RATE!r}, *{values})'


@pytest.fixture
def program(tmp_path) -> list[str]:
  (tmp_path / 'stand_in.py').write_text(TRAIN)
  return [sys.executable, str(tmp_path / 'stand_in.py')]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
  for name, value in support.environment().items():
    monkeypatch.setenv(name, value)


def run_all(runs, program, num_local=1, show=lambda runs: None):
  for run in runs:
    run.workdir.parent.mkdir(exist_ok=True)
    pathlib.Path(f'{run.workdir}.config').write_text(config_lib.to_json(run.config))
  stopped = local.run_all(runs, num_local, program, show)
  return stopped, {run.name.partition('=')[2]: run.state for run in runs}


def test_sweeps_from_a_command_line():
  words = ['optimizer.learning_rate=1e-3,2e-3', 'optimizer.name=adam,lion']
  assert sweeps.from_words(words) == sweeps.product(
    sweeps.values(RATE, 0.001, 0.002), sweeps.values('optimizer.name', 'adam', 'lion')
  )


@pytest.mark.parametrize('word', ['a.b', 'a.b=', 'a.b=1,,2', '=1', 'train.curriculum=((1,2),)'])
def test_values_of_a_sweep_that_are_none(word):
  with pytest.raises(UserError, match=f'--sweep.{re.escape(word)} is not a field and its values'):
    sweeps.from_words([word])


def test_the_command_takes_its_runs_from_flags(tmp_path):
  """In place of those that the experiment lists; other flags are left alone."""
  command = [
    *(sys.executable, '-m', 'draw_jax.sweep', '--config=quickstart', f'--workdir={tmp_path}'),
    *('--sweep.train.batch_size=20,40', '--print', '--sweep.model.hidden=64,32'),
    '--config.train.epochs=1.5',
  ]
  done = subprocess.run(command, capture_output=True, text=True, check=True)
  assert [line.split()[4:] for line in done.stdout.splitlines()] == [
    [
      f'--workdir={tmp_path}/batch_size={size},hidden={hidden}',
      '--config.train.epochs=1.5',
      f'--config.train.batch_size={size}',
      f'--config.model.hidden={hidden}',
    ]
    for size in (20, 40)
    for hidden in (64, 32)
  ]


def test_products_zips_and_lists():
  rates, sizes = sweeps.values(RATE, 0.1, 0.2), sweeps.values(SIZE, 50, 100)
  assert sweeps.product(rates, sizes) == [
    {RATE: 0.1, SIZE: 50}, {RATE: 0.1, SIZE: 100}, {RATE: 0.2, SIZE: 50}, {RATE: 0.2, SIZE: 100},
  ]  # fmt: skip
  assert sweeps.zipped(rates, sizes) == [{RATE: 0.1, SIZE: 50}, {RATE: 0.2, SIZE: 100}]
  assert sweeps.product(sweeps.zipped(rates, sizes), [{'on_nan': 'stop'}])[1] == {
    RATE: 0.2, SIZE: 100, 'on_nan': 'stop',
  }  # fmt: skip
  assert sweeps.product(rates) == rates and sweeps.product() == [{}]
  with pytest.raises(UserError, match='2, 1 runs cannot be zipped'):
    sweeps.zipped(rates, sizes[:1])
  with pytest.raises(UserError, match='learning_rate is set twice'):
    sweeps.product(rates, rates)


def test_names():
  both = sweeps.product(sweeps.values(RATE, 2e-3, 1e-5), sweeps.values(SIZE, 50))
  assert sweeps.names(both) == ['learning_rate=0.002,batch_size=50',
                                'learning_rate=1e-05,batch_size=50']  # fmt: skip
  same_end = [{}, {SIZE: 5, 'eval.batch_size': 6}, {'model.attention': False}]
  assert sweeps.names(same_end) == [
    'unchanged', 'train.batch_size=5,eval.batch_size=6', 'attention=False',
  ]  # fmt: skip
  paths = sweeps.values('data.path', '/a b/$(c)', '/a/b/c', 'x' * 300, 'x' * 301)
  paths += sweeps.values('train.curriculum', ((16, 2), (32, 1)))
  names = sweeps.names(paths)
  assert len(set(names)) == 5 and names[-1] == 'curriculum=16_2_32_1'
  assert all(len(name) < 150 and not set(name) & set('/ $()') for name in names)
  assert sweeps.names(paths) == names  # the same each time, or nothing would be gone on with
  with pytest.raises(UserError, match=r'learning_rate=0\.1.* twice'):
    sweeps.names(sweeps.values(RATE, 0.1, 0.1))


def test_the_arguments_of_a_run_say_what_was_meant(tmp_path):
  sweep = "[{'train.curriculum': ((16, 2), (32, 1.5)), 'on_nan': 'rollback'}, {'train.epochs': 9}]"
  experiment = write_experiment(tmp_path, sweep) + ':plain'
  runs = local.make(experiment, {'train.seed': 3}, str(tmp_path), ['--data_dir=a b'])
  assert runs[1].arguments == [
    f'--config={experiment}', f'--workdir={tmp_path}/epochs=9', '--data_dir=a b',
    '--config.train.seed=3', '--config.train.epochs=9',
  ]  # fmt: skip
  config = runs[0].config
  assert config.train.curriculum == ((16, 2), (32, 1.5))
  assert (config.on_nan, config.train.seed, config.model.attention) == ('rollback', 3, False)
  assert (runs[1].config.train.epochs, runs[1].config.on_nan) == (9.0, 'stop')


@pytest.mark.parametrize(
  'sweep, message',
  [
    ("[{}, {'optimizer.lr': 1}]", r'run lr=1: no field config.optimizer.lr: did you mean'),
    ("[{}, {'train.batch_size': 1.5}]", r'run batch_size=1.5: .*1.5'),
    (
      "[{}, {'train.batch_size': 0}]",
      r'run batch_size=0: train.batch_size=0 must be a number at least 1.',
    ),
    ("[{}, {'data.path': None}]", r'data.path cannot be set to None'),
    ("[{}, {'train.seed': 2}]", r'the sweep sets train.seed: it cannot be set for all'),
    ("{'train.seed': 2}", r'must return a list of dicts, not'),
    ('[]', r'must return a list of dicts, not \[\]'),
    ('nonsense', r'get_sweep\(\) of .* fails: NameError'),
  ],
)
def test_slips_are_found_before_anything_runs(tmp_path, sweep, message):
  experiment = write_experiment(tmp_path, sweep)
  with pytest.raises(UserError, match=message) as caught:
    local.make(experiment, {'train.seed': 3}, str(tmp_path / 'runs'))
  assert '\n' not in str(caught.value)
  assert not (tmp_path / 'runs').exists()


def test_without_a_sweep(tmp_path):
  path = tmp_path / 'experiment.py'
  path.write_text(EXPERIMENT.partition('def get_sweep')[0])
  with pytest.raises(UserError, match=r'has no get_sweep\(\)'):
    local.make(str(path), {}, str(tmp_path))


def test_a_failure_is_told_and_the_rest_is_run(tmp_path, program):
  experiment = write_experiment(tmp_path, rates(1, 0.5, 0.25))
  runs = local.make(experiment, {}, str(tmp_path / 'runs'))
  text = io.StringIO()
  with report.Display(rich.console.Console(file=text)) as display:
    stopped, states = run_all(runs, program, num_local=2, show=display.show)
  assert stopped is None
  assert states == {'1': 'failed', '0.5': 'finished', '0.25': 'finished'}
  assert '  error: no good\n  exit code 1; all it printed is in ' in text.getvalue()
  cores = len(os.sched_getaffinity(0))
  share = {int((run.workdir / 'starts').read_text()) for run in runs}
  assert max(share) <= -(-cores // 2)

  rows = report.rows(runs)
  assert [(row['run'], row['best']) for row in rows] == [
    ('learning_rate=0.25', 2.5), ('learning_rate=0.5', 5.0), ('learning_rate=1', None),
  ]  # fmt: skip
  words = report.conclude(tmp_path / 'runs', runs, None)
  assert f'python -m draw_jax.evaluate --workdir={tmp_path}/runs/learning_rate=0.25\n' in words
  assert f'failed    learning_rate=1: exit code 1; all it printed is in {runs[0].log}' in words
  written = report.save(tmp_path / 'runs', runs, rows)
  assert [path.suffix for path in written] == ['.json', '.csv', '.png', '.pdf']
  assert json.loads(written[0].read_text()) == rows
  best = next(csv.DictReader(written[1].open()))
  assert (best[RATE], best['best'], best['state']) == ('0.25', '2.5', 'finished')
  table = report.table(rows).splitlines()
  assert table[1].split() == ['2.500', '9', 'learning_rate=0.25', 'finished']
  assert table[-1] == 'best is the lowest bound on valid'

  # Again: only what failed is tried again.
  run_all(local.make(experiment, {}, str(tmp_path / 'runs')), program)
  assert [len((run.workdir / 'starts').read_text().split()) for run in runs] == [2, 1, 1]
  # With another config a finished run is no longer finished.
  run_all(local.make(experiment, {'train.epochs': 50.0}, str(tmp_path / 'runs')), program)
  assert [len((run.workdir / 'starts').read_text().split()) for run in runs] == [3, 2, 2]


@pytest.mark.parametrize(
  'data, words',
  [('mnist', 'bound (nats)'), ('cifar10', 'cross-entropy + KL (nats)')],
)
def test_the_plot_calls_the_metric_by_its_name(tmp_path, program, monkeypatch, data, words):
  """As the data make it, whatever `result.json` says, which is read once."""
  experiment = write_experiment(tmp_path, rates(0.5, 0.25))
  runs = local.make(experiment, {'data.name': data}, str(tmp_path / 'runs'))
  run_all(runs, program)
  read, drawn, read_end, draw = [], [], local.workdir_lib.read_end, report.curves.curves
  monkeypatch.setattr(
    local.workdir_lib, 'read_end', lambda *args: read.append(args) or read_end(*args)
  )
  monkeypatch.setattr(report.curves, 'curves', lambda *args: drawn.append(args[2]) or draw(*args))
  report.conclude(tmp_path / 'runs', runs, None)
  assert drawn == [words]
  assert len(read) == 2


@pytest.mark.parametrize('name', models.MODELS)
def test_every_model_has_a_name_for_its_metric(name):
  config = config_lib.default()
  config.model = config_lib.model_section(name)
  others = dict.fromkeys(('differentiable_ram', 'ram', 'convolutional'), 'error (%)')
  others['class_conditional'] = 'bound given the label (nats)'
  assert report._label(config) == others.get(name, 'bound (nats)')


def test_stopped_it_goes_on_where_it_was(tmp_path, program):
  experiment = write_experiment(tmp_path, rates(0.5, 2, 0.25))
  runs = local.make(experiment, {}, str(tmp_path / 'runs'))

  def stop(runs):
    if runs[1].last_lines(1, 'step ') and runs[1].state == 'running':
      signal.raise_signal(signal.SIGTERM)

  assert run_all(runs, program, show=stop) == (
    signal.SIGTERM, {'0.5': 'finished', '2': 'stopped', '0.25': 'waiting'},
  )  # fmt: skip
  assert report.rows(runs)[1]['step'] == 3  # it saved
  words = report.conclude(tmp_path / 'runs', runs, signal.SIGTERM)
  assert words.endswith('by SIGTERM, 1 of 3 finished; the same command goes on from there')
  again = local.make(experiment, {}, str(tmp_path / 'runs'))
  assert run_all(again, program) == (None, {'0.5': 'finished', '2': 'finished', '0.25': 'finished'})
  assert [len((run.workdir / 'starts').read_text().split()) for run in runs] == [1, 2, 1]


def test_a_run_that_another_process_is_at_work_on_is_left_alone(tmp_path, program):
  runs = local.make(write_experiment(tmp_path, rates(0.5)), {}, str(tmp_path))
  runs[0].workdir.mkdir()
  with runs[0].log.open('ab') as log:
    fcntl.flock(log, fcntl.LOCK_EX)
    assert run_all(runs, program) == (None, {'0.5': 'failed'})
  assert runs[0].problem == 'another process is at work on it'
  assert not (runs[0].workdir / 'starts').exists()


def test_the_live_table(tmp_path):
  runs = local.make(write_experiment(tmp_path, rates(1, 0.5)), {}, str(tmp_path))
  runs[1].workdir.mkdir()
  runs[1].log.write_text('step 8/9  bound 5.00  [x]  0:00:01 left\nno step\n')
  runs[1].state = 'running'
  text = io.StringIO()
  console = rich.console.Console(file=text, force_terminal=True, width=70, color_system=None)
  with report.Display(console) as display:
    display.show(runs)
    time.sleep(0.01)
  assert '│ learning_rate=0.5 │ running │ step 8/9  0:00:01 left  bound 5.00' in text.getvalue()
  assert '0 of 2 finished' in text.getvalue()


SWEEP = """
import training_support
from draw_jax import sweeps

def get_config():
  return training_support.tiny_config({path!r})

def get_sweep():
  return sweeps.values('optimizer.learning_rate', 0.001, 0.002)
"""


def test_a_real_sweep(tmp_path):
  """The command with two runs of two steps, after the commands that it prints."""
  (tmp_path / 'tiny.py').write_text(SWEEP.format(path=support.write_images(tmp_path)))
  command = [
    *(sys.executable, '-m', 'draw_jax.sweep', f'--config={tmp_path}/tiny.py'),
    *(f'--workdir={tmp_path}/a sweep', f'--compilation_cache={support.CACHE}', '--num_local=2'),
    *('--config.train.num_steps=2', '--config.log.every_steps=1'),
  ]

  def run(*more):
    return subprocess.run([*command, *more], capture_output=True, text=True, check=False)

  printed = run('--print')
  assert printed.returncode == 0, printed.stderr
  lines = [shlex.split(line) for line in printed.stdout.splitlines()]
  assert [line[:3] for line in lines] == [['python', '-m', 'draw_jax.train']] * 2
  assert f'--workdir={tmp_path}/a sweep/learning_rate=0.001' in lines[0]
  assert not (tmp_path / 'a sweep').exists()
  done = run()
  assert done.returncode == 0, done.stderr
  rows = json.loads((tmp_path / 'a sweep' / 'sweep.json').read_text())
  assert [row['state'] for row in rows] == ['finished'] * 2
  assert rows[0]['best'] <= rows[1]['best'] and rows[0]['step'] == 2
  assert '(2 of 2 finished)' in done.stderr
  assert f"evaluate  python -m draw_jax.evaluate '--workdir={rows[0]['workdir']}'" in done.stdout
  assert (tmp_path / 'a sweep' / 'sweep.png').stat().st_size > 1000
