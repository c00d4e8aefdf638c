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
  if not _is_known(x) or not x.size:
    return
  values = np.asarray(x)
  low, high = values.min(), values.max()
  if not 0 <= low <= high <= 1:  # also where they are no numbers
    hint = 'divide bytes by 255' if high > 1 and low >= 0 else 'scale them'
    raise UserError(f'{name} has values from {low:g} to {high:g}: images are in [0, 1], {hint}.')


def _is_known(x: Any) -> bool:
  """Whether the values of an array are there, on this process."""
  if isinstance(x, jax.core.Tracer):
    return False
  return isinstance(x, np.ndarray) or (isinstance(x, jax.Array) and x.is_fully_addressable)


def latents(name: str, values: Array, num: int | None, latent: int) -> None:
  """Raises a `UserError` unless values are [T, B, Z]; `num` is B, where it is known."""
  shape = values.shape
  if len(shape) != 3 or not shape[0] or shape[2] != latent or num not in (None, shape[1]):
    batch = 'N' if num is None else num
    raise UserError(
      f'{name} is {by(shape)}: it must be glimpses x {batch} x {latent}, with a glimpse at least.'
    )


def label(value: Any, num: int, num_classes: int) -> Array:
  """The label of `num` images as an array: a class, [B] classes, or [B, K] weights of them.

  Raises a `UserError` for another shape or type, and for classes that are there already and not
  from 0 to K - 1: what JAX makes of those is no error.
  """
  if value is None:
    raise UserError(
      'the network is told the class of its images: give label=, for all or for each.'
    )
  array = value if isinstance(value, jax.Array) else np.asarray(value)
  if array.ndim == 2:
    if array.shape != (num, num_classes) or array.dtype.kind not in 'buif':
      raise UserError(
        f'label is {by(array.shape)} of {array.dtype}: weights of the classes are '
        f'{num} x {num_classes} numbers.'
      )
    return array
  if array.shape not in ((), (num,)) or array.dtype.kind not in 'iu':
    raise UserError(
      f'label is {by(array.shape)} of {array.dtype}: give one class as a whole number, or '
      f'{num} of them.'
    )
  if array.size and _is_known(array):
    low, high = int(array.min()), int(array.max())
    if not 0 <= low <= high < num_classes:
      wrong = low if low < 0 else high
      raise UserError(f'label={wrong} must be from 0 to {num_classes - 1}.')
  return array


def ends_in(name: str, values: Array, shape: tuple[int, ...]) -> None:
  """Raises a `UserError` unless the last axes of values have these sizes."""
  if values.shape[-len(shape) :] != shape:
    raise UserError(f'{name} is {by(values.shape)}: it must end in {by(shape)}.')


def by(shape: tuple[int, ...]) -> str:
  """A shape in words, such as 28 x 28 x 1."""
  return ' x '.join(map(str, shape)) or 'a number'
