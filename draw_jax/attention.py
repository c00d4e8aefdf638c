"""DRAW's two-dimensional attention (Section 3.2 and 3.3) as pure functions.

A grid of N x N Gaussian filters is laid over an image. Reading gives the
filters' responses, an N x N patch; writing spreads such a patch back over the
image with the same filters transposed.

Shapes here and in the whole package:

    B  examples of a batch           H, W  height and width of an image
    T  glimpses                      C     channels of an image
    N  filters along one side        Z     latent variables of one glimpse

Every function takes any leading axes `...` (usually `[B]`). Coordinates are in
pixels and start at 0 in the middle of the first pixel, so that the paper's
1-based coordinates are these plus one. The paper's A is the width, its B the
height.

The raw numbers may be any finite float: they are clipped to +-RAW_LIMIT, which
lies beyond every useful window (a center five image widths away, a variance
of exp(+-12) pixels), and have a zero gradient outside. Within the limit the
filters are normalized without a division by a sum that could vanish, see
`filterbank`, so values and gradients are finite.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from draw_jax.errors import UserError

Array = jax.Array | np.ndarray | np.generic

# Magnitude to which each of the five raw numbers is clipped.
RAW_LIMIT = 12.0


class Window(NamedTuple):
  """A grid of filters on an image: five numbers for each example, each [...]."""

  center_x: Float[Array, '*b']  # g_X, column of the grid's center, in pixels from 0
  center_y: Float[Array, '*b']  # g_Y, row of the grid's center, in pixels from 0
  variance: Float[Array, '*b']  # sigma^2 of the filters, in pixels squared
  stride: Float[Array, '*b']  # delta, distance between neighboring filters, in pixels
  intensity: Float[Array, '*b']  # gamma, multiplies what is read, divides what is written


def window(
  raw: Float[Array, '*b 5'], size: int, height: int, width: int, *, relative: bool = False
) -> Window:
  """Eqs. 21-24: the window that five unconstrained numbers stand for.

  Zeros give a grid over the whole image, its outermost filters on the corner
  pixels of a square one, with sigma = gamma = 1.

  Args:
    raw: [..., 5], g~_X, g~_Y, log sigma^2, log delta~ and log gamma.
    size: N. A grid of one filter has no stride; N = 1 takes the value of N = 2,
      which then places nothing.
    height: H of the image.
    width: W of the image.
    relative: the third number is log (sigma / delta)^2, so that filters keep their
      proportions when the grid is made smaller. Zeros then give sigma = delta.

  Returns:
    The window, each of its fields [...].
  """
  if np.ndim(raw) == 0 or raw.shape[-1] != 5 or min(size, height, width) < 1:
    raise UserError(
      f'a window is five numbers, [..., 5], for a size, a height and a width of at least 1, not '
      f'{list(np.shape(raw))} for {size}, {height} and {width}.'
    )
  raw = jnp.clip(raw, -RAW_LIMIT, RAW_LIMIT)
  x, y, log_variance, log_stride, log_intensity = jnp.moveaxis(raw, -1, 0)
  whole = whole_stride(size, height, width)
  if relative:
    log_variance += 2 * (log_stride + math.log(whole or 1))  # Of one pixel it is 0.
    log_variance = jnp.clip(log_variance, -RAW_LIMIT, RAW_LIMIT)
  return Window(
    center_x=(width + 1) / 2 * (x + 1) - 1,
    center_y=(height + 1) / 2 * (y + 1) - 1,
    variance=jnp.exp(log_variance),
    stride=whole * jnp.exp(log_stride),
    intensity=jnp.exp(log_intensity),
  )


def whole_stride(size: int, height: int, width: int) -> float:
  """The pixels between the filters of a grid that spans the longer side of an image."""
  return (max(height, width) - 1) / max(size - 1, 1)


def centers(
  center: Float[Array, '*b'], stride: Float[Array, '*b'], size: int
) -> Float[Array, '*b {size}']:
  """Eqs. 19-20: where the filters of one axis stand, in pixels from 0.

  Args:
    center: [...], the grid's center on this axis.
    stride: [...], the distance between filters.
    size: N.

  Returns:
    [..., N], increasing along the last axis.
  """
  offsets = jnp.arange(size, dtype=center.dtype) - (size - 1) / 2
  return center[..., None] + offsets * stride[..., None]


def filterbank(
  center: Float[Array, '*b'],
  stride: Float[Array, '*b'],
  variance: Float[Array, '*b'],
  size: int,
  length: int,
) -> Float[Array, '*b {size} {length}']:
  """Eqs. 25-26: the filters of one axis, each normalized over the pixels.

  The exponent is taken relative to the pixel nearest to the filter's center,
  (a - mu)^2 - (n - mu)^2 = (a - n) (a + n - 2 mu), so the largest term of the
  sum is exactly one however far outside the image the filter stands, and
  nothing cancels. A filter far outside then reads the nearest edge, which is
  the limit of the formula.

  Args:
    center: [...], the grid's center on this axis, in pixels from 0.
    stride: [...], the distance between filters.
    variance: [...], sigma^2.
    size: N.
    length: pixels along this axis, W for F_X and H for F_Y.

  Returns:
    [..., N, length]; every row sums to one.
  """
  mean = centers(center, stride, size)[..., None]
  pixels = jnp.arange(length, dtype=center.dtype)
  nearest = jax.lax.stop_gradient(jnp.clip(jnp.round(mean), 0, length - 1))
  excess = (pixels - nearest) * (pixels + nearest - 2 * mean)
  weights = jnp.exp(-0.5 * excess / variance[..., None, None])
  return weights / weights.sum(-1, keepdims=True)


def filterbanks(
  window: Window, size: int, height: int, width: int
) -> tuple[Float[Array, '*b {size} {height}'], Float[Array, '*b {size} {width}']]:
  """Eqs. 25-26: F_Y [..., N, H] and F_X [..., N, W] of a window."""
  f_y = filterbank(window.center_y, window.stride, window.variance, size, height)
  f_x = filterbank(window.center_x, window.stride, window.variance, size, width)
  return f_y, f_x


def read(
  images: Float[Array, '*#b h w c'], window: Window, size: int
) -> Float[Array, '*#b {size} {size} c']:
  """Eq. 27: gamma F_Y x F_X^T, the patch that a window sees.

  Args:
    images: [..., H, W, C]; all channels are read through the same filters.
    window: where to look, each field [...].
    size: N.

  Returns:
    [..., N, N, C], rows first.
  """
  _check_leading('images', images, window)
  return to_hwc(read_hcw(to_hcw(images), window, size))


def write(
  patch: Float[Array, '*#b n n c'], window: Window, height: int, width: int
) -> Float[Array, '*#b {height} {width} c']:
  """Eq. 29: (1 / gamma) F_Y^T w F_X, a patch spread over the image.

  Args:
    patch: [..., N, N, C], rows first.
    window: where to write, each field [...].
    height: H of the image.
    width: W of the image.

  Returns:
    [..., H, W, C], to be added to the canvas.
  """
  _check_leading('patch', patch, window)
  if patch.shape[-3] != patch.shape[-2]:
    raise UserError(f'a patch is square, [..., N, N, C], not {list(patch.shape)}.')
  return to_hwc(write_hcw(to_hcw(patch), window, height, width))


def _check_leading(name: str, images: Array, window: Window) -> None:
  """Raises a `UserError` unless images [..., H, W, C] go with a window's fields [...]."""
  fields = [np.shape(field) for field in window]
  try:
    if np.ndim(images) < 3:
      raise ValueError
    np.broadcast_shapes(images.shape[:-3], *fields)
  except ValueError:
    raise UserError(
      f'{name} must be [..., H, W, C] and the fields of the window [...], not '
      f'{list(np.shape(images))} and {list(fields[0])}.'
    ) from None


