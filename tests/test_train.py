"""The command, as a user runs it."""

import random
import re
import signal
import time

import numpy as np
import pytest
import training_support as support

from draw_jax import trained
from draw_jax.training import run_log


@pytest.fixture(scope='module')
def experiment(tmp_path_factory):
  return support.write_experiment(tmp_path_factory.mktemp('experiment'))


@pytest.fixture(scope='module')
def finished(experiment, tmp_path_factory):
  """The workdir of a run that nothing disturbed."""
  workdir = tmp_path_factory.mktemp('finished') / 'my run'
  done = support.run(experiment, workdir)
  assert done.returncode == 0, done.stderr
  # Of images that are not binary no number is a bound, and what the loss weighs is told.
  assert 'best      cross-entropy + KL' in done.stdout
  said = done.stderr + done.stdout
  # A note on images that are binary tells how to have one.
  assert 'bound' not in said.replace('results are bounds on their likelihood', '')
  assert re.search(r'cross-entropy \+ KL [\d.]+  kl [\d.]+ .* KL weight 0.01 ', done.stderr)
  weights = [row.get('kl_weight') for row in run_log.read(workdir) if row['split'] == 'train']
  assert weights == [step / 400 for step in range(4, 60, 5)]
  assert f"python -m draw_jax.evaluate '--workdir={workdir}'\n" in done.stdout
  return workdir


def read_until(process, beginning: str) -> list[str]:
  """Output up to a line with this beginning."""
  lines = []
  for line in process.stdout:
    lines.append(line)
    if line.startswith(beginning):
      return lines
  raise AssertionError(''.join(lines))


def test_killed_at_random_moments_it_ends_as_if_undisturbed(experiment, finished, tmp_path):
  seed = time.time_ns()
  rng, kills = random.Random(seed), 0
  for _ in range(4):
    if (tmp_path / 'result.json').exists():  # It was quicker than the last wait.
      break
    process = support.start(experiment, tmp_path)
    read_until(process, 'step ')
    # Steps take a few milliseconds, saving a hundred: most kills fall into a save.
    time.sleep(rng.uniform(0, 1))
    process.kill()
    process.communicate()
    kills += process.returncode == -signal.SIGKILL
  done = support.run(experiment, tmp_path)
  assert done.returncode == 0, done.stderr
  assert kills, f'seed {seed}: it was never killed'
  support.assert_same_run(tmp_path, finished)


def test_sigterm_saves_and_the_same_command_goes_on(experiment, finished, tmp_path):
  process = support.start(experiment, tmp_path)
  read_until(process, 'step ')
  process.send_signal(signal.SIGTERM)
  output = process.communicate()[0]
  assert process.returncode == 128 + signal.SIGTERM
  step = trained.from_workdir(tmp_path, 'latest').step
  assert f'stopped   by SIGTERM after {step} of 60 steps; the same command goes on' in output
  assert 5 <= step < 60
  done = support.run(experiment, tmp_path)
  assert done.returncode == 0, done.stderr
  assert f'continued from {tmp_path}/checkpoints/{step}' in done.stderr
  support.assert_same_run(tmp_path, finished)


def test_begun_on_four_devices_and_ended_on_one(experiment, finished, tmp_path):
  process = support.start(experiment, tmp_path, devices=4)
  assert read_until(process, 'step ')[0].startswith('devices   4 x cpu')
  process.send_signal(signal.SIGINT)
  process.communicate()
  assert process.returncode == 128 + signal.SIGINT
  done = support.run(experiment, tmp_path)
  assert done.returncode == 0, done.stderr
  for ours, theirs in zip(support.rows(tmp_path), support.rows(finished), strict=True):
    assert ours.keys() == theirs.keys()
    for name in ('step', 'bound', 'kl', 'reconstruction'):
      np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4)


@pytest.mark.parametrize(
  'flags,message',
  [
    (['--config.modl.latnt=3'], 'no field config.modl.latnt: did you mean config.model.latent?'),
    (
      ['--config.model.steps=3'],
      'no field config.model.steps: did you mean config.model.glimpses?',
    ),
    (
      ['--config.model.glimpses=many'],
      'flag --config.model.glimpses=many: invalid literal for int()',
    ),
    (['--config.eval.split=vaild'], "images has no split 'vaild': it has train, valid"),
    (['--profile=9,3'], '--profile=9,3 is not a first and a last step, such as 100,110.'),
    (['--workdir='], '--workdir= is empty: give a path, or leave it out.'),
    (['--workdri=x'], "Unknown command line flag 'workdri'. Did you mean: workdir ?"),
  ],
  ids=lambda value: value[0] if isinstance(value, list) else '',
)
def test_mistakes_on_the_command_line(experiment, tmp_path, flags, message):
  done = support.run(experiment, tmp_path / 'run', *flags)
  assert done.returncode == 2
  assert done.stderr.startswith(f'error: {message}')
  assert done.stderr.count('\n') == 1 and done.stdout == ''
  assert not (tmp_path / 'run').exists()


def test_an_experiment_that_is_not_there(experiment, tmp_path):
  done = support.run(experiment.with_name('experimant.py'), tmp_path)
  assert done.returncode == 2
  assert f'did you mean {experiment}?' in done.stderr and done.stderr.count('\n') == 1


def test_an_experiment_that_gives_nothing_is_told_in_one_line(tmp_path):
  (tmp_path / 'empty.py').write_text('def get_config():\n  pass\n')
  done = support.run(tmp_path / 'empty.py', tmp_path / 'run')
  assert (done.returncode, done.stderr.count('\n')) == (2, 1), done.stderr
  assert 'empty.py gives NoneType, and no config: start from' in done.stderr


def test_a_folder_with_a_space_hides_no_slip(experiment, tmp_path):
  spaced = tmp_path / 'my experiments' / 'a.py'
  spaced.parent.mkdir()
  spaced.write_text(experiment.read_text())
  done = support.run(spaced, tmp_path / 'run', '--config.train.epoch=3')
  assert done.stderr.startswith('error: no field config.train.epoch: did you mean')


def test_the_home_folder(experiment, tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  done = support.run(experiment, '~/run', '--config.train.num_steps=2')
  assert done.returncode == 0, done.stderr
  assert trained.from_workdir(tmp_path / 'run', 'latest').step == 2


def test_profile(experiment, tmp_path):
  done = support.run(experiment, tmp_path, '--profile=3,5')
  assert done.returncode == 0, done.stderr
  assert list((tmp_path / 'profile').rglob('*.xplane.pb'))
  again = support.run(experiment, tmp_path, '--profile=3,5')
  assert 'no trace: 60 of 60 steps are done, --profile begins at 3' in again.stderr
