"""What the numbers of the user's own arrays mean: refused where it cannot be told."""

import numpy as np

from draw_jax.errors import UserError

# A largest value below these is no brightness of 8 bits, or of 16, that whole data sets have.
_DARK, _DARK_16 = 32, 4096


def to_bytes(splits: dict[str, np.ndarray], where: str) -> tuple[dict[str, np.ndarray], str]:
  """Images as bytes, and in words what was made of their numbers.

  Args:
    splits: arrays of one type, of bool, whole numbers or floats; the range is that of all.
    where: for messages.

  Returns:
    uint8 of the same shapes, with 255 for an intensity of one; the words.
  """
  kinds = {images.dtype for images in splits.values()}
  if len(kinds) > 1:
    given = ' and '.join(sorted(map(str, kinds)))
    raise UserError(f'{where} are {given}: give arrays of one type, so that one range fits all.')
  (kind,) = kinds
  if kind.kind not in 'buif':
    raise UserError(f'{where} must be uint8, bool, or floats from 0 to 1, not {kind}.')
  low = min(images.min() for images in splits.values())
  high = max(images.max() for images in splits.values())
  found = 'bool' if kind.kind == 'b' else f'{kind} of {low:g} to {high:g}'
  factor, words = _meaning(kind, low, high, f'{where} are {found}')
  scaled = {name: _scaled(images, factor) for name, images in splits.items()}
  return scaled, f'{found}: {words}'


def is_binary(images: np.ndarray) -> bool:
  """Whether bytes are all black or white."""
  return bool(((images == 0) | (images == 255)).all())


def _meaning(kind: np.dtype, low: float, high: float, given: str) -> tuple[float, str]:
  """What numbers are multiplied by to give bytes, and what they are."""
  accepted = 'give uint8, bool, or floats from 0 to 1'
  if kind.kind == 'b':
    return 255, 'binary'
  if not (np.isfinite(low) and np.isfinite(high)):
    raise UserError(f'{given}, some of them no numbers: {accepted}.')
  if low < 0:
    hint = ', as (x + 1) / 2 if they are from -1 to 1' if low >= -1 and high <= 1 else ''
    raise UserError(f'{given}, and no intensity is below 0: {accepted}{hint}.')
  if high == 0:
    raise UserError(f'{given}: all of them black. Give images.')
  whole = kind.kind != 'f'
  if whole and high == 1:
    return 255, 'binary, 1 for white'
  if not whole and 1 / 8 <= high <= 1:
    return 255, 'intensities'
  if _DARK <= high <= 255:
    return 1, 'intensities of 8 bits'
  if kind == np.uint16 and high >= _DARK_16:
    return 1 / 257, 'intensities of 16 bits'
  raise UserError(
    f'{given}, so what is white cannot be told: scale them so that white is 255, or floats from 0 '
    'to 1.'
  )


def _scaled(images: np.ndarray, factor: float) -> np.ndarray:
  if images.dtype == np.uint8 and factor == 1:
    return images
  return np.round(images * np.float32(factor)).astype(np.uint8)