def to_hcw(images: Float[Array, '*b h w c']) -> Float[Array, '*b h c w']:
  """[..., H, W, C] to [..., H, C, W], in which the products below need no transposition."""
  return jnp.moveaxis(images, -1, -2)


def to_hwc(images: Float[Array, '*b h c w']) -> Float[Array, '*b h w c']:
  """[..., H, C, W] to [..., H, W, C]."""
  return jnp.moveaxis(images, -1, -2)


def read_hcw(
  images: Float[Array, '*#b h c w'], window: Window, size: int
) -> Float[Array, '*#b {size} c {size}']:
  """`read` of [..., H, C, W], giving [..., N, C, N]."""
  *lead, height, channels, width = images.shape
  f_y, f_x = filterbanks(window, size, height, width)
  rows = f_y @ images.reshape(*lead, height, channels * width)
  lead = rows.shape[:-2]  # One image may be read through many windows.
  patch = rows.reshape(*lead, size * channels, width) @ jnp.swapaxes(f_x, -1, -2)
  patch = patch.reshape(*lead, size, channels, size)
  return window.intensity[..., None, None, None] * patch


def write_hcw(
  patch: Float[Array, '*#b n c n'], window: Window, height: int, width: int
) -> Float[Array, '*#b {height} c {width}']:
  """`write` of [..., N, C, N], giving [..., H, C, W]."""
  *lead, size, channels, _ = patch.shape
  f_y, f_x = filterbanks(window, size, height, width)
  patch = patch / window.intensity[..., None, None, None]
  columns = patch.reshape(*lead, size * channels, size) @ f_x
  lead = columns.shape[:-2]
  rows = jnp.swapaxes(f_y, -1, -2) @ columns.reshape(*lead, size, channels * width)
  return rows.reshape(*lead, height, channels, width)
