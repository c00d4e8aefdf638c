"""Classifiers as the training loop and the evaluation see them; see `tasks.Task`.

The metric is 'error' in percent: 100 for a picture whose class is not the one
with the highest score, 0 for others.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp

from draw_jax import attention, data
from draw_jax.models.convnet import Convolutional
from draw_jax.models.differentiable_ram import DifferentiableRAM
from draw_jax.models.ram import RAM

_GREEN = (0.0, 0.8, 0.25)


def scores(logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
  """What scores [B, K] and labels [B] say of each example, [B] each.

  Returns:
    'error' in percent, and 'cross_entropy' in nats.
  """
  log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)[:, 0]
  return {'error': 100.0 * (logits.argmax(-1) != labels), 'cross_entropy': -log_prob}


def framed(images: jax.Array, window: attention.Window, size: int) -> jax.Array:
  """Pictures with green frames where the outermost filters of windows stand.

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
    # Filters outside the picture act on its edge: so the frame is moved there.
    low, high = (jnp.clip(center[..., None] + side, 0, length - 1) for side in (-half, half))
    return jnp.abs(jnp.arange(length) - (low + high) / 2) - (high - low) / 2

  y, x = outside(window.center_y, height), outside(window.center_x, width)
  distance = jnp.abs(jnp.maximum(y[..., :, None], x[..., None, :]))
  return jnp.where(distance[..., None] <= 0.5, jnp.array(_GREEN), images)


@dataclasses.dataclass(frozen=True)
class Classification:
  """Classification with a network that can be differentiated as a whole.

  The loss is the cross-entropy in nats.
  """

  model: DifferentiableRAM | Convolutional
  metric: ClassVar[str] = 'error'

  def init(self, key: jax.Array, mean_image):
    """Parameters to start from; the mean picture does not matter."""
    return self.model.init(key, jnp.asarray(mean_image)[None], steps=1)['params']

  def noise(self, key: jax.Array, num: int, steps: int) -> jax.Array:
    """[T, B] zeros: nothing is random; only T is told by it."""
    del key
    return jnp.zeros((steps, num))

  def loss(self, params, batch: Mapping[str, jax.Array], noise, step: jax.Array | None = None):
    """The cross-entropy [B]; it and the error [B]."""
    del step
    metrics = scores(self.predict(params, batch, noise), batch['label'])
    return metrics['cross_entropy'], metrics

  def predict(self, params, batch: Mapping[str, jax.Array], noise) -> jax.Array:
    """The scores of the classes, [B, K]."""
    x = data.to_device_float(batch['image'])
    return self.model.apply({'params': params}, x, steps=len(noise))[0]

  def pictures(self, params, batch: Mapping[str, jax.Array], key: jax.Array, steps: int):
    """Each picture T times, with a frame where each glimpse was taken; the glimpses."""
    del key
    x = data.to_device_float(batch['image'])
    _, trace = self.model.apply({'params': params}, x, steps=steps, trace=True)
    if trace is None:
      return {}
    windows = framed(jnp.broadcast_to(x, (steps, *x.shape)), trace.window, self.model.read_size)
    return {'windows': _in_rows(windows), 'glimpses': _in_rows(trace.glimpse)}


@dataclasses.dataclass(frozen=True)
class Reinforced(Classification):
  """Classification with RAM, whose points to look at are learned by REINFORCE.

  The reward is 1 for the right class and 0 for others. The loss is the sum of
  - the cross-entropy in nats, which trains all but what the next two train,
  - minus the log-density of every point drawn, times what the reward exceeds the
    baseline by, which trains the location network,
  - the mean squared error of the baseline, which trains the baseline.
  Training draws the points. Evaluation looks where their means are: it needs no
  exploration, and its figures have no noise.
  """

  model: RAM

  def noise(self, key: jax.Array, num: int, steps: int) -> jax.Array:
    """[T, B, 2]."""
    return self.model.noise(key, num, steps)

  def loss(self, params, batch: Mapping[str, jax.Array], noise, step: jax.Array | None = None):
    """The loss [B]; the error, the cross-entropy and the squared error of the baseline [B]."""
    x = data.to_device_float(batch['image'])
    noise = noise if step is not None else jnp.zeros_like(noise)
    terms = self.model.apply({'params': params}, x, noise, method='explore')
    metrics = scores(terms.logits, batch['label'])
    reward = (metrics['error'] == 0).astype(terms.baseline.dtype)
    excess = reward - terms.baseline
    metrics['baseline_error'] = jnp.square(excess).mean(0)
    drawn = -(jax.lax.stop_gradient(excess) * terms.log_prob).sum(0)
    return metrics['cross_entropy'] + drawn + metrics['baseline_error'], metrics


def _in_rows(images: jax.Array) -> jax.Array:
  """[T, B, ...] to [B T, ...]: the steps of an example one after the other."""
  return jnp.moveaxis(images, 0, 1).reshape(-1, *images.shape[2:])
