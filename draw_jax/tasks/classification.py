"""Classification; see `base.Task`.

The metric is 'error' in percent: 100 for an image whose class is not the one
with the highest score, 0 for others.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from draw_jax import attention
from draw_jax.errors import UserError
from draw_jax.tasks import base, error_rates, tables

_GREEN = (0.0, 0.8, 0.25)


def scores(logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
  """What scores [B, K] and labels [B] say of each example, [B] each.

  Returns:
    'error' in percent, and 'cross_entropy' in nats.
  """
  log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)[:, 0]
  return {'error': 100.0 * (logits.argmax(-1) != labels), 'cross_entropy': -log_prob}


def framed(images: jax.Array, window: attention.Window, size: int) -> jax.Array:
  """Images with green frames where the outermost filters of windows stand.

  Args:
    images: [..., H, W, C] in [0, 1]; one or three channels, others are shown as
      the gray of their mean.
    window: each field [...].
    size: N of the window's grid.

  Returns:
    [..., H, W, 3].
  """
  height, width, channels = images.shape[-3:]
  if channels != 3:
    images = jnp.repeat(images.mean(-1, keepdims=True), 3, -1)
  half = (size - 1) / 2 * window.stride[..., None]

  def outside(center, length):  # in pixels, negative inside
    # Filters outside the image act on its edge: so the frame is moved there.
    low, high = (jnp.clip(center[..., None] + side, 0, length - 1) for side in (-half, half))
    return jnp.abs(jnp.arange(length) - (low + high) / 2) - (high - low) / 2

  y, x = outside(window.center_y, height), outside(window.center_x, width)
  distance = jnp.abs(jnp.maximum(y[..., :, None], x[..., None, :]))
  return jnp.where(distance[..., None] <= 0.5, jnp.array(_GREEN), images)


@dataclasses.dataclass(frozen=True)
class Classification(base.Task):
  """Classification with a network that sees the image once; the loss is the cross-entropy."""

  kind: ClassVar[str] = 'classification'
  metric: ClassVar[str] = 'error'

  def init(self, key: jax.Array, mean_image: jax.Array) -> base.Params:
    """Initial parameters; the mean image does not matter."""
    return self.model.init(key, jnp.asarray(mean_image)[None], glimpses=1)['params']

  def noise(self, key: jax.Array, num: int, glimpses: int) -> jax.Array:
    """[T, B] zeros: nothing is random; only T is told by it."""
    del key
    return jnp.zeros((glimpses, num))

  def loss(self, params, batch: base.Batch, noise, step: jax.Array | None = None):
    """The cross-entropy [B]; it and the error [B]."""
    del step
    _, metrics = self.judge(params, batch, noise)
    return metrics['cross_entropy'], metrics

  def judge(self, params, batch: base.Batch, noise) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The scores of the classes, [B, K], and the metrics of an evaluation, [B] each."""
    logits = self.predict(params, batch, noise)
    return logits, scores(logits, batch['label'])

  def predict(self, params, batch: base.Batch, noise) -> jax.Array:
    """The scores of the classes, [B, K]."""
    x = base.to_device_float(batch['image'])
    return self.model.apply({'params': params}, x, glimpses=len(noise))[0]

  def evaluation(
    self,
    options: base.EvaluationOptions,
    glimpses: Sequence[int],
    chunk: int,
    num_classes: int | None,
  ) -> 'ErrorEvaluation':
    """How often it errs."""
    del chunk
    if options.draws > 1:
      raise UserError('a classifier has no bounds: leave out --importance_samples and --repeats.')
    if options.latents:
      raise UserError('a classifier has no latents: leave out --kl_latents.')
    self._check_glimpses(glimpses)
    return ErrorEvaluation(self, tuple(glimpses), num_classes)

  def table(self, result: Mapping[str, Any]) -> base.Table:
    """The errors; nothing in them is drawn at random."""
    return base.Table([], [tables.of_errors(row) for row in result['results']], [])

  def metric_label(self, binarization: str) -> str:
    del binarization
    return 'error (%)'

  def check_classifies(self) -> None:
    """It does."""

  def check_looks(self) -> None:
    raise UserError(f'a model {self.name!r} takes no glimpses: it sees the whole image at once.')

  def _check_glimpses(self, glimpses: Sequence[int]) -> None:
    if tuple(glimpses) != (1,):
      raise UserError(f'a model {self.name!r} takes no glimpses: leave out --glimpses.')


@dataclasses.dataclass(frozen=True)
class GlimpseClassification(Classification):
  """Classification with a network that takes glimpses and can be differentiated as a whole."""

  def images(self, params, batch: base.Batch, key: jax.Array, glimpses: int) -> dict:
    """Each image T times, with a frame where each glimpse was taken; the glimpses."""
    del key
    x = base.to_device_float(batch['image'])
    _, trace = self.model.apply({'params': params}, x, glimpses=glimpses, trace=True)
    windows = framed(jnp.broadcast_to(x, (glimpses, *x.shape)), trace.window, self.model.read_size)
    return {'windows': _in_rows(windows), 'glimpses': _in_rows(trace.glimpse)}

  def check_looks(self) -> None:
    """It does."""

  def _check_glimpses(self, glimpses: Sequence[int]) -> None:
    """It takes any number of them."""


