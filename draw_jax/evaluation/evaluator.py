"""Evaluates a trained model on every example of a split, on any number of devices.

The noise of a draw is a function of the seed, the example's place in the split and
the draw's number. The figures do not depend on devices, processes, batches or chunks
beyond the rounding of float32. Values of single examples come to the host and are
summed there in float64.

Letters of the shapes: B examples of a batch, S draws of a chunk for each of them, T
time-steps, L numbers of time-steps asked for; others as in `draw_jax.attention`.
"""

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

from draw_jax import data, distributions
from draw_jax.devices import sharding
from draw_jax.errors import UserError
from draw_jax.models.convnet import Convolutional
from draw_jax.pretrained import model_file
from draw_jax.tasks import bounds, error_rates
from draw_jax.tasks import registry as tasks
from draw_jax.training import checkpoint, signals

# Images at a time, unless the user or the memory says otherwise.
BATCH = 100


@dataclasses.dataclass(frozen=True)
class Options:
  """What to compute, and how.

  Attributes:
    split: of the dataset.
    importance_samples: numbers of samples of importance-weighted bounds; the largest is K.
    repeats: R. Each image gets R x K draws; a bound with fewer samples than K uses as
      many of them as it divides.
    latents: also give the KL of each latent at each step.
    seed: of the draws.
    batch_size: images at a time on all devices together; None to choose.
    memory: MiB for the draws that one device works on at a time.
  """

  split: str = 'test'
  importance_samples: tuple[int, ...] = ()
  repeats: int = 1
  latents: bool = False
  seed: int = 0
  batch_size: int | None = None
  memory: int = 128

  def __post_init__(self):
    counts = {'repeats': self.repeats, 'memory': self.memory, 'batch_size': self.batch_size}
    for name, value in counts.items():
      if value is not None and value < 1:
        raise UserError(f'--{name}={value} must be at least 1.')
    if not 0 <= self.seed < 2**32:
      raise UserError(f'--seed={self.seed} must be from 0 to 2**32 - 1.')

  @property
  def draws(self) -> int:
    """R x K, for each image."""
    return self.repeats * max(self.importance_samples, default=1)


@dataclasses.dataclass(frozen=True)
class Measurement:
  """What was computed, in plain values.

  Attributes:
    results: for each number of time-steps, see `draw_jax.evaluation.report`.
    examples: how many images they are about.
    draws: for each of these, at least.
    partial: whether the user stopped it before the end.
    speed: draws (images x samples) a second after the first chunk; None if there was no other.
  """

  results: list[dict[str, Any]]
  examples: int
  draws: int
  partial: bool
  speed: float | None


def open_data(
  config, binarization: str, image_shape: tuple[int, int, int], data_dir: str | None = None
) -> data.Dataset:
  """The dataset of a trained model, after a check that it fits.

  Args:
    config: of the run.
    binarization: of the data it was trained on; the config may leave it to the dataset.
    image_shape: (H, W, C) of the model.
    data_dir: where prepared datasets live.
  """
  dataset = data.open_dataset(data_dir=data_dir, **{**config.data, 'binarization': binarization})
  if dataset.image_shape != image_shape:
    raise UserError(
      f'pictures of {dataset.name} are {_by(dataset.image_shape)}, the model was trained on '
      f'{_by(image_shape)}: give the data it was trained on.'
    )
  return dataset


def check_held_out(loaded: checkpoint.Loaded, dataset: data.Dataset, split: str) -> None:
  """Refuses a split that may hold pictures the model was trained on."""
  now = dataset.num_examples('train')
  if split != 'test' and loaded.num_train not in (None, now):
    raise UserError(
      f'the model was trained on {loaded.num_train:,} pictures, and {dataset.name} has {now:,} '
      f'now: some of {split} may be among those. Give the data it was trained on.'
    )


