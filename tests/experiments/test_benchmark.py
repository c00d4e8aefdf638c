"""The benchmark of the training step: what it counts, and that it runs."""

import pathlib
import runpy

import jax
import jax.numpy as jnp
import pytest

from draw_jax import config as config_lib
from draw_jax.tasks import registry

EXPERIMENTS = pathlib.Path(__file__).parents[2] / 'experiments'


@pytest.fixture(scope='module')
def benchmark():
  return runpy.run_path(str(EXPERIMENTS / 'benchmarks' / 'training_step.py'))


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
  flop = sum(benchmark['flop'](key) * n for key, n in found.items())
  assert flop == 8 * 2 * 2 * 3 * 4 + 5 * 2 * 4 * 2 * 4


def test_the_limit_multiplies_in_the_types_of_the_model(benchmark):
  config = small(config_lib.default())
  config.model.dtype = 'bfloat16'
  task = registry.create(config.model, (6, 7, 1))
  params = jax.eval_shape(task.init, jax.random.key(0), jnp.zeros((6, 7, 1)))
  products = benchmark['_products'](task, params, (6, 7, 1), 2, 3)
  alone, operands = benchmark['products_alone'](products)
  assert benchmark['count_products'](jax.make_jaxpr(alone)(operands).jaxpr) == products
  # Windows and filters stay in float32.
  kinds = {(kind, kind, 'float32') for kind in ('float32', 'bfloat16')}
  assert {types for *_, types in products} == kinds


@pytest.mark.parametrize('name', ['default', 'ram', 'convolutional'])
def test_all_figures_are_there(benchmark, name):
  config = config_lib.default()
  if name != 'default':
    config.model = config_lib.model_section(name)
  figures = benchmark['measure'](small(config), (6, 7, 1), repetitions=1)
  assert all(seconds > 0 for seconds in figures['seconds'].values())
  assert ('generate' in figures['seconds']) == (name == 'default')
  assert figures['images_per_second'] == pytest.approx(2 / figures['seconds']['step'])
  assert figures['product_gigaflop'] > 0
  assert figures['temporary_megabytes_per_device'] > 0
  assert figures['evaluation_draws_per_second'] > 0


def small(config):
  sizes = {'glimpses': 3, 'hidden': 4, 'latent': 2, 'read_size': 2, 'filter_size': 2, 'stride': 2}
  if config.model.name == 'convolutional':
    sizes['glimpses'] = 1
  config.model.update({field: size for field, size in sizes.items() if field in config.model})
  config.train.batch_size = 2
  return config
