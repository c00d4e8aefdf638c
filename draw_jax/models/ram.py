"""The Recurrent Attention Model (RAM) of Mnih et al. (2014), which Table 1 compares with.

It looks at hard-edged patches of several scales around a point. Where to look is
drawn at random and learned by REINFORCE, as the patches have no gradient by the
point. The letters of the shapes are those of `draw_jax.attention`; S is the number
of scales, D that of units, K that of classes. Points are (x, y), from (-1, -1) in
the upper left corner of the image to (1, 1) in the lower right one.
"""

import dataclasses
import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float, Num

from draw_jax import attention, fields
from draw_jax.attention import Array
from draw_jax.models import checks, gradients, layers, recurrence
from draw_jax.models.differentiable_ram import GlimpseTrace

# He et al. (2015): with this scale of the weights ReLUs keep the size of their inputs.
_RELU_SCALE = 2.0
# On the weights of the location network: the first looks are near the middle.
_LOCATION_GAIN = 0.1
# Glimpses are small: with a loop around each of them a step takes a tenth longer.
_UNROLL = 8
_AT_EACH_GLIMPSE = ('what', 'where', 'glimpse', 'core')


def sensor(
  images: Num[Array, '*b h w c'], location: Float[Array, '*b 2'], size: int, scales: int
) -> Float[Array, '*b {scales} {size} {size} c']:
  """The glimpse sensor: patches around a point, each twice as wide as the one before.

  Each is averaged down to N x N. There is nothing but black outside the image.

  Args:
    images: [..., H, W, C].
    location: [..., 2]; points outside the image are moved to its edge. The middle of
      the patches is the corner between pixels that is nearest to the point (with an odd
      N, that of the smallest is the pixel after it).
    size: N; the first patch has N x N pixels.
    scales: S.

  Returns:
    [..., S, N, N, C], rows first; no gradient reaches the location.
  """
  return look(tables(images.astype(jnp.result_type(images, location)), scales), location, size)


def tables(images: Float[Array, '*b h w c'], scales: int) -> tuple[Float[Array, '*b _ _ c'], ...]:
  """Means of all squares of 1, 2, 4, ... pixels a side, to be made once and read by `look`.

  A summed-area table would be smaller, but small differences of its large sums are not exact.

  Args:
    images: [..., H, W, C].
    scales: S.

  Returns:
    S arrays [..., H', W', C], by the upper left corners of the squares. The first of these is
    2^(S - 1) pixels outside the image, where all squares are black; so are the last ones.
  """
  margin = (2 ** (scales - 1),) * 2
  means = [jnp.pad(images, ((0, 0),) * (images.ndim - 3) + (margin, margin, (0, 0)))]
  for wide in 2 ** np.arange(scales - 1):
    pairs = means[-1][..., wide:, :, :] + means[-1][..., :-wide, :, :]
    means.append((pairs[..., wide:, :] + pairs[..., :-wide, :]) / 4)
  return tuple(means)


def look(
  means: tuple[Float[Array, '*b _ _ c'], ...], location: Float[Array, '*b 2'], size: int
) -> Float[Array, '*b s {size} {size} c']:
  """The patches of `sensor`, read from the `tables` of the images.

  Several points may be looked at with the same tables: `jax.vmap` over points alone.

  Args:
    means: what `tables` gives.
    location: [..., 2], see `sensor`.
    size: N.

  Returns:
    [..., S, N, N, C].
  """
  margin = 2 ** (len(means) - 1)
  height, width = (n - 2 * margin for n in means[0].shape[-3:-1])
  lengths = (width, height)
  middles = [_corner(location[..., i], n).astype(jnp.int32) for i, n in enumerate(lengths)]

  def places(middle, length, wide):
    first = middle[..., None] - wide * size // 2 + wide * np.arange(size)
    return jnp.clip(first, -margin, length) + margin

  patches = []
  for s, mean in enumerate(means):
    x, y = (places(m, n, 2**s) for m, n in zip(middles, lengths, strict=True))
    # Whole rows first: they are copied faster than single pixels are found.
    take = functools.partial(jnp.take_along_axis, mode='promise_in_bounds')
    rows = take(mean, y[..., None, None], axis=-3)
    patches.append(take(rows, x[..., None, :, None], axis=-2))
  return jnp.stack(patches, -4)