def open_subject(
  loaded: checkpoint.Loaded, data_dir: str | None = None
) -> tuple[tasks.Task, data.Dataset]:
  """The task and the dataset of a trained model, after checks that all three fit."""
  dataset = open_data(loaded.config, loaded.binarization, loaded.image_shape, data_dir)
  task = tasks.create(loaded.config.model, loaded.image_shape, loaded.num_classes)
  picture = jax.ShapeDtypeStruct(loaded.image_shape, jnp.float32)
  expected = jax.eval_shape(task.init, jax.random.key(0), picture)
  wrong = model_file.difference(expected, loaded.params)
  if wrong:
    raise UserError(
      f'the checkpoint of step {loaded.step} is of another model than config.json describes: '
      f'{wrong}.'
    )
  return task, dataset


def measure(
  task: tasks.Task,
  params,
  dataset: data.Dataset,
  options: Options,
  mesh: Mesh,
  steps: Sequence[int],
) -> Measurement:
  """Evaluates every example of a split; Ctrl-C ends it early with what there is.

  Args:
    task: with DRAW, or one that can `predict(params, batch, noise)`: logits [B, classes].
    params: of its model.
    dataset: that has the split.
    options: what to compute.
    mesh: of the devices to use.
    steps: the numbers of time-steps; at least one.
  """
  total = dataset.num_examples(options.split)
  if isinstance(task, tasks.Draw):
    kind, rows = _Bounds, _rows_that_fit(task.model, steps, options.memory)
  elif hasattr(task, 'predict'):
    kind, rows = _Predictions, options.batch_size or BATCH
    if options.draws > 1:
      raise UserError('a classifier has no bounds: leave out --importance_samples and --repeats.')
    if options.latents:
      raise UserError('a classifier has no latents: leave out --kl_latents.')
    if isinstance(getattr(task, 'model', None), Convolutional) and tuple(steps) != (1,):
      raise UserError('a convolutional network has no glimpses: leave out --steps.')
  else:
    raise UserError(f'there is no evaluation for {type(task).__name__}.')
  batch_size, chunk = _plan(options, total, rows, mesh.size)
  work = kind(task, dataset, options, tuple(steps), chunk)
  # By way of the host: several processes each have a copy of their own.
  params = jax.device_put(jax.device_get(params), sharding.replicated(mesh))
  run = _over_devices(mesh, work.on_device, batch_size, options.seed)
  chunks = math.ceil(options.draws / chunk)
  partial, first, clock = False, None, None
  bar = tqdm.tqdm(
    total=total * options.draws,
    unit=' draws',
    unit_scale=True,
    dynamic_ncols=True,
    # None is for quiet where there is no terminal.
    disable=True if jax.process_index() else None,
  )
  try:
    with bar, signals.interrupts() as interrupted:
      for batch, part, values in _passes(
        run, params, dataset, options.split, mesh, batch_size, chunks
      ):
        used = min(chunk, options.draws - part * chunk)
        work.add(batch, used, values)
        bar.update(int(values['mask'].sum()) * used)
        if clock is None:
          clock, first = time.monotonic(), work.done()
        if interrupted:
          raise KeyboardInterrupt
  except KeyboardInterrupt:
    if not work.done():
      raise
    partial = True
  later = 0 if clock is None else work.done() - first
  speed = later / (time.monotonic() - clock) if later else None
  if not partial and (work.examples() != total or work.done() != total * options.draws):
    raise RuntimeError(
      f'{work.examples()} examples with {work.done()} draws evaluated, not {options.draws} draws '
      f'for each of {total}'
    )
  return Measurement(work.results(), work.examples(), work.draws(), partial, speed)


