r"""What a training step asks of an accelerator, from shapes alone: nothing is run or measured.

    python experiments/benchmarks/accelerators.py
    python experiments/benchmarks/accelerators.py --configs=my_experiment.py --shape=64,64,3

Prints the tables of docs/accelerators.md, which says what they mean; --page=docs/accelerators.md
puts them in it. --configs, --shape, --batch_size, --dtype and --remat are those of
experiments/benchmarks/training_step.py.
"""

import functools
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import training_step as benchmark
from absl import flags
from jax.interpreters import partial_eval

from draw_jax.cli import app
from draw_jax.errors import UserError
from draw_jax.models import layers
from draw_jax.tasks import registry

_EXPERIMENTS = (
  'quickstart',
  'mnist',
  'mnist:no_attention',
  'two_digit_mnist',
  'svhn',
  'cifar10',
  'own_images',
  *(
    f'cluttered_mnist:{variant}'
    for variant in ('8_glimpses', '4_glimpses', 'ram_8', 'ram_4', 'convolutional')
  ),
)
flags.set_default(benchmark.CONFIGS, list(_EXPERIMENTS))
_PAGE = flags.DEFINE_string('page', None, 'File whose tables are to be replaced by these.')
# The tables stand between these.
_BEGIN, _END = '<!-- tables -->\n', '<!-- end of tables -->\n'

# A prime that divides no other length: what it divides grows with the batch.
_BATCH = 10_007
_LARGEST = 2**20  # batch that is looked at
_DEVICES = 8  # that reduce gradients together
# Passes over all parameters: gradients are written; they, the parameters, their average and
# Adam's two moments are read, and all but the gradients written again.
_PASSES = 10
_KEPT_ARRAYS = 5  # of the size of all parameters
# The assumption of the page: each product is a kernel, and one more does all that is between
# it and the next.
_KERNELS = 2


class Chip(NamedTuple):
  """What a vendor publishes of an accelerator, and one assumption."""

  name: str
  flops: dict[str, float]  # a second, by the type of the operands
  full: float  # a second in float32 to the last bit, which is not JAX's default
  bandwidth: float  # bytes a second of its memory
  memory: float  # bytes
  cache: float  # bytes nearer to the units that multiply
  link: float  # bytes a second to other chips, each way
  kernel: float  # assumed: seconds from the start of one small kernel to that of the next


# JAX's default precision multiplies float32 as TF32 on this GPU and as bfloat16 on a TPU, where
# float32 in full is six such passes.
_CHIPS = (
  Chip(
    name='H100 SXM',
    flops={'bfloat16': 989e12, 'float32': 494.5e12},
    full=67e12,
    bandwidth=3.35e12,
    memory=80e9,
    cache=50e6,
    link=450e9,
    kernel=2e-6,
  ),
  Chip(
    name='TPU v5e',
    flops={'bfloat16': 197e12, 'float32': 197e12},
    full=197e12 / 6,
    bandwidth=819e9,
    memory=16e9,
    cache=128 * 2**20,
    link=200e9,
    kernel=0.5e-6,
  ),
)


class Cost(NamedTuple):
  """Of one training step. Bytes are functions of the batch: [without it, for each image]."""

  parameters: int
  flop: dict[str, float]  # of an image, by the type of the operands
  products: int
  again: np.ndarray  # bytes of weights and images, read anew at each time-step
  state: np.ndarray  # bytes written at one time-step and read at the next
  kept: np.ndarray  # bytes of arrays over all time-steps, written and read once
  outside: np.ndarray  # bytes of the products outside of loops
  working: np.ndarray  # bytes of one time-step: what it reads anew, and its state

  @property
  def optimizer(self) -> float:
    """Bytes."""
    return _PASSES * 4.0 * self.parameters


def cost(config, shape: tuple[int, int, int]) -> Cost:
  """Counts what the gradient of an experiment's loss does."""
  task = registry.create(config.model, shape, benchmark.CLASSES)
  key, array = jax.eval_shape(jax.random.key, 0), jax.ShapeDtypeStruct
  params = jax.eval_shape(task.init, key, array(shape, np.float32))
  batch = {'image': array((_BATCH, *shape), np.uint8), 'label': array((_BATCH,), np.int32)}
  noise = jax.eval_shape(lambda key: task.noise(key, _BATCH, config.model.glimpses), key)
  gradient = jax.grad(functools.partial(benchmark.training_loss, task))
  program = jax.make_jaxpr(gradient)(params, batch, noise).jaxpr
  # Taps are arrays of zeros in the program; nothing reads them.
  program, _ = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
  products = benchmark.count_products(program)
  flop = dict.fromkeys(layers.DTYPES, 0.0)
  for product, times in products.items():
    *_, (left, right, _) = product
    # A product of two types is one of the wider.
    flop[left if left == right else 'float32'] += benchmark.flop(product) * times / _BATCH
  found = dict.fromkeys(('again', 'state', 'kept', 'outside', 'working'), np.zeros(2))
  _move(program, 1, found)
  return Cost(
    parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
    flop=flop,
    products=sum(products.values()),
    **found,
  )


