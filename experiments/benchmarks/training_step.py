r"""Times the training step of each experiment, and sets it beside its matrix products alone.

    cd experiments/benchmarks
    python training_step.py
    python training_step.py --configs=mnist --json=speed.json
    python training_step.py --configs=mnist:no_attention --dtype=bfloat16
    python training_step.py --configs=my_experiment.py --shape=28,28,1 --repetitions=5

All that is timed is compiled first, then run in turns, so that what else the machine does meets
all alike; medians are shown. Every core of a CPU is a device, as in training; all experiments of
one call share their number, the largest that fits the batches of each. The limit is the time that
the matrix products of the step take when they are issued back to back with the same shapes on the
same devices. They are counted in the program of the loss and its gradient without
rematerialization: what a step computes twice to save memory does not make the limit longer. The
last column is the speed of evaluation, in draws (images x samples) a second. Images and labels
are random; what they show does not matter here. '-' is for what a model does not do or have.
"""

import collections
import dataclasses
import functools
import json
import math
import pathlib
import statistics
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import PartitionSpec

from draw_jax import config as config_lib
from draw_jax import files
from draw_jax.cli import app
from draw_jax.devices import cores, sharding
from draw_jax.errors import UserError
from draw_jax.evaluation import evaluator
from draw_jax.models import layers, recurrence
from draw_jax.tasks import base
from draw_jax.training import setup, step

_SHAPES = {
  'quickstart': (28, 28, 1),
  'mnist': (28, 28, 1),
  'two_digit_mnist': (60, 60, 1),
  'svhn': (54, 54, 3),
  'cifar10': (32, 32, 3),
  'own_images': (32, 32, 3),  # for example
  'cluttered_mnist': (100, 100, 1),
}
CLASSES = 10  # of a classifier's labels
_TIMED = (
  'quickstart', 'mnist', 'two_digit_mnist', 'svhn', 'cifar10',
  'cluttered_mnist', 'cluttered_mnist:ram_8', 'cluttered_mnist:convolutional',
)  # fmt: skip

CONFIGS = flags.DEFINE_list('configs', list(_TIMED), 'Experiments to time, by name or file.')
_SHAPE = flags.DEFINE_list('shape', None, 'H,W,C of the images of an experiment of your own.')
_REPETITIONS = flags.DEFINE_integer('repetitions', 15, 'Of everything timed.', lower_bound=1)
_BATCH_SIZE = flags.DEFINE_integer('batch_size', None, "In place of the config's.", lower_bound=1)
_REMAT = flags.DEFINE_enum(
  'remat', None, list(recurrence.REMAT), "In place of the config's, where the model has one."
)
_DTYPE = flags.DEFINE_enum(
  'dtype', None, layers.DTYPES, "In place of the config's, where the model has one."
)
_JSON = flags.DEFINE_string('json', None, 'File to write all figures to.')
_GENERATED = 64  # images generated at a time, or the next multiple of the devices
_SAMPLES = 20  # importance samples of an evaluation


def count_products(jaxpr, times: int = 1) -> collections.Counter:
  """How often each matrix product occurs in a program, loops unrolled.

  Returns:
    By (dimension numbers, shapes of both operands, types of both and of the product).
  """
  found = collections.Counter()
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      left, right, product = (v.aval for v in (*equation.invars, *equation.outvars))
      types = tuple(str(aval.dtype) for aval in (left, right, product))
      found[equation.params['dimension_numbers'], left.shape, right.shape, types] += times
    for inner in programs(equation):
      found += count_products(inner, times * equation.params.get('length', 1))
  return found


def programs(equation):
  """Those that an operation of a program runs, such as the body of a loop."""

  def is_program(value) -> bool:
    return hasattr(value, 'eqns') or hasattr(value, 'jaxpr')

  for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=is_program):
    if is_program(value):
      yield getattr(value, 'jaxpr', value)


def products_alone(products: collections.Counter):
  """A function that does nothing but these products, one after the other, and its operands.

  Operands and sums have the types that the model gives them.
  """
  rng = np.random.default_rng(0)
  operands = [
    tuple(
      jnp.asarray(0.01 * rng.normal(size=shape), dtype)
      for shape, dtype in zip(shapes, types[:2], strict=True)
    )
    for _, *shapes, types in products
  ]

  def run(operands):
    last = []
    for (key, times), (left, right) in zip(products.items(), operands, strict=True):
      numbers, _, _, (*_, total) = key
      multiply = functools.partial(
        jax.lax.dot_general, dimension_numbers=numbers, preferred_element_type=total
      )

      def one(carry, _, multiply=multiply, right=right):
        # One value of an operand comes from the last product and the whole product is kept:
        # nothing of it can be left out or moved out of the loop.
        left, product = carry
        value = product[(0,) * product.ndim].astype(left.dtype)
        left = left.at[(0,) * left.ndim].set(value)
        return (left, multiply(left, right)), None

      last.append(jax.lax.scan(one, (left, multiply(left, right)), length=times - 1)[0][1])
    return last

  return run, operands


