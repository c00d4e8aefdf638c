"""The same numbers on any number of devices, with one message between them a step."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import training_support as support

from draw_jax.devices import sharding

# Devices, and parts in which each works through its share of a batch.
CASES = ((1, 1), (2, 2), (4, 1), (8, 1))
COLLECTIVE = r' (all-reduce|all-gather|all-to-all|reduce-scatter|collective-[a-z]+)(?:-start)?\('


def worker(folder: str) -> None:
  """Takes ten steps in each of the cases, in a process with eight devices."""
  import jax

  from draw_jax import data
  from draw_jax.evaluation.evaluator import Evaluator
  from draw_jax.tasks.base import EvaluationOptions
  from draw_jax.training import setup

  config = support.tiny_config(support.write_images(pathlib.Path(folder)))
  dataset = data.open_dataset(**config.data)
  jax.config.update('jax_compilation_cache_dir', str(support.CACHE))
  results = []
  for devices, config.optimizer.accumulate in CASES:
    mesh = sharding.make_mesh(jax.devices()[:devices])
    prepared = setup.make(config, dataset.image_shape, num_steps=10, mesh=mesh)
    state = prepared.init()(dataset.mean_image())
    train_step = prepared.train_step()
    batches = sharding.prefetch(mesh, dataset.train_batches(8, seed=0))
    compiled = train_step.lower(state, next(batches)).compile()
    losses = []
    for batch in sharding.prefetch(mesh, dataset.train_batches(8, seed=0)):
      old = state
      state, numbers = compiled(state, batch)
      losses.append(float(numbers['bound']))
      if len(losses) == 10:
        break
    options = EvaluationOptions(split='valid', batch_size=8)
    evaluator = Evaluator(prepared.task, dataset, options, mesh, (3,))
    results.append({
      'losses': losses,
      'valid': evaluator.metrics(state.params)['bound'],
      'collectives': re.findall(COLLECTIVE, compiled.as_text()),
      'donated': all(leaf.is_deleted() for leaf in jax.tree.leaves(old.params)),
    })  # fmt: skip
  print(json.dumps(results))


@pytest.fixture(scope='module')
def results(tmp_path_factory):
  done = subprocess.run(
    [sys.executable, __file__, str(tmp_path_factory.mktemp('images'))],
    env=support.environment(devices=8),
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize('case', CASES[1:], ids=str)
def test_same_losses_as_on_one_device(results, case):
  one = results[1, 1]
  assert len(set(one['losses'])) == 10
  np.testing.assert_allclose(results[case]['losses'], one['losses'], rtol=0, atol=1e-5)
  np.testing.assert_allclose(results[case]['valid'], one['valid'], rtol=1e-6)


@pytest.mark.parametrize('case', CASES[1:], ids=str)
def test_one_all_reduce_a_step(results, case):
  assert results[case]['collectives'] == ['all-reduce']


def test_state_is_donated(results):
  assert all(result['donated'] for result in results.values())


if __name__ == '__main__':
  worker(sys.argv[1])