def _move(program, times: int, found: dict[str, np.ndarray], looped: bool = False) -> None:
  """Adds the bytes that a program moves, done so many times."""
  for equation in program.eqns:
    inner = [*benchmark.programs(equation)]
    if equation.primitive.name == 'scan':
      (body,), length = inner, equation.params['length']
      num_consts, num_carry = equation.params['num_consts'], equation.params['num_carry']
      split = np.cumsum([num_consts, num_carry])
      consts, carry, xs = np.split(np.array(equation.invars, object), split)
      narrow = _operand_bytes(body)
      again = sum((_bytes(v, narrow) for v in consts), np.zeros(2))
      state = sum(map(_bytes, carry), np.zeros(2))
      kept = sum(map(_bytes, (*xs, *equation.outvars[num_carry:])), np.zeros(2))
      found['again'] = found['again'] + times * length * again
      found['state'] = found['state'] + times * length * 2 * state
      found['kept'] = found['kept'] + times * kept
      found['working'] = np.maximum(found['working'], again + state)
      _move(body, times * length, found, looped=True)
    elif equation.primitive.name == 'dot_general' and not looped:
      moved = sum(map(_bytes, (*equation.invars, *equation.outvars)))
      found['outside'] = found['outside'] + times * moved
    else:
      for program in inner:
        _move(program, times, found, looped)


def _operand_bytes(program) -> dict[tuple[int, ...], int]:
  """Bytes of a number, by shape: weights are cast before they are multiplied by, for all steps."""
  return {
    shape: np.dtype(dtype).itemsize
    for _, *shapes, types in benchmark.count_products(program)
    for shape, dtype in zip(shapes, types[:2], strict=True)
  }


def _bytes(variable, narrow=None) -> np.ndarray:
  """[without the batch, for each image]."""
  aval, narrow = variable.aval, narrow or {}
  moved = aval.size * min(aval.dtype.itemsize, narrow.get(aval.shape, aval.dtype.itemsize))
  return np.array([0, moved / _BATCH] if aval.size % _BATCH == 0 else [moved, 0])


def _at(linear: np.ndarray, batch: int) -> float:
  return linear[0] + linear[1] * batch


def seconds(one: Cost, chip: Chip, batch: int) -> dict[str, float]:
  """The least that each of three limits leaves for a step."""
  moved = one.optimizer + _at(one.kept + one.outside, batch)
  # What fits is read once; all else at each time-step.
  fits = _at(one.working, batch) <= chip.cache
  moved += _at(one.working if fits else one.again + one.state, batch)
  return {
    'products': sum(batch * flop / chip.flops[kind] for kind, flop in one.flop.items()),
    'memory': moved / chip.bandwidth,
    'kernels': _KERNELS * one.products * chip.kernel,
  }


def _first(holds: Callable[[int], bool]) -> int | None:
  """The smallest power of two for which something holds."""
  powers = (2**i for i in range(_LARGEST.bit_length()))
  return next((batch for batch in powers if holds(batch)), None)


def _shapes_row(one: Cost, glimpses: int, batch: int) -> tuple:
  flop = batch * sum(one.flop.values())
  again, state, kept, outside = (
    _at(a, batch) for a in (one.again, one.state, one.kept, one.outside)
  )
  moved = again + state + kept + outside + one.optimizer
  megabytes = (f'{value / 1e6:,.0f}' for value in (again, state, kept, outside, one.optimizer))
  half = one.flop['bfloat16'] / sum(one.flop.values())
  return (
    batch, glimpses, f'{one.parameters / 1e6:.2f}', f'{flop / 1e9:.1f}', f'{100 * half:.0f}',
    f'{one.products:,}', *megabytes, f'{flop / moved:.0f}',
  )  # fmt: skip


