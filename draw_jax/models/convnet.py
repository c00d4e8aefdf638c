"""The convolutional network that Table 1 compares with."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Num

from draw_jax import fields
from draw_jax.attention import Array
from draw_jax.models import checks, layers


@dataclasses.dataclass(kw_only=True)
class ConvnetConfig:
  """What an experiment says of the convolutional network; the sizes of Mnih et al. (2014)."""

  # T: the image is seen as a whole, once.
  glimpses: int = fields.field(
    1, check=lambda n: None if n == 1 else 'must be 1: it sees the whole image, once.'
  )
  # Of the convolution.
  filters: int = fields.field(8, at_least=1, at_most=fields.MOST)
  # Their height and width in pixels.
  filter_size: int = fields.field(10, at_least=1)
  # Pixels from one place of a filter to the next.
  stride: int = fields.field(5, at_least=1)
  # Units of the second layer.
  hidden: int = fields.field(256, at_least=1, at_most=fields.MOST)

  def check_image(self, height: int, width: int, prefix: str = '') -> None:
    """Raises a `UserError` unless a filter fits on images of this size."""
    layers.check_size(f'{prefix}filter_size', self.filter_size, height, width)


class Convnet(nn.Module, ConvnetConfig):
  """A convolution and a layer of hidden units, both of rectified linear units.

  The paper says no more of it than that it has two layers; its error is the one
  that Mnih et al. (2014) give. The sizes are theirs too: 8 filters of 10 x 10 at
  every fifth pixel, and 256 hidden units.

      model = Convnet(image_shape=(100, 100, 1))
      params = model.init(key, x)['params']
      logits, _ = model.apply({'params': params}, x)

  Attributes:
    image_shape: (H, W, C).
    num_classes: K.
  """

  image_shape: tuple[int, int, int]
  num_classes: int = 10

  def __post_init__(self) -> None:
    checks.arguments(self)
    super().__post_init__()

  @nn.compact
  def __call__(
    self, x: Num[Array, 'b h w c'], *, glimpses: int | None = None, trace: bool = False
  ) -> tuple[Float[Array, 'b k'], None]:
    """The scores of the classes.

    Args:
      x: [B, H, W, C], values in [0, 1].
      glimpses: without effect.
      trace: without effect, as there are no glimpses.

    Returns:
      Logits [B, K], and None.
    """
    del glimpses, trace
    checks.batch(x, self.image_shape)
    he = nn.initializers.he_normal()
    x = patches(x, self.filter_size, self.stride)
    # As a product of matrices: XLA's convolutions are many times slower on CPUs.
    x = nn.Dense(self.filters, kernel_init=he, name='convolution')(x)
    x = jax.nn.relu(x).reshape(len(x), -1)
    x = nn.Dense(self.hidden, kernel_init=he, name='dense')(x)
    return nn.Dense(self.num_classes, name='head')(jax.nn.relu(x)), None


def patches(
  images: Num[Array, 'b h w c'], size: int, stride: int
) -> Num[Array, 'b p q {size}*{size}*c']:
  """All patches of images that lie wholly inside: what a convolution multiplies.

  Args:
    images: [B, H, W, C].
    size: of a patch, in pixels.
    stride: from one patch to the next.

  Returns:
    [B, P, Q, size size C], P patches one below the other and Q side by side.
  """

  def places(length: int) -> np.ndarray:
    first = np.arange(0, length - size + 1, stride)
    return first[:, None] + np.arange(size)

  _, height, width, channels = images.shape
  y, x = places(height), places(width)
  found = jnp.swapaxes(images[:, y][..., x, :], 2, 3)  # [B, P, Q, size, size, C]
  return found.reshape(-1, len(y), len(x), size * size * channels)