def _corner(point: Float[Array, '*b'], length: int) -> Float[Array, '*b']:
  """The corner between pixels nearest to a point of one axis, from 0 to `length`."""
  return jnp.round((jnp.clip(point, -1, 1) + 1) / 2 * length)


@dataclasses.dataclass(kw_only=True)
class RamConfig:
  """What an experiment says of RAM; the sizes of Mnih et al. (2014)."""

  # T. Parameters do not depend on it, so another number may be given to each call.
  glimpses: int = fields.field(8, at_least=1, at_most=fields.MOST)
  # D, units of the core and of the glimpse network's output.
  hidden: int = fields.field(256, at_least=1, at_most=fields.MOST)
  # Units that hear the patches, and as many that hear the point.
  features: int = fields.field(128, at_least=1, at_most=fields.MOST)
  # N, side of each patch, as the network sees it.
  read_size: int = fields.field(12, at_least=1)
  # S, patches of a glimpse, each twice as wide as the one before.
  scales: int = fields.field(4, at_least=1)
  # Of the points drawn, where the image is 2 wide.
  location_std: float = fields.field(0.15, above=0)
  # In which matrices are multiplied, such as 'bfloat16'; None: the type of the parameters.
  dtype: str | None = fields.field(None, choices=layers.DTYPES)

  def check_image(self, height: int, width: int, prefix: str = '') -> None:
    """Raises a `UserError` unless the smallest patch fits on images of this size."""
    layers.check_size(f'{prefix}read_size', self.read_size, height, width)


class ExplorationTerms(NamedTuple):
  """What one pass with points drawn at random says about each example."""

  logits: Array  # [B, K]
  location: Array  # [T, B, 2], the points drawn
  mean: Array  # [T, B, 2], of their distributions
  log_prob: Array  # [T, B], log-density of each point
  baseline: Array  # [T, B], the reward expected before each glimpse


# Points drawn, their means, log-densities and the baselines; windows and what is seen.
_Looks = tuple[
  Float[Array, 't b 2'], Float[Array, 't b 2'], Float[Array, 't b'], Float[Array, 't b']
]
_Seen = tuple[attention.Window, Float[Array, 't b n _ c']]