class _Bounds:
  """The bounds of DRAW: what each device computes, and what the host keeps of it."""

  def __init__(self, task: tasks.Draw, dataset, options: Options, steps, chunk: int):
    self._task, self._steps, self._chunk = task, steps, chunk
    self._draws, self._latents = options.draws, options.latents
    self._image_shape = dataset.image_shape
    self._empty = bounds.Bounds(
      importance=tuple(bounds.ImportanceBound(k) for k in sorted({*options.importance_samples}))
    )
    # By batch: the bounds with each number of steps, and the sums of 'kl_latents' [T, Z].
    # Both are replaced at once, so that Ctrl-C finds them in step.
    self._kept: dict[int, tuple[list[bounds.Bounds], np.ndarray | float]] = {}

  def on_device(self, params, batch, keys, part):
    """Terms of the examples [B, ...] with the draws of one chunk."""
    num, model = len(keys), self._task.model
    draws = part * self._chunk + jnp.arange(self._chunk)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    keys = jax.vmap(fold, (0, None))(keys, draws).reshape(-1)
    noise = _noise(self._task, keys, max(self._steps))
    x = jnp.repeat(data.to_device_float(batch['image']), self._chunk, 0)
    # A pass with fewer steps is the beginning of one with more: all come from the longest.
    several = len(self._steps) > 1
    terms = model.apply({'params': params}, x, noise, method='infer', trace=several)
    reconstruction = terms.reconstruction[None]
    if several:
      canvases = terms.trace.canvas[np.array(self._steps) - 1]
      log_prob = distributions.OUTPUTS[model.output].log_prob
      reconstruction = -log_prob(canvases, x).sum((-3, -2, -1))

    def by_example(a):  # [., B S] -> [B, ., S]
      return jnp.moveaxis(a.reshape(len(a), num, self._chunk), 1, 0)

    values = {
      'reconstruction': by_example(reconstruction),
      'kl': by_example(terms.kl),
      'log_ratio': by_example(terms.log_ratio),
    }
    if self._latents:
      used = (draws < self._draws)[:, None]
      kl = terms.kl_latents.reshape(len(terms.kl), num, self._chunk, -1)
      values['kl_latents'] = jnp.moveaxis(jnp.where(used, kl, 0).sum(2), 1, 0)
    return values

  def add(self, batch: int, used: int, values) -> None:
    """Takes in the first `used` draws of a chunk."""
    mask = values['mask']
    reconstruction, kl, log_ratio = (
      values[name][mask][..., :used] for name in ('reconstruction', 'kl', 'log_ratio')
    )
    before, sums = self._kept.get(batch, ([self._empty] * len(self._steps), 0.0))
    after = [
      one.add(reconstruction[:, i], kl[:, :t], log_ratio[:, :t])
      for i, (one, t) in enumerate(zip(before, self._steps, strict=True))
    ]
    if self._latents:
      sums = sums + values['kl_latents'][mask].sum(0, dtype=np.float64)
    self._kept[batch] = after, sums

  def examples(self) -> int:
    return sum(len(kept[0].bound.mean) for kept, _ in self._kept.values())

  def draws(self) -> int:
    return min(kept[0].bound.count for kept, _ in self._kept.values())

  def done(self) -> int:
    return sum(kept[0].bound.count * len(kept[0].bound.mean) for kept, _ in self._kept.values())

  def results(self) -> list[dict[str, Any]]:
    return [self._result(i, t) for i, t in enumerate(self._steps)]

  def _result(self, i: int, steps: int) -> dict[str, Any]:
    rows = [kept[i] for kept, _ in self._kept.values()]
    bad = sum(int((~np.isfinite(row.bound.mean)).sum()) for row in rows)
    if bad:
      raise UserError(
        f'the bound of {bad} images is not a finite number: choose another --checkpoint.'
      )
    result = {'steps': steps}
    for name in ('bound', 'reconstruction', 'kl'):
      result[name] = self._estimate([getattr(row, name) for row in rows])
    kl_steps = np.concatenate([row.kl_steps.mean for row in rows])
    result['kl_steps'] = kl_steps.mean(0).tolist()
    if self._latents:
      means = sum(sums / kept[i].bound.count for kept, sums in self._kept.values())
      result['kl_latents'] = (means[:steps] / self.examples()).tolist()
    result['importance'] = []
    for parts in zip(*(row.importance for row in rows), strict=True):
      groups = min(part.groups.count for part in parts)
      if groups:  # Not all are whole where the user stopped early.
        about = {'samples': parts[0].samples, 'groups': groups}
        result['importance'].append(about | self._estimate([part.groups for part in parts]))
    return result

  def _estimate(self, parts: list[bounds.Moments]) -> dict[str, float | None]:
    numbers = bounds.estimate(parts)
    return numbers | {'bits_per_dim': bounds.bits_per_dim(numbers['mean'], self._image_shape)}


