"""Initial values of DRAW's parameters, as functions key -> parameters.

The letters of the shapes are those of `draw_jax.models.layers`.
"""

import dataclasses

import jax
import numpy as np

from draw_jax import fields
from draw_jax.models import layers


@dataclasses.dataclass(frozen=True)
class Initialization:
  """Initial values that the paper leaves open; `PAPER` takes its formulas bare.

  The paper's formulas put the first 2 x 2 read on the corners of the image
  with sigma = 1. A digit leaves the corners black, so the encoder would see
  nothing at first and learn slowly.
  """

  # Of the stride that spans the image: look inside it.
  read_stride: float = fields.field(0.5, above=0)
  # Pixels: filters wide enough to meet most of the image.
  read_sigma: float = fields.field(4.0, above=0)
  # Of the stride that spans the image.
  write_stride: float = fields.field(0.8, above=0)
  # Pixels: neighboring filters overlap, no gaps between.
  write_sigma: float = fields.field(2.5, above=0)
  # Of both LSTMs: gradients reach the early glimpses at first.
  forget_bias: float = 1.0
  # Weights are N(0, kernel_scale / fan_in).
  kernel_scale: float = fields.field(1.0, above=0)
  # Those from the glimpse are N(0, kernel_scale / its size): a few pixels are heard beside
  # hundreds of hidden units.
  own_glimpse_scale: bool = True
  # Factor on the weights that make the writing patch: the canvas, and with it the latents,
  # matter from the first step of training.
  write_scale: float = fields.field(4.0, above=0)

  def linear(
    self, inputs: int, outputs: int, dtype: jax.typing.DTypeLike, gain: float = 1.0
  ) -> layers.Init:
    """Of a layer for `layers.linear`; `gain` multiplies the weights."""
    return layers.init_linear(inputs, outputs, dtype, scale=self.kernel_scale, gain=gain)

  def lstm(
    self, inputs: int, hidden: int, dtype: jax.typing.DTypeLike, glimpse: int = 0
  ) -> layers.Init:
    """Of a layer for `layers.lstm`; the first `glimpse` of its inputs are a glimpse."""
    gain = np.ones(inputs)
    if self.own_glimpse_scale:
      gain[:glimpse] = np.sqrt((inputs + hidden) / max(glimpse, 1))
    bias, scale = self.forget_bias, self.kernel_scale
    return layers.init_lstm(inputs, hidden, dtype, forget_bias=bias, gain=gain, scale=scale)

  def read_window(self, hidden: int, dtype: jax.typing.DTypeLike) -> layers.Init:
    """Of a layer for the five raw numbers of `attention.window`."""
    return self._window(hidden, dtype, self.read_stride, self.read_sigma)

  def write_window(self, hidden: int, dtype: jax.typing.DTypeLike) -> layers.Init:
    """The same for writing."""
    return self._window(hidden, dtype, self.write_stride, self.write_sigma)

  def _window(
    self, hidden: int, dtype: jax.typing.DTypeLike, stride: float, sigma: float
  ) -> layers.Init:
    scale = self.kernel_scale
    return layers.init_window(hidden, dtype, stride=stride, sigma=sigma, scale=scale)


PAPER = Initialization(
  read_stride=1.0,
  read_sigma=1.0,
  write_stride=1.0,
  write_sigma=1.0,
  forget_bias=0.0,
  own_glimpse_scale=False,
  write_scale=1.0,
)
