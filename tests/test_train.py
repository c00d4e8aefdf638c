"""The binary, as a user runs it."""

import json
import random
import signal
import time

import numpy as np
import pytest
import training_support as support

from draw_jax import checkpoint, metrics

TIMES = ('images_per_second',)


@pytest.fixture(scope='module')
def experiment(tmp_path_factory):
  return support.write_experiment(tmp_path_factory.mktemp('experiment'))


@pytest.fixture(scope='module')
def finished(experiment, tmp_path_factory):
  """The workdir of a run that nothing disturbed."""
  workdir = tmp_path_factory.mktemp('finished')
  done = support.run(experiment, workdir)
  assert done.returncode == 0, done.stderr
  assert 'best      bound' in done.stdout
  assert f'python -m draw_jax.evaluate --workdir={workdir}' in done.stdout
  return workdir


def final_state(workdir) -> list[np.ndarray]:
  """Parameters and average, and the checksum of optimizer, key and step."""
  import jax

  arrays = []
  for ema in (False, True):
    arrays += jax.tree.leaves(checkpoint.load(workdir, 'latest', ema=ema).params)
  folder = max((workdir / 'checkpoints').glob('[0-9]*'), key=lambda p: int(p.name))
  stored = json.loads((folder / '_CHECKPOINT_METADATA').read_text())['custom_metadata']
  return [*map(np.asarray, arrays), np.array(stored['checksums']['rest'])]


def rows(workdir) -> list[dict]:
  return [{k: v for k, v in row.items() if k not in TIMES} for row in metrics.read(workdir)]


def assert_same_run(a, b):
  for x, y in zip(final_state(a), final_state(b), strict=True):
    np.testing.assert_array_equal(x, y)
  assert rows(a) == rows(b)


def read_until(process, beginning: str) -> list[str]:
  """Output up to a line with this beginning."""
  lines = []
  for line in process.stdout:
    lines.append(line)
    if line.startswith(beginning):
      return lines
  raise AssertionError(''.join(lines))


def test_killed_at_random_moments_it_ends_as_if_undisturbed(experiment, finished, tmp_path):
  rng = random.Random(time.time_ns())
  kills, reached = 0, []
  for _ in range(4):
    process = support.start(experiment, tmp_path)
    read_until(process, 'step ')
    time.sleep(rng.uniform(0, 1.2))
    process.kill()
    kills += process.wait() == -signal.SIGKILL
    reached.append(
      sorted(int(p.name) for p in (tmp_path / 'checkpoints').glob('[0-9]*') if p.name.isdigit())
    )
    process.stdout.close()
  done = support.run(experiment, tmp_path)
  assert done.returncode == 0, done.stderr
  print(reached)
  assert kills >= 2
  assert_same_run(tmp_path, finished)
