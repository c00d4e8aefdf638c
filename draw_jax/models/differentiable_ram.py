"""The attention classifier of Section 4.1, the paper's "Differentiable RAM".

The letters of the shapes are those of `draw_jax.attention`; D is the number of
units of the LSTM, K that of classes.
"""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from draw_jax import attention
from draw_jax.models import gradients, layers, recurrence


@dataclasses.dataclass(frozen=True)
class Start:
  """Starting values, which the paper leaves open."""

  stride: float = 1.0  # of the stride that spans the picture: all of it is seen at first
  sigma: float = 6.0  # pixels: filters wide enough to leave no gaps between them
  forget_bias: float = 1.0  # of the LSTM: gradients reach the early glimpses at first
  kernel_scale: float = 1.0  # weights are N(0, kernel_scale / fan_in)


class Trace(NamedTuple):
  """Every glimpse of one pass, for pictures."""

  window: attention.Window  # each field [T, B]
  glimpse: jax.Array  # [T, B, N, N, C]


class DifferentiableRAM(nn.Module):
  """An LSTM that looks at a picture T times, and then names its class.

      model = DifferentiableRAM(image_shape=(100, 100, 1))
      params = model.init(key, x)['params']
      logits, _ = model.apply({'params': params}, x)

  Parameters do not depend on `steps`, so another number may be given to each call.

  Attributes:
    image_shape: (H, W, C).
    num_classes: K.
    steps: T, the number of glimpses.
    hidden: D.
    read_size: N of the grid of filters.
    window_limit: on the norm of the gradient by the five numbers that place a
      window, for each glimpse at each picture; 0: none.
    start: starting values of the parameters.
    dtype: in which the matrices of the layers are multiplied, for example
      jnp.bfloat16. All else stays in `param_dtype`.
    param_dtype: of the parameters.
    remat: what the backward pass keeps in memory, a name in `recurrence.REMAT`.
      The results do not depend on it; see `draw_jax.DRAW`.
  """

  image_shape: tuple[int, int, int]
  num_classes: int = 10
  steps: int = 8
  hidden: int = 256
  read_size: int = 12
  window_limit: float = 0.0
  start: Start = Start()
  dtype: jax.typing.DTypeLike | None = None
  param_dtype: jax.typing.DTypeLike = jnp.float32
  remat: str = 'products'

  def setup(self):
    """Makes the parameters."""
    start, hidden, dtype = self.start, self.hidden, self.param_dtype
    scale = start.kernel_scale
    window = layers.start_window(hidden, dtype, stride=start.stride, sigma=start.sigma, scale=scale)
    glimpse, bias = self.read_size**2 * self.image_shape[-1], start.forget_bias
    core = layers.start_lstm(glimpse, hidden, dtype, forget_bias=bias, scale=scale)
    head = layers.start_linear(hidden, self.num_classes, dtype, scale=scale)
    self.window = self.param('window', window)
    self.core = self.param('core', core)
    self.head = self.param('head', head)

  def __call__(
    self, x, *, steps: int | None = None, trace: bool = False
  ) -> tuple[jax.Array, Trace | None]:
    """The scores of the classes after T glimpses.

    Args:
      x: [B, H, W, C], values in [0, 1].
      steps: T; None takes the module's own.
      trace: also return every glimpse.

    Returns:
      Logits [B, K], and a Trace or None.
    """
    x = x.astype(self.param_dtype)

    def step(large, state, _):
      state, seen = self._step(large, state, x)
      return state, seen if trace else None

    state = layers.from_start((self.core['h'], self.core['c']), len(x))
    times = jnp.arange(self.steps if steps is None else steps)
    (h, _), traced = recurrence.scan(
      step, {'core': self.core}, state, times, self.remat, self.dtype
    )
    return layers.linear(self.head, h, self.dtype), Trace(*traced) if trace else None

  def _step(self, large, state, x):
    """One glimpse, where h of the step before says; the next (h, c), window and glimpse."""
    height, width, _ = self.image_shape
    # A few numbers place the window: they are not worth a loss of precision.
    raw = gradients.limit(layers.linear(self.window, state[0]), self.window_limit)
    window = attention.window(raw, self.read_size, height, width)
    glimpse = attention.read(x, window, self.read_size)
    state = layers.lstm(large['core'], state, glimpse.reshape(len(x), -1), self.dtype)
    return state, (window, glimpse)