def _chip_row(one: Cost, chip: Chip, batch: int) -> tuple:
  least = seconds(one, chip, batch)
  bound = max(least, key=least.get)
  size = 4.0 * one.parameters
  reduce = 2 * (_DEVICES - 1) / _DEVICES * size / chip.link

  def leaves(batch: int) -> bool:
    there = seconds(one, chip, batch)
    return max(there, key=there.get) != 'kernels'

  def is_full(batch: int) -> bool:
    # Half of what is written and read is there at a time.
    return _KEPT_ARRAYS * size + _at(one.kept, batch) / 2 > chip.memory

  change, over = _first(leaves), _first(is_full)
  then = seconds(one, chip, change or _LARGEST)
  full = batch * (one.flop['bfloat16'] / chip.flops['bfloat16'] + one.flop['float32'] / chip.full)
  times = least['products'], full, least['memory'], least['kernels']
  return (
    batch, *(f'{1e3 * time:.3f}' for time in times), bound,
    f'{batch / least[bound]:,.0f}',
    f'{change:,}, {max(then, key=then.get)}' if change else '-',
    f'{over // 2:,}' if over else f'{_LARGEST:,} or more', f'{1e3 * reduce:.3f}',
  )  # fmt: skip


def _table(title: str, columns: tuple, rows: list[tuple]) -> str:
  lines = (columns, ('---',) * len(columns), *rows)
  return f'{title}\n\n' + ''.join(f'| {" | ".join(map(str, line))} |\n' for line in lines)


def _published() -> str:
  rows = {
    'products in bfloat16, TFLOP/s': lambda chip: f'{chip.flops["bfloat16"] / 1e12:g}',
    "in float32 by JAX's default, TFLOP/s": lambda chip: f'{chip.flops["float32"] / 1e12:g}',
    'in float32 in full, TFLOP/s': lambda chip: f'{chip.full / 1e12:.1f}',
    'memory, TB/s': lambda chip: f'{chip.bandwidth / 1e12:g}',
    'memory, GB': lambda chip: f'{chip.memory / 1e9:g}',
    'cache, MB': lambda chip: f'{chip.cache / 1e6:.0f}',
    'to other devices, each way, GB/s': lambda chip: f'{chip.link / 1e9:g}',
    'assumed: from one kernel to the next, microseconds': lambda chip: f'{1e6 * chip.kernel:g}',
  }
  columns = ('', *(chip.name for chip in _CHIPS))
  cells = [(name, *map(show, _CHIPS)) for name, show in rows.items()]
  return _table('What is published of the devices, and the assumption:', columns, cells)


def tables() -> str:
  """All of them, of the experiments that the flags name."""
  shapes, chips = [], [[] for _ in _CHIPS]
  for experiment in benchmark.CONFIGS.value:
    name, config, shape = benchmark.load(experiment)
    typed, chosen = 'dtype' in config.model, flags.FLAGS.dtype
    for dtype in ((chosen,) if chosen else layers.DTYPES) if typed else ('-',):
      if typed:
        config.model.dtype = dtype
      one, batch = cost(config, shape), config.train.batch_size
      shapes.append((name, dtype, *_shapes_row(one, config.model.glimpses, batch)))
      for chip, rows in zip(_CHIPS, chips, strict=True):
        rows.append((name, dtype, *_chip_row(one, chip, batch)))
  columns = (
    'experiment', 'type', 'batch', 'T', 'parameters, M', 'GFLOP', '% of it in bfloat16',
    'products', 'read anew, MB', 'state, MB', 'over T, MB', 'after the loops, MB',
    'optimizer, MB', 'FLOP a byte',
  )  # fmt: skip
  found = [_published(), _table('What a training step does and moves:', columns, shapes)]
  columns = (
    'experiment', 'type', 'batch', 'products', 'the same, float32 in full', 'memory', 'kernels',
    'bound by', 'images/s', 'other bound from batch', 'fits', f'all-reduce of {_DEVICES}',
  )  # fmt: skip
  for chip, rows in zip(_CHIPS, chips, strict=True):
    found.append(_table(f'Estimates for one {chip.name}, times in ms:', columns, rows))
  return '\n'.join(found)


def main() -> None:
  """Prints the tables, or puts them in a page."""
  if not _PAGE.value:
    print(tables(), end='')
    return
  page = pathlib.Path(_PAGE.value)
  before, begin, rest = page.read_text().partition(_BEGIN)
  _, end, after = rest.partition(_END)
  if not begin or not end:
    raise UserError(f'--page={page} has no place for tables, between {_BEGIN!r} and {_END!r}.')
  page.write_text(f'{before}{begin}\n{tables()}\n{end}{after}')


if __name__ == '__main__':
  app.run(main)
