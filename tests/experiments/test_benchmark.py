"""The benchmark of the training step: what it counts, and that it runs."""

import pathlib
import runpy

import jax
import jax.numpy as jnp
import pytest

from draw_jax import config as config_lib

EXPERIMENTS = pathlib.Path(__file__).parents[2] / 'experiments'


@pytest.fixture(scope='module')
def benchmark():
  return runpy.run_path(str(EXPERIMENTS / 'benchmarks' / 'step.py'))


def test_products_are_counted_inside_loops_and_functions(benchmark):
  left, right, batches = jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones((5, 4, 2))

  def program(left, right, batches):
    step = jax.jit(lambda total, _: (total + left @ right, None))
    total, _ = jax.lax.scan(step, jnp.zeros((2, 4)), length=7)
    return total, jnp.einsum('bij,bjk->bik', batches, batches.mT), left @ right

  found = benchmark['count_products'](jax.make_jaxpr(program)(left, right, batches).jaxpr)
  assert {(a, b): n for (_, a, b, _), n in found.items()} == {
    ((2, 3), (3, 4)): 8,
    ((5, 4, 2), (5, 2, 4)): 1,
  }
  flop = sum(benchmark['_flop'](key) * n for key, n in found.items())
  assert flop == 8 * 2 * 2 * 3 * 4 + 5 * 2 * 4 * 2 * 4


def test_all_figures_are_there(benchmark):
  config = config_lib.default()
  config.model.update({'glimpses': 3, 'hidden': 4, 'latent': 2})
  config.train.batch_size = 2
  figures = benchmark['measure'](config, (6, 7, 1), repetitions=1)
  assert all(seconds > 0 for seconds in figures['seconds'].values())
  assert figures['images_per_second'] == pytest.approx(2 / figures['seconds']['step'])
  assert figures['product_gigaflop'] > 0
  assert figures['temporary_megabytes_per_device'] > 0
  assert figures['evaluation_draws_per_second'] > 0