@dataclasses.dataclass(frozen=True)
class ReinforcedClassification(GlimpseClassification):
  """Classification with RAM, whose points to look at are learned by REINFORCE.

  The reward is 1 for the right class and 0 for others. The loss is the sum of
  - the cross-entropy in nats, which trains all but what the next two train,
  - minus the log-density of every point drawn, times what the reward exceeds the
    baseline by, which trains the location network,
  - the mean squared error of the baseline, which trains the baseline.
  Training draws the points. Evaluation looks where their means are: it needs no
  exploration, and its figures have no noise.
  """

  def noise(self, key: jax.Array, num: int, glimpses: int) -> jax.Array:
    """[T, B, 2]."""
    return self.model.noise(key, num, glimpses)

  def loss(self, params, batch: base.Batch, noise, step: jax.Array | None = None):
    """The loss [B]; the error, the cross-entropy and the squared error of the baseline [B]."""
    noise = noise if step is not None else jnp.zeros_like(noise)
    terms, excess, metrics = self._explore(params, batch, noise)
    drawn = -(jax.lax.stop_gradient(excess) * terms.log_prob).sum(0)
    return metrics['cross_entropy'] + drawn + metrics['baseline_error'], metrics

  def judge(self, params, batch: base.Batch, noise) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The scores of the classes, [B, K], and the metrics without exploration, [B] each."""
    terms, _, metrics = self._explore(params, batch, jnp.zeros_like(noise))
    return terms.logits, metrics

  def _explore(self, params, batch: base.Batch, noise):
    """What the model gives, what the reward exceeds the baseline by [T, B], and the metrics."""
    x = base.to_device_float(batch['image'])
    terms = self.model.apply({'params': params}, x, noise, method='explore')
    metrics = scores(terms.logits, batch['label'])
    reward = (metrics['error'] == 0).astype(terms.baseline.dtype)
    excess = reward - terms.baseline
    metrics['baseline_error'] = jnp.square(excess).mean(0)
    return terms, excess, metrics


class ErrorEvaluation:
  """The classes that a classifier chooses, with several numbers of glimpses."""

  def __init__(self, task: Classification, glimpses: tuple[int, ...], num_classes: int):
    self._task, self._glimpses, self._num_classes = task, glimpses, num_classes
    # By batch: labels [B], predictions and metrics [B, L].
    self._kept: dict[int, dict[str, np.ndarray]] = {}

  def on_device(self, params, batch: base.Batch, keys: jax.Array, part: jax.Array) -> dict:
    """Labels [B], predictions and metrics [B, L]."""
    del part
    judged = [
      self._task.judge(params, batch, base.noise_of_each(self._task, keys, glimpses))
      for glimpses in self._glimpses
    ]
    rows = [{'prediction': logits.argmax(-1), **metrics} for logits, metrics in judged]
    stacked = jax.tree.map(lambda *values: jnp.stack(values, -1), *rows)
    return {'label': batch['label'], **stacked}

  def add(self, batch: int, used: int, values: Mapping[str, np.ndarray]) -> None:
    del used
    self._kept[batch] = {name: value[values['mask']] for name, value in values.items()}

  def examples(self) -> int:
    return sum(len(values['label']) for values in self._kept.values())

  def draws(self) -> int:
    return 1

  def done(self) -> int:
    return self.examples()

  def results(self) -> list[dict[str, Any]]:
    found = self._values()
    labels, predictions = found['label'], found['prediction']
    return [
      {'glimpses': glimpses}
      | error_rates.summary(labels, predictions[:, i], self._num_classes)
      | {'cross_entropy': math.fsum(found['cross_entropy'][:, i]) / len(labels)}
      for i, glimpses in enumerate(self._glimpses)
    ]

  def metrics(self) -> dict[str, float]:
    """The error in percent, the cross-entropy in nats, and what else the task's loss has."""
    found = self._values()
    most = max(range(len(self._glimpses)), key=lambda i: self._glimpses[i])
    names = found.keys() - {'label', 'prediction', 'mask'}
    return {name: math.fsum(found[name][:, most]) / len(found['label']) for name in sorted(names)}

  def _values(self) -> dict[str, np.ndarray]:
    """Of all examples."""
    rows = list(self._kept.values())
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _in_rows(images: jax.Array) -> jax.Array:
  """[T, B, ...] to [B T, ...]: the steps of an example one after the other."""
  return jnp.moveaxis(images, 0, 1).reshape(-1, *images.shape[2:])
