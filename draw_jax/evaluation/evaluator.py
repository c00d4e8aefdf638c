"""Evaluates a model on every example of a split, on any number of devices.

The noise of a draw is a function of the seed, the example's place in the split and
the draw's number. The figures do not depend on devices, processes, batches or chunks
beyond the rounding of float32. Values of single examples come to the host and are
summed there in float64.

Letters of the shapes: B examples of a batch, S draws of a chunk for each of them; others as
in `draw_jax.attention`.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax.sharding import Mesh, PartitionSpec

from draw_jax.data import Dataset
from draw_jax.devices import sharding, signals
from draw_jax.errors import UserError
from draw_jax.tasks import base


@dataclasses.dataclass(frozen=True)
class Measurement:
  """What was computed, in plain values.

  Attributes:
    results: for each number of glimpses, see `draw_jax.evaluation.report`.
    metrics: the means with the largest of them, by the names of the training metrics.
    examples: how many images they are about.
    draws: for each of these, at least.
    partial: whether the user stopped it before the end.
    speed: draws (images x samples) a second after the first chunk; None if there was no other.
  """

  results: list[dict[str, Any]]
  metrics: dict[str, float]
  examples: int
  draws: int
  partial: bool
  speed: float | None


class Evaluator:
  """One evaluation, to be made of several parameters; it is compiled once.

  Args:
    task: the model.
    dataset: that has the split.
    options: what to compute.
    mesh: of the devices to use.
    glimpses: the numbers of glimpses; at least one.
  """

  def __init__(
    self,
    task: base.Task,
    dataset: Dataset,
    options: base.EvaluationOptions,
    mesh: Mesh,
    glimpses: Sequence[int],
  ):
    self._dataset, self._options, self._mesh = dataset, options, mesh
    self._total = dataset.num_examples(options.split)
    rows = task.rows_that_fit(options, glimpses)
    self._batch_size, self._chunk = plan(options, self._total, rows, mesh.size)
    self._begin = lambda: task.evaluation(options, glimpses, self._chunk, dataset.num_classes)
    # The jitted (params, batch, number of the batch, part) -> values of its examples.
    self.program = _over_devices(mesh, self._begin().on_device, self._batch_size, options.seed)

  def metrics(self, params: base.Params) -> dict[str, float]:
    """The means by the names of the training metrics, finite or not."""
    return self._evaluate(params, interruptible=False)[0].metrics()

  def measure(self, params: base.Params) -> Measurement:
    """All figures; Ctrl-C ends it early with what there is."""
    found, partial, speed = self._evaluate(params, interruptible=True)
    return Measurement(
      found.results(), found.metrics(), found.examples(), found.draws(), partial, speed
    )

  def _evaluate(
    self, params: base.Params, interruptible: bool
  ) -> tuple[base.Evaluation, bool, float | None]:
    """What was evaluated, whether that is a part only, and its speed."""
    work, draws = self._begin(), self._options.draws
    # By way of the host: several processes each have a copy of their own.
    params = jax.device_put(jax.device_get(params), sharding.replicated(self._mesh))
    partial, first, clock = False, None, None
    bar = tqdm.tqdm(
      total=self._total * draws,
      unit=' draws',
      unit_scale=True,
      dynamic_ncols=True,
      # None is for quiet where there is no terminal.
      disable=True if jax.process_index() or not interruptible else None,
    )
    watch = signals.interrupts() if interruptible else contextlib.nullcontext([])
    try:
      with bar, watch as interrupted:
        for batch, part, values in self._passes(params):
          used = min(self._chunk, draws - part * self._chunk)
          work.add(batch, used, values)
          bar.update(int(values['mask'].sum()) * used)
          if clock is None:
            clock, first = time.monotonic(), work.done()
          if interrupted:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
      if not interruptible or not work.done():
        raise
      partial = True
    later = 0 if clock is None else work.done() - first
    speed = later / (time.monotonic() - clock) if later else None
    if not partial and (work.examples() != self._total or work.done() != self._total * draws):
      raise RuntimeError(
        f'{work.examples()} examples with {work.done()} draws evaluated, not {draws} draws '
        f'for each of {self._total}'
      )
    return work, partial, speed

  def _passes(self, params: base.Params) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """Number of the batch, part and values on the host, for every batch of every part.

    A part covers the whole split before the next begins: a split may be sorted by
    class, so half of the draws for all images tell more than all draws for half.
    """
    processes = {'process_index': jax.process_index(), 'process_count': jax.process_count()}
    pending = None
    for part in range(math.ceil(self._options.draws / self._chunk)):
      batches = self._dataset.eval_batches(self._options.split, self._batch_size, **processes)
      for number, batch in enumerate(sharding.prefetch(self._mesh, batches)):
        values = self.program(params, batch, np.int32(number), np.int32(part))
        # The device is busy with this batch while the host takes in the last one.
        if pending:
          yield *pending[:2], jax.device_get(pending[2])
        pending = number, part, values
    yield *pending[:2], jax.device_get(pending[2])


def as_in_training(
  options: base.EvaluationOptions,
  batch_size: int,
  task: base.Task,
  glimpses: Sequence[int],
  mesh: Mesh,
) -> base.EvaluationOptions:
  """The options with training's batch size in place of none, where it fits these devices.

  Values of an example are then the same to the last bit: products round in another way where
  they are cut in another way.
  """
  like = dataclasses.replace(options, batch_size=options.batch_size or batch_size)
  fits = batch_size % mesh.size == 0 and batch_size <= mesh.size * task.rows_that_fit(
    like, glimpses
  )
  return like if options.batch_size or fits else options


def plan(options: base.EvaluationOptions, total: int, rows: int, devices: int) -> tuple[int, int]:
  """Images at a time on all devices, and draws of a chunk for each, with `rows` to a device."""
  if options.batch_size is None:
    local = min(math.ceil(base.EVALUATION_BATCH / devices), math.ceil(total / devices), rows)
  elif options.batch_size % devices:
    raise UserError(f'--batch_size={options.batch_size} is no multiple of {devices} devices.')
  else:
    local = options.batch_size // devices
  chunks = math.ceil(options.draws / max(1, rows // local))
  return local * devices, math.ceil(options.draws / chunks)


def _over_devices(mesh: Mesh, function: Callable, batch_size: int, seed: int) -> Callable:
  """The jitted (params, batch, number of the batch, part) -> values of its examples.

  Each device works on its own examples; all processes get the values of all.
  """

  def run(params, batch, number, part):
    places = number * batch_size + jnp.arange(batch_size)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), places)
    everywhere, parts = PartitionSpec(), PartitionSpec(sharding.AXIS)
    spread = jax.shard_map(
      function,
      mesh=mesh,
      in_specs=(everywhere, parts, parts, everywhere),
      out_specs=parts,
      check_vma=False,
    )
    return {**spread(params, batch, keys, part), 'mask': batch['mask']}

  return jax.jit(run, out_shardings=sharding.replicated(mesh))
