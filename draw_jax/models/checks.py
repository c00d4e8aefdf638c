"""What networks say to arguments that cannot work.

Shapes are known where JAX traces, and values are not: those are looked at only where they are
there already, so that nothing is added to a compiled program.
"""

from typing import Any

import flax.linen as nn
import jax
import numpy as np

from draw_jax import fields
from draw_jax.attention import Array
from draw_jax.errors import UserError


def arguments(module: nn.Module) -> None:
  """Raises a `UserError` for the first argument with which a network cannot be made."""
  shape = module.image_shape
  try:
    whole = [fields.check_whole('image_shape', n) or int(n) for n in shape]
  except (TypeError, UserError):
    whole = []
  if len(whole) != 3 or min(whole) < 1:
    raise UserError(
      f'image_shape={shape} must be (height, width, channels), such as (28, 28, 1) for gray images.'
    )
  module.image_shape = tuple(whole)  # which a list is not: networks are keys of compiled programs
  fields.check_arguments(module)
  module.check_image(*whole[:2])


def count(name: str, value: Any) -> None:
  """Raises a `UserError` unless the value is a whole number of at least 1, as T is."""
  fields.check_whole(name, value)
  fields.check_number(name, value, {'at least': 1})


def batch(x: Array, image_shape: tuple[int, int, int], name: str = 'x') -> int:
  """B; raises a `UserError` unless x [B, H, W, C] is a batch of images in [0, 1]."""
  batch_shape(x, image_shape, name)
  intensities(name, x)
  return len(x)


def batch_shape(x: Array, image_shape: tuple[int, int, int], name: str = 'x') -> None:
  """Raises a `UserError` unless x [B, H, W, C] has the shape of a batch of images."""
  if not hasattr(x, 'shape'):
    raise UserError(f'{name} is a {type(x).__name__}: it must be an array, N x {by(image_shape)}.')
  if x.shape[1:] != image_shape or x.ndim != 4:
    if x.shape == image_shape:
      hint = f' One image alone goes in as {name}[None].'
    elif image_shape[2] == 1 and x.shape[1:] == image_shape[:2]:
      hint = f' Those without channels go in as {name}[..., None].'
    else:
      hint = ''
    raise UserError(
      f'{name} is {by(x.shape)}, and the network takes a batch of images, N x {by(image_shape)}.'
      f'{hint}'
    )


def image(x: Array, image_shape: tuple[int, int, int]) -> None:
  """Raises a `UserError` unless x [H, W, C] is one image in [0, 1]."""
  ends_in('the image', x, image_shape)
  if x.ndim != 3:
    raise UserError(f'the image is {by(x.shape)}: give one, such as the mean x.mean(0) of several.')
  intensities('the image', x)


def intensities(name: str, x: Array) -> None:
  """Raises a `UserError` for values that are there already and not in [0, 1]."""
  known = isinstance(x, np.ndarray | jax.Array) and not isinstance(x, jax.core.Tracer)
  if not known or not x.size or (isinstance(x, jax.Array) and not x.is_fully_addressable):
    return
  values = np.asarray(x)
  low, high = values.min(), values.max()
  if not 0 <= low <= high <= 1:  # also where they are no numbers
    hint = 'divide bytes by 255' if high > 1 and low >= 0 else 'scale them'
    raise UserError(f'{name} has values from {low:g} to {high:g}: images are in [0, 1], {hint}.')


def latents(name: str, values: Array, num: int | None, latent: int) -> None:
  """Raises a `UserError` unless values are [T, B, Z]; `num` is B, where it is known."""
  shape = values.shape
  if len(shape) != 3 or not shape[0] or shape[2] != latent or num not in (None, shape[1]):
    batch = 'N' if num is None else num
    raise UserError(
      f'{name} is {by(shape)}: it must be glimpses x {batch} x {latent}, with a glimpse at least.'
    )


def ends_in(name: str, values: Array, shape: tuple[int, ...]) -> None:
  """Raises a `UserError` unless the last axes of values have these sizes."""
  if values.shape[-len(shape) :] != shape:
    raise UserError(f'{name} is {by(values.shape)}: it must end in {by(shape)}.')


def by(shape: tuple[int, ...]) -> str:
  """A shape in words, such as 28 x 28 x 1."""
  return ' x '.join(map(str, shape)) or 'a number'
