"""Images on the stack, under D(x | c_T)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from draw_jax import attention
from draw_jax.compression.stack import Stack
from draw_jax.errors import UserError
from draw_jax.models.draw import DRAW
from draw_jax.tasks.base import to_device_float


class Pixels:
  """Images of a model whose output says how probable each value of a pixel is.

  Images are uint8 [N, H, W, C]; a canvas is as `State` has it, of B >= N images.

  Args:
    model: the network.
    program: makes a function of (model, *arrays) one of the arrays, with parameters.
  """

  def __init__(self, model: DRAW, program: Callable[[Callable], Callable]):
    output = model.distribution
    if output.value_log_probs is None:
      raise UserError(
        f'the output {model.output!r} is a density, and only values that can be counted are coded.'
      )
    self.values = output.values
    self._channels, self._apart = model.image_shape[-1], 255 // (output.values - 1)
    self._probabilities = program(_probabilities)

  def push(self, stack: Stack, canvas: jax.Array, images: np.ndarray) -> None:
    padded = _pad(images, len(canvas))
    for c in reversed(range(self._channels)):
      symbols = images[..., c] // self._apart
      stack.push(symbols.reshape(-1), self._table(canvas, padded[..., :c], len(images)))

  def pop(self, stack: Stack, canvas: jax.Array, num: int) -> np.ndarray:
    """`num` images."""
    _, height, _, width = canvas.shape
    images = np.zeros((num, height, width, 0), np.uint8)
    for _ in range(self._channels):
      symbols = stack.pop(self._table(canvas, _pad(images, len(canvas)), num))
      channel = (self._apart * symbols).astype(np.uint8).reshape(num, height, width, 1)
      images = np.concatenate([images, channel], -1)
    return images

  def any_images(self, noise: np.ndarray) -> np.ndarray:
    """Images made of any integers [N, H, W, C]."""
    return (self._apart * (noise % self.values)).astype(np.uint8)

  def _table(self, canvas: jax.Array, before: np.ndarray, num: int) -> np.ndarray:
    """The probabilities of each value of the next channel, [N H W, V]."""
    table = np.asarray(self._probabilities(canvas, before))[:num].astype(np.float32)
    if not np.isfinite(table).all():
      raise UserError('the model gives pixels that are not finite numbers: choose another one.')
    return table.reshape(-1, self.values)


def _probabilities(model: DRAW, canvas: jax.Array, before: jax.Array) -> jax.Array:
  canvas = attention.to_hwc(canvas)
  return jnp.exp(model.distribution.value_log_probs(canvas, to_device_float(before)))


def _pad(images: np.ndarray, size: int) -> np.ndarray:
  return np.pad(images, [(0, size - len(images)), (0, 0), (0, 0), (0, 0)])