class RAM(nn.Module, RamConfig):
  """RAM with the networks that Mnih et al. use for classification.

  The core is a recurrent layer of rectified linear units. The points are drawn from
  Gaussians whose means are a linear map of its state and whose standard deviation is
  fixed. Neither these means nor the baseline send gradients to the rest of the network.

      model = RAM(image_shape=(100, 100, 1))
      params = model.init(key, x)['params']
      logits, _ = model.apply({'params': params}, x)
      terms = model.apply({'params': params}, x, noise, method='explore')

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
    hidden, features = self.hidden, self.features
    patches = self.scales * self.read_size**2 * self.image_shape[-1]
    self.what = self._relu('what', patches, features)
    self.where = self._relu('where', 2, features)
    self.glimpse = self._relu('glimpse', 2 * features, hidden)
    self.core = self._relu('core', 2 * hidden, hidden, h=np.zeros(hidden))
    dtype = self.param_dtype
    self.location = self.param(
      'location', layers.init_linear(hidden, 2, dtype, gain=_LOCATION_GAIN)
    )
    self.baseline = self.param('baseline', layers.init_linear(hidden, 1, dtype))
    self.head = self.param('head', layers.init_linear(hidden, self.num_classes, dtype))

  def __call__(
    self, x: Num[Array, 'b h w c'], *, glimpses: int | None = None, trace: bool = False
  ) -> tuple[Float[Array, 'b k'], GlimpseTrace | None]:
    """The scores of the classes after T glimpses, each at the mean point.

    Args:
      x: [B, H, W, C], values in [0, 1].
      glimpses: T; None takes the module's own.
      trace: also return every glimpse.

    Returns:
      Logits [B, K], and a GlimpseTrace or None. Its windows are the smallest patches; its
      glimpses [T, B, N, S N, C] have the patches side by side, the smallest first.
    """
    glimpses = self.glimpses if glimpses is None else glimpses
    checks.count('glimpses', glimpses)
    noise = jnp.zeros((glimpses, len(x), 2), self.param_dtype)
    h, (_, traced) = self._scan(x, noise, trace)
    return layers.linear(self.head, h, self.dtype), GlimpseTrace(*traced) if trace else None

  def explore(self, x: Num[Array, 'b h w c'], noise: Float[Array, 't b 2']) -> ExplorationTerms:
    """The terms of the loss, with points drawn: [B, H, W, C] and standard normal [T, B, 2]."""
    h, (terms, _) = self._scan(x, noise, trace=False)
    return ExplorationTerms(layers.linear(self.head, h, self.dtype), *terms)

  def noise(
    self, key: jax.Array, num: int, glimpses: int | None = None
  ) -> Float[Array, 't {num} 2']:
    """[T, B, 2] standard normal."""
    glimpses = self.glimpses if glimpses is None else glimpses
    return jax.random.normal(key, (glimpses, num, 2), self.param_dtype)

  def _scan(
    self, x: Num[Array, 'b h w c'], noise: Float[Array, 't b 2'], trace: bool
  ) -> tuple[Float[Array, 'b d'], tuple[_Looks, _Seen | None]]:
    """The last h; for each glimpse the fields of `ExplorationTerms`, and of a `GlimpseTrace`."""
    checks.batch(x, self.image_shape)
    means = tables(x.astype(self.param_dtype), self.scales)

    def step(nets, h, noise):
      h, (location, mean, baseline), patches = self._step(nets, h, means, noise)
      seen = self._seen(location, patches) if trace else None
      return h, (location, mean, baseline, seen)

    # One product for all that says what to do next.
    heads = jax.tree.map(lambda *a: jnp.concatenate(a, -1), self.location, self.baseline)
    nets = {'heads': heads} | {name: getattr(self, name) for name in _AT_EACH_GLIMPSE}
    h = layers.repeat_initial(self.core['h'], len(x))
    h, (location, mean, baseline, seen) = recurrence.scan(
      step, nets, h, noise, 'products', self.dtype, _UNROLL
    )
    log_prob = jax.scipy.stats.norm.logpdf(location, mean, self.location_std).sum(-1)
    return h, ((location, mean, log_prob, baseline), seen)

  def _step(
    self,
    nets: gradients.Layers,
    h: Float[Array, 'b d'],
    means: tuple[Float[Array, 'b _ _ c'], ...],
    noise: Float[Array, 'b 2'],
  ) -> tuple[
    Float[Array, 'b d'],
    tuple[Float[Array, 'b 2'], Float[Array, 'b 2'], Float[Array, ' b']],
    Float[Array, 'b s n n c'],
  ]:
    """One glimpse; the next h, the point, its mean and the baseline, and the patches."""
    heads = layers.linear(nets['heads'], jax.lax.stop_gradient(h))
    mean, baseline = heads[:, :2], heads[:, 2]
    # A draw is an action: neither what is seen there nor its density pulls at it.
    location = jax.lax.stop_gradient(mean + self.location_std * noise)
    patches = look(means, location, self.read_size)
    # Kept for the gradient of the matrix that they meet, not read again.
    patches = checkpoint_name(patches, gradients.PRODUCT)
    heard = (
      layers.linear(nets['what'], patches.reshape(len(h), -1), self.dtype),
      layers.linear(nets['where'], jnp.clip(location, -1, 1)),
    )
    glimpse = layers.linear(nets['glimpse'], jax.nn.relu(jnp.concatenate(heard, -1)), self.dtype)
    inputs = jnp.concatenate([jax.nn.relu(glimpse), h], -1)
    h = jax.nn.relu(layers.linear(nets['core'], inputs, self.dtype))
    return h, (location, mean, baseline), patches

  def _seen(
    self, location: Float[Array, 'b 2'], patches: Float[Array, 'b s n n c']
  ) -> tuple[attention.Window, Float[Array, 'b n s*n c']]:
    """The fields of a `GlimpseTrace` for one glimpse."""
    height, width, _ = self.image_shape
    # The smallest patch begins N // 2 pixels before the corner; its middle is (N - 1) / 2 further.
    middle = (self.read_size - 1) / 2 - self.read_size // 2
    x, y = (_corner(location[..., i], a) + middle for i, a in enumerate((width, height)))
    one = jnp.ones_like(x)
    window = attention.Window(x, y, variance=0 * one, stride=one, intensity=one)
    return window, jnp.concatenate(jnp.moveaxis(patches, 1, 0), -2)

  def _relu(self, name: str, inputs: int, outputs: int, **more: Array) -> gradients.Layer:
    """A parameter for `layers.linear` before a rectified linear unit."""
    init = layers.init_linear(inputs, outputs, self.param_dtype, scale=_RELU_SCALE, **more)
    return self.param(name, init)
