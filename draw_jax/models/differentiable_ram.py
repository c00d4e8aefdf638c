"""The attention classifier of Section 4.1, the paper's "Differentiable RAM".

The letters of the shapes are those of `draw_jax.attention`; D is the number of
units of the LSTM, K that of classes.
"""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float, Num

from draw_jax import attention, fields
from draw_jax.attention import Array
from draw_jax.models import checks, gradients, layers, recurrence


@dataclasses.dataclass(frozen=True)
class GlimpseInitialization:
  """Initial values, which the paper leaves open."""

  # Of the stride that spans the image: all of it is seen at first.
  stride: float = fields.field(1.0, above=0)
  # Pixels: filters wide enough to leave no gaps between them.
  sigma: float = fields.field(6.0, above=0)
  # Of the LSTM: gradients reach the early glimpses at first.
  forget_bias: float = 1.0
  # Weights are N(0, kernel_scale / fan_in).
  kernel_scale: float = fields.field(1.0, above=0)


@dataclasses.dataclass(kw_only=True)
class DifferentiableRamConfig:
  """What an experiment says of the attention classifier; the paper's sizes."""

  # T. Parameters do not depend on it, so another number may be given to each call.
  glimpses: int = fields.field(8, at_least=1, at_most=fields.MOST)
  # D, units of the LSTM.
  hidden: int = fields.field(256, at_least=1, at_most=fields.MOST)
  # N of the reading grid of N x N filters.
  read_size: int = fields.field(12, at_least=1)
  # On the norm of the gradient with respect to the five numbers that place a window, for each
  # glimpse and image; 0: none. Without it training fails after some 10,000 steps: filters become
  # narrow and intensities high, and a few images with gradients in the hundreds set the direction.
  window_limit: float = fields.field(10.0, at_least=0)
  # The network says log (sigma / delta)^2 in place of log sigma^2: the same windows, but filters
  # keep their proportions when it zooms in.
  relative_variance: bool = False
  # In which matrices are multiplied, such as 'bfloat16'; None: the type of the parameters.
  dtype: str | None = fields.field(None, choices=layers.DTYPES)
  # What the backward pass keeps in memory, a name in recurrence.REMAT.
  remat: str = fields.field('products', choices=recurrence.REMAT)
  # Initial values of the parameters.
  initialization: GlimpseInitialization = GlimpseInitialization()

  def check_image(self, height: int, width: int, prefix: str = '') -> None:
    """Raises a `UserError` unless the grid fits on images of this size."""
    layers.check_size(f'{prefix}read_size', self.read_size, height, width)


class GlimpseTrace(NamedTuple):
  """Every glimpse of one pass."""

  window: attention.Window  # each field [T, B]
  glimpse: Array  # [T, B, N, N, C]


class DifferentiableRAM(nn.Module, DifferentiableRamConfig):
  """An LSTM that looks at an image T times, and then names its class.

      model = DifferentiableRAM(image_shape=(100, 100, 1))
      params = model.init(key, x)['params']
      logits, _ = model.apply({'params': params}, x)

  Attributes:
    image_shape: (H, W, C).
    num_classes: K.
    param_dtype: of the parameters.
  """

  image_shape: tuple[int, int, int]
  num_classes: int = 10
  param_dtype: jax.typing.DTypeLike = jnp.float32

  def __post_init__(self) -> None:
    checks.arguments(self)
    super().__post_init__()

  def setup(self) -> None:
    init, hidden, dtype = self.initialization, self.hidden, self.param_dtype
    scale = init.kernel_scale
    sigma = init.sigma
    if self.relative_variance:
      sigma /= init.stride * (attention.whole_stride(self.read_size, *self.image_shape[:2]) or 1)
    window = layers.init_window(hidden, dtype, stride=init.stride, sigma=sigma, scale=scale)
    glimpse, bias = self.read_size**2 * self.image_shape[-1], init.forget_bias
    core = layers.init_lstm(glimpse, hidden, dtype, forget_bias=bias, scale=scale)
    head = layers.init_linear(hidden, self.num_classes, dtype, scale=scale)
    self.window = self.param('window', window)
    self.core = self.param('core', core)
    self.head = self.param('head', head)

  def __call__(
    self, x: Num[Array, 'b h w c'], *, glimpses: int | None = None, trace: bool = False
  ) -> tuple[Float[Array, 'b k'], GlimpseTrace | None]:
    """The scores of the classes after T glimpses.

    Args:
      x: [B, H, W, C], values in [0, 1].
      glimpses: T; None takes the module's own.
      trace: also return every glimpse.

    Returns:
      Logits [B, K], and a GlimpseTrace or None.
    """
    glimpses = self.glimpses if glimpses is None else glimpses
    checks.count('glimpses', glimpses)
    checks.batch(x, self.image_shape)
    x = x.astype(self.param_dtype)

    def step(large, state, _):
      state, seen = self._step(large, state, x)
      return state, seen if trace else None

    state = layers.repeat_initial((self.core['h'], self.core['c']), len(x))
    times = jnp.arange(glimpses)
    (h, _), traced = recurrence.scan(
      step, {'core': self.core}, state, times, self.remat, self.dtype
    )
    return layers.linear(self.head, h, self.dtype), GlimpseTrace(*traced) if trace else None

  def _step(
    self,
    large: gradients.Layers,
    state: tuple[Float[Array, 'b d'], Float[Array, 'b d']],
    x: Float[Array, 'b h w c'],
  ) -> tuple[
    tuple[Float[Array, 'b d'], Float[Array, 'b d']],
    tuple[attention.Window, Float[Array, 'b n n c']],
  ]:
    """One glimpse, where h of the step before says; the next (h, c), window and glimpse."""
    height, width, _ = self.image_shape
    # A few numbers place the window: they are not worth a loss of precision.
    raw = gradients.limit(layers.linear(self.window, state[0]), self.window_limit)
    window = attention.window(raw, self.read_size, height, width, relative=self.relative_variance)
    glimpse = attention.read(x, window, self.read_size)
    state = layers.lstm(large['core'], state, glimpse.reshape(len(x), -1), self.dtype)
    return state, (window, glimpse)