def compile_twice(function, *args):
  """A compiled function, and seconds of compiling it without and with a cache on disk."""
  seconds = []
  kept = jax.config.jax_compilation_cache_dir
  with tempfile.TemporaryDirectory() as folder:
    _use_cache(folder)
    for _ in range(2):
      jax.clear_caches()
      start = time.perf_counter()
      compiled = function.lower(*args).compile()
      seconds.append(time.perf_counter() - start)
    _use_cache(kept)
  return compiled, seconds


def _use_cache(folder: str | None) -> None:
  jax.config.update('jax_compilation_cache_dir', folder)
  # The cache in use holds on to its folder.
  compilation_cache.reset_cache()


def measure(config, image_shape: tuple[int, int, int], repetitions: int) -> dict:
  """All figures of one experiment, times in seconds."""
  prepared = setup.make(config, image_shape, CLASSES)
  task, mesh = prepared.task, prepared.mesh
  size, glimpses = config.train.batch_size, config.model.glimpses
  state = prepared.init()(np.full(image_shape, 0.2, np.float32))
  params = jax.tree.map(jnp.copy, state.params)
  batch = jax.device_put(_batch(size, image_shape), sharding.by_batch(mesh))

  def noise_of(num):
    return jax.device_put(task.noise(jax.random.key(0), num, glimpses), sharding.by_batch(mesh, 1))

  def loss(params, batch, noise):
    return training_loss(task, params, batch, noise)

  def generate(params, _, noise):
    canvas, _ = task.model.apply({'params': params}, noise, method='draw')
    return task.model.mean(canvas).sum()

  products = _products(task, params, image_shape, size // mesh.size, glimpses)
  alone, operands = products_alone(products)
  everywhere, parts = PartitionSpec(), PartitionSpec(sharding.AXIS)
  alone = jax.shard_map(alone, mesh=mesh, in_specs=everywhere, out_specs=parts, check_vma=False)
  operands = jax.device_put(operands, sharding.replicated(mesh))
  whole, (cold, cached) = compile_twice(prepared.train_step(), state, batch)

  def advance():
    nonlocal state
    state, numbers = whole(state, batch)
    return numbers

  forward, gradient, draw = (
    jax.jit(step.over_devices(mesh, f)) for f in (loss, jax.value_and_grad(loss), generate)
  )
  limit, noise = jax.jit(alone), noise_of(size)
  timed = {
    'forward': lambda: forward(params, batch, noise),
    'forward and backward': lambda: gradient(params, batch, noise),
    'step': advance,
    'products alone': lambda: limit(operands),
  }
  if task.draws:
    few = noise_of(-(-_GENERATED // mesh.size) * mesh.size)
    timed['generate'] = lambda: draw(params, {}, few)
  medians = in_turns(timed, repetitions)
  memory = whole.memory_analysis()
  return {
    'devices': mesh.size,
    'batch_size': size,
    'glimpses': glimpses,
    'remat': config.model.get('remat'),
    'dtype': config.model.dtype or layers.DTYPES[0] if 'dtype' in config.model else None,
    'seconds': medians,
    'images_per_second': size / medians['step'],
    'of_limit': medians['products alone'] / medians['step'],
    'product_gigaflop': mesh.size * sum(flop(key) * n for key, n in products.items()) / 1e9,
    'compile_cold': cold,
    'compile_cached': cached,
    'temporary_megabytes_per_device': memory.temp_size_in_bytes / 1e6,
    'evaluation_draws_per_second': _evaluation_speed(task, params, image_shape, mesh, glimpses),
  }


def training_loss(task, params, batch, noise):
  """The sum over a batch of what training minimizes, in its first step."""
  return task.loss(params, batch, noise, jnp.int32(0))[0].sum()


def _products(task, params, image_shape, num: int, glimpses: int) -> collections.Counter:
  """The products of one device's part of a training step, by `count_products`.

  With operands of two types both are taken to be of the narrower. What comes back through a
  product in bfloat16 is in float32, and its plain derivative, which is counted here, multiplies
  by that without a cast: the limit would be one of float32.
  """
  if 'remat' in (field.name for field in dataclasses.fields(task.model)):
    task = dataclasses.replace(task, model=task.model.clone(remat='none'))
  noise = task.noise(jax.random.key(0), num, glimpses)
  gradient = jax.grad(lambda params: training_loss(task, params, _batch(num, image_shape), noise))
  found = collections.Counter()
  for key, times in count_products(jax.make_jaxpr(gradient)(params).jaxpr).items():
    *shapes, (left, right, total) = key
    narrow = min(left, right, key=lambda dtype: jnp.dtype(dtype).itemsize)
    found[*shapes, (narrow, narrow, total)] += times
  return found


def _batch(num: int, image_shape) -> dict[str, np.ndarray]:
  rng = np.random.default_rng(0)
  image = rng.integers(0, 256, (num, *image_shape), np.uint8)
  return {'image': image, 'label': rng.integers(0, CLASSES, num, np.int32)}


def _evaluation_speed(task, params, image_shape, mesh, glimpses: int) -> float:
  # As many draws of each kind: a classifier has one of each image.
  draws = task.draws
  options = base.EvaluationOptions(importance_samples=(_SAMPLES,) if draws else ())
  images = _Images(image_shape, 2 * base.EVALUATION_BATCH * (1 if draws else _SAMPLES))
  return evaluator.Evaluator(task, images, options, mesh, (glimpses,)).measure(params).speed


class _Images:
  """As much of a dataset as evaluation needs: random images and labels."""

  num_classes = CLASSES

  def __init__(self, image_shape, num: int):
    self.image_shape, self._num = image_shape, num

  def num_examples(self, split: str) -> int:
    del split
    return self._num

  def eval_batches(self, split: str, size: int, **processes):
    del split, processes
    batch = _batch(size, self.image_shape)
    for start in range(0, self._num, size):
      yield {**batch, 'mask': start + np.arange(size) < self._num}


def in_turns(functions: dict, repetitions: int) -> dict[str, float]:
  """The median time of each function, all of them run once in each round."""
  for function in functions.values():
    jax.block_until_ready(function())
  times = collections.defaultdict(list)
  for _ in range(repetitions):
    for name, function in functions.items():
      start = time.perf_counter()
      jax.block_until_ready(function())
      times[name].append(time.perf_counter() - start)
  return {name: statistics.median(values) for name, values in times.items()}


def flop(key) -> float:
  """Of a product, by its key in `count_products`."""
  ((left_axes, _), (left_batch, _)), left, right, _ = key
  contracted = math.prod(left[axis] for axis in left_axes)
  batch = math.prod(left[axis] for axis in left_batch)
  return 2.0 * math.prod(left) * math.prod(right) / contracted / batch


def load(experiment: str):
  """The config of an experiment with the flags' changes, and the shape of its images."""
  path, _, variant = experiment.partition(':')
  config = config_lib.from_file(experiment)
  name = pathlib.Path(path).stem
  if _SHAPE.value is None and name not in _SHAPES:
    raise UserError(f'{path} is not one of {", ".join(_SHAPES)}: give --shape=H,W,C.')
  shape = _SHAPES.get(name)
  if _SHAPE.value:
    if len(_SHAPE.value) != 3 or not all(word.isdecimal() for word in _SHAPE.value):
      raise UserError(f'--shape={",".join(_SHAPE.value)}: give H,W,C, such as 28,28,1.')
    shape = tuple(map(int, _SHAPE.value))
  config.train.batch_size = _BATCH_SIZE.value or config.train.batch_size
  for field, value in (('remat', _REMAT.value), ('dtype', _DTYPE.value)):
    if field in config.model:
      config.model[field] = value or config.model[field]
  return f'{name}:{variant}' if variant else name, config, shape


def main() -> None:
  """Prints a row for each experiment."""
  loaded = list(map(load, CONFIGS.value))
  sections = [section for _, config, _ in loaded for section in (config.train, config.eval)]
  cores.use_huge_pages()
  cores.use_cores([section.batch_size for section in sections])
  cores.keep_memory()
  for _, config, shape in loaded:
    config_lib.validate_for(config, shape, jax.device_count())
  device = jax.devices()[0]
  print(f'{jax.device_count()} x {device.device_kind}, jax {jax.__version__}')
  columns = ('batch', 'T', 'dtype', 'forward', 'fwd+bwd', 'step', 'products', 'ratio', 'images/s',
             '64 drawn', 'MB', 'compile', 'cached', 'draws/s')  # fmt: skip
  width = max(len(name) for name, *_ in loaded)
  print(f'{"":<{width}}' + ''.join(f'{column:>10}' for column in columns))
  results = {}
  for name, config, shape in loaded:
    row = results[name] = measure(config, shape, _REPETITIONS.value)
    seconds = row['seconds']
    values = (
      row['batch_size'],
      row['glimpses'],
      row['dtype'] or '-',
      *(f'{seconds[key]:.3f}' for key in ('forward', 'forward and backward', 'step')),
      f'{seconds["products alone"]:.3f}',
      f'{row["of_limit"]:.2f}',
      f'{row["images_per_second"]:.0f}',
      f'{seconds["generate"]:.3f}' if 'generate' in seconds else '-',
      f'{row["temporary_megabytes_per_device"]:.0f}',
      f'{row["compile_cold"]:.1f}',
      f'{row["compile_cached"]:.1f}',
      f'{row["evaluation_draws_per_second"]:.0f}',
    )
    print(f'{name:<{width}}' + ''.join(f'{value:>10}' for value in values), flush=True)
  if _JSON.value:
    with files.writing(_JSON.value) as path:
      path.write_text(json.dumps(results, indent=2) + '\n')


if __name__ == '__main__':
  app.run(main)
