r"""Memory and time of a training step with each way of keeping values for the backward pass.

    python experiments/benchmarks/memory.py
    python experiments/benchmarks/memory.py --cases=256,256,3,64 --notime

A case is H,W,C,T; the network is that of the experiment svhn. The memory is what XLA plans for
temporary values on one device. Times are medians of steps taken in turns, as ratios to keeping all.
"""

import statistics
import time

import jax
import numpy as np
from absl import flags

from draw_jax import config as config_lib
from draw_jax.cli import app
from draw_jax.devices import cores, sharding
from draw_jax.errors import UserError
from draw_jax.models import recurrence
from draw_jax.training import setup

_CASES = flags.DEFINE_multi_string(
  'cases',
  ['54,54,3,64', '54,54,3,256', '128,128,3,64', '256,256,3,64'],
  'H,W,C of the images, and T.',
)
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 20, 'Images of a step.', lower_bound=1)
_TIME = flags.DEFINE_bool('time', True, 'Also take steps; otherwise they are only compiled.')
_REPETITIONS = flags.DEFINE_integer('repetitions', 5, 'Steps of each kind.', lower_bound=1)


def main() -> None:
  """Prints a table with a row for each case."""
  cases = list(map(_case, _CASES.value))
  if _BATCH_SIZE.value % jax.device_count():
    raise UserError(
      f'--batch_size={_BATCH_SIZE.value} is no multiple of {jax.device_count()} devices.'
    )
  cores.keep_memory()
  print(f'{jax.device_count()} x {jax.devices()[0].device_kind}, batch {_BATCH_SIZE.value}')
  print(f'{"MB (time)":<18}' + ''.join(f'{name:>18}' for name in recurrence.REMAT))
  for *shape, glimpses in cases:
    compiled = {name: _compile(tuple(shape), glimpses, name) for name in recurrence.REMAT}
    cells = [f'{c.memory_analysis().temp_size_in_bytes / 1e6:.0f}' for c, *_ in compiled.values()]
    if _TIME.value:
      seconds = _seconds(compiled)
      ratios = [value / seconds['none'] for value in seconds.values()]
      cells = [f'{cell} ({ratio:.2f})' for cell, ratio in zip(cells, ratios, strict=True)]
    label = f'{shape[0]} x {shape[1]} x {shape[2]} T {glimpses}'
    print(f'{label:<18}' + ''.join(f'{cell:>18}' for cell in cells), flush=True)


def _case(text: str) -> tuple[int, ...]:
  numbers = text.split(',')
  if len(numbers) != 4 or not all(n.isdecimal() and int(n) for n in numbers):
    raise UserError(f'--cases={text}: give H,W,C,T such as 128,128,3,64.')
  return tuple(map(int, numbers))


def _compile(image_shape: tuple[int, int, int], glimpses: int, remat: str):
  """A compiled training step, a state and a batch for it."""
  config = config_lib.from_file('svhn')
  config.model.remat = remat
  config.model.glimpses = glimpses
  prepared = setup.make(config, image_shape)
  state = prepared.init()(np.full(image_shape, 0.5, np.float32))
  images = np.random.default_rng(0).integers(0, 256, (_BATCH_SIZE.value, *image_shape), np.uint8)
  batch = jax.device_put({'image': images}, sharding.by_batch(prepared.mesh))
  return prepared.train_step().lower(state, batch).compile(), state, batch


def _seconds(compiled: dict) -> dict[str, float]:
  """The median time of a step with each policy."""
  times = {name: [] for name in compiled}
  states = {name: state for name, (_, state, _) in compiled.items()}
  for _ in range(_REPETITIONS.value + 1):
    for name, (run, _, batch) in compiled.items():
      start = time.perf_counter()
      states[name], _ = jax.block_until_ready(run(states[name], batch))
      times[name].append(time.perf_counter() - start)
  return {name: statistics.median(values[1:]) for name, values in times.items()}


if __name__ == '__main__':
  app.run(main)
