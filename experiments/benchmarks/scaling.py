r"""Throughput of several processes of one core each, beside one process with all of these cores.

    python experiments/benchmarks/scaling.py --processes=2

Both train the experiment mnist with the same batch of random images, in turns. Needs Linux, where
a process can be tied to cores.
"""

import os
import socket
import statistics
import subprocess
import sys
import time

import jax
import numpy as np
from absl import flags

from draw_jax import config as config_lib
from draw_jax.cli import app
from draw_jax.devices import sharding
from draw_jax.errors import UserError
from draw_jax.training import setup

_PROCESSES = flags.DEFINE_integer('processes', 2, 'And as many cores.', lower_bound=2)
_STEPS = flags.DEFINE_integer('steps', 10, 'That are timed, in each turn.', lower_bound=1)
_TURNS = flags.DEFINE_integer('turns', 3, 'Of each kind.', lower_bound=1)
_WORKER = flags.DEFINE_string('worker', None, 'For internal use: cores of this process.')
app.define_process_flags()


def main() -> None:
  """Prints images a second of both, and their ratio."""
  if _WORKER.value:
    _work()
    return
  num = _PROCESSES.value
  mine = sorted(os.sched_getaffinity(0))[:num] if hasattr(os, 'sched_getaffinity') else []
  if len(mine) < num:
    raise UserError(f'--processes={num}: only {len(mine)} cores can be used here.')
  size = _config().train.batch_size
  if size % num:
    raise UserError(f'--processes={num}: the batch of {size} does not divide among them.')
  together, apart = [], []
  for _ in range(_TURNS.value):
    together.append(_throughput([','.join(map(str, mine))]))
    apart.append(_throughput([str(core) for core in mine]))
    print(f'one process {together[-1]:.0f} images/s, {num} processes {apart[-1]:.0f}', flush=True)
  one, several = statistics.median(together), statistics.median(apart)
  print(f'median: {one:.0f} and {several:.0f} images/s, a ratio of {several / one:.2f}')


def _config():
  return config_lib.from_file('mnist')


def _throughput(places: list[str]) -> float:
  """Images a second of a process on each of these sets of cores."""
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{listener.getsockname()[1]}'
  command = [sys.executable, __file__, f'--steps={_STEPS.value}']
  joined = [f'--coordinator_address={address}', f'--num_processes={len(places)}']
  started = [
    subprocess.Popen(
      [*command, f'--worker={place}', *(len(places) > 1) * [*joined, f'--process_id={i}']],
      stdout=subprocess.PIPE,
      text=True,
    )
    for i, place in enumerate(places)
  ]
  printed = [process.communicate()[0] for process in started]
  if any(process.returncode for process in started):
    raise UserError('a process failed; what it said is above.')
  return float(printed[0].split()[-1])  # Gloo speaks before.


def _work() -> None:
  """Trains on the cores given, and prints images a second."""
  os.sched_setaffinity(0, {int(core) for core in _WORKER.value.split(',')})
  config = _config()
  size, shape = config.train.batch_size, (28, 28, 1)
  app.start_devices([size])
  prepared = setup.make(config, shape)
  state = prepared.init()(np.full(shape, 0.2, np.float32))
  train_step = prepared.train_step()
  images = np.random.default_rng(0).integers(0, 256, (size, *shape), np.uint8)
  batch = sharding.put(prepared.mesh, {'image': np.array_split(images, jax.process_count())[0]})
  for repetition in range(_STEPS.value + 1):
    state, _ = jax.block_until_ready(train_step(state, batch))
    if repetition == 0:  # That one was compiled.
      begin = time.perf_counter()
  print(size * _STEPS.value / (time.perf_counter() - begin))


if __name__ == '__main__':
  app.run(main)