class _Predictions:
  """The classes that a classifier chooses, with each number of time-steps."""

  def __init__(self, task, dataset, options: Options, steps, chunk: int):
    del options, chunk  # One draw an example, whatever they say of bounds.
    self._task, self._steps, self._num_classes = task, steps, dataset.num_classes
    self._chosen: dict[int, tuple[np.ndarray, np.ndarray]] = {}

  def on_device(self, params, batch, keys, part):
    """Labels [B] and predictions [B, L]."""
    del part
    logits = [
      self._task.predict(params, batch, _noise(self._task, keys, steps)) for steps in self._steps
    ]
    return {
      'label': batch['label'],
      'prediction': jnp.stack([one.argmax(-1) for one in logits], -1),
    }

  def add(self, batch: int, used: int, values) -> None:
    del used
    mask = values['mask']
    self._chosen[batch] = values['label'][mask], values['prediction'][mask]

  def examples(self) -> int:
    return sum(len(labels) for labels, _ in self._chosen.values())

  def draws(self) -> int:
    return 1

  done = examples

  def results(self) -> list[dict[str, Any]]:
    labels, predictions = map(np.concatenate, zip(*self._chosen.values(), strict=True))
    return [
      {'steps': t} | error_rates.summary(labels, predictions[:, i], self._num_classes)
      for i, t in enumerate(self._steps)
    ]


def _noise(task: tasks.Task, keys, steps: int):
  """The noise of each of N draws from a key of its own, [T, N, ...]."""
  noise = jax.vmap(lambda key: task.noise(key, 1, steps), out_axes=1)(keys)
  return jax.tree.map(lambda a: a.squeeze(2), noise)


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


def _passes(
  run: Callable, params, dataset: data.Dataset, split: str, mesh: Mesh, batch_size: int, parts: int
) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
  """Number of the batch, part and values on the host, for every batch of every part.

  A part covers the whole split before the next begins: a split may be sorted by
  class, so half of the draws for all images tell more than all draws for half.
  """
  processes = {'process_index': jax.process_index(), 'process_count': jax.process_count()}
  pending = None
  for part in range(parts):
    batches = dataset.eval_batches(split, batch_size, **processes)
    for number, batch in enumerate(sharding.prefetch(mesh, batches)):
      values = run(params, batch, np.int32(number), np.int32(part))
      # The device is busy with this batch while the host takes in the last one.
      if pending:
        yield *pending[:2], jax.device_get(pending[2])
      pending = number, part, values
  yield *pending[:2], jax.device_get(pending[2])


def _plan(options: Options, total: int, rows: int, devices: int) -> tuple[int, int]:
  """Images at a time on all devices, and draws of a chunk for each, with `rows` to a device."""
  if options.batch_size is None:
    local = min(math.ceil(BATCH / devices), math.ceil(total / devices), rows)
  elif options.batch_size % devices:
    raise UserError(f'--batch_size={options.batch_size} is no multiple of {devices} devices.')
  else:
    local = options.batch_size // devices
  chunks = math.ceil(options.draws / max(1, rows // local))
  return local * devices, math.ceil(options.draws / chunks)


def _rows_that_fit(model, steps: Sequence[int], memory: int) -> int:
  """How many draws a device can work on at a time in so many MiB, roughly."""
  pixels = math.prod(model.image_shape)
  traced = max(steps) if len(steps) > 1 else 0
  numbers = 8 * max(steps) * model.latent + (16 + traced) * pixels + 24 * model.hidden
  return max(1, memory * 2**20 // (4 * numbers))


def _by(shape: Sequence[int]) -> str:
  return ' x '.join(map(str, shape)) or 'a number'
