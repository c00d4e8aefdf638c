"""The user's own images: a folder of them, or one array in an .npy or .npz file."""

import dataclasses
import errno
import os
import pathlib
import struct
import zipfile
import zlib

import numpy as np
from PIL import Image, ImageOps

from draw_jax import fields, files
from draw_jax.data import sources
from draw_jax.data.spec import Spec
from draw_jax.errors import UserError

_HELD_OUT, _SEED = 0.1, 1  # for validation
_MODES = {1: 'L', 3: 'RGB'}

# What `open_image` raises for a file that is no image, or one that cannot be taken.
UNREADABLE = (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)


@dataclasses.dataclass(frozen=True)
class ImagesOptions:
  """Where your own images are, and what to make of them."""

  path: str | None = fields.field(None, help='A folder, an .npy or an .npz file.')
  # From Python also (H, W).
  image_size: int | None = fields.field(None, at_least=1, help='Height and width in pixels.')
  channels: int | None = fields.field(None, help='1 or 3.')

  @property
  def shape(self) -> tuple[int, int] | None:
    """(H, W), if it is given."""
    if self.image_size is None:
      return None
    height, width = np.broadcast_to(self.image_size, 2).tolist()
    if min(height, width) < 1:
      raise UserError(f'image_size={self.image_size}: height and width must be at least 1')
    return height, width


def load(data_dir: str | None, options: ImagesOptions) -> dict[str, sources.Source]:
  """Returns the user's images, a tenth of them held out by a fixed seed as valid."""
  del data_dir
  if not options.path:
    raise UserError("the dataset 'images' needs a path: a folder of images, an .npy or an .npz")
  path = pathlib.Path(options.path).expanduser()
  if options.channels not in (None, *_MODES):
    raise UserError(f'channels={options.channels}: images have 1 or 3')
  if path.is_dir():
    images = read_folder(path, options.shape, options.channels or 3)
  elif path.suffix in ('.npy', '.npz') and files.is_there(path):
    images = read_array(path, options.shape, options.channels)
  else:
    raise UserError(f'{path} is neither a folder nor an .npy or .npz file')
  if len(images) < 2:
    raise UserError(f'{path} holds {len(images)} images: at least 2 are needed')
  order = np.random.default_rng(_SEED).permutation(len(images))
  held_out = max(1, round(_HELD_OUT * len(images)))
  return {
    'train': sources.MemorySource(images[np.sort(order[held_out:])]),
    'valid': sources.MemorySource(images[np.sort(order[:held_out])]),
  }


def read_folder(
  path: pathlib.Path, image_size: tuple[int, int] | None, channels: int
) -> np.ndarray:
  """Reads every image below a folder, in the order of their names; see `open_image`.

  Args:
    path: of the folder.
    image_size: (H, W); images are scaled to fill it and cut to their middle.
    channels: C, 1 or 3.

  Returns:
    uint8 [N, H, W, C].
  """
  if image_size is None:
    raise UserError('a folder of images needs an image_size')
  known = Image.registered_extensions()
  if not os.access(path, os.R_OK | os.X_OK):
    raise UserError(f'cannot look into {path}: {os.strerror(errno.EACCES)}.')
  found = sorted(file for file in path.rglob('*') if file.suffix.lower() in known)
  images = np.empty((len(found), *image_size, channels), np.uint8)
  for i, file in enumerate(found):
    try:
      images[i] = _fit(open_image(file), image_size, channels)
    except UNREADABLE as error:
      raise UserError(f'{file} does not decode ({error}): mend or remove it') from None
  return images


def open_image(path: str | pathlib.Path) -> Image.Image:
  """Reads an image as bytes without transparency, turned as its camera says.

  Images have 8 or 16 bits: 16 bits of gray are scaled to 8. What is transparent becomes white.

  Raises:
    One of `UNREADABLE`.
  """
  with Image.open(path) as opened:
    image, kind = ImageOps.exif_transpose(opened), opened.format
  # PNG and PGM have at most 16 bits, which Pillow may keep in 32.
  if image.mode.startswith('I;16') or (image.mode == 'I' and kind in ('PNG', 'PPM')):
    gray = np.asarray(image)
    gray = np.where(gray == image.info.get('transparency'), 65535, gray)
    return Image.fromarray(np.round(gray / 257).astype(np.uint8))
  if image.mode in ('I', 'F'):
    raise ValueError(f'its pixels, of mode {image.mode}, have no fixed range: give 8 or 16 bits')
  if image.has_transparency_data:
    image = image.convert('RGBA')
    white = Image.new('RGBA', image.size, 'white')
    return Image.alpha_composite(white, image)
  return image


def read_array(
  path: pathlib.Path, image_size: tuple[int, int] | None, channels: int | None
) -> np.ndarray:
  """Reads images from a file of NumPy.

  Args:
    path: of an .npy file, or an .npz file with one array: [N, H, W] or [N, H, W, C], uint8, bool,
      or float in [0, 1].
    image_size: (H, W) to change them to; None to leave them.
    channels: C to change them to, 1 or 3; None to leave them.

  Returns:
    uint8 [N, H, W, C].
  """
  images = _as_bytes(path, _load_array(path))
  size = image_size or images.shape[1:3]
  channels = channels or images.shape[3]
  if images.shape[1:] == (*size, channels):
    return images
  opened = (
    Image.fromarray(image.squeeze(-1) if image.shape[2] == 1 else image) for image in images
  )
  return np.stack([_fit(image, size, channels) for image in opened])


def _load_array(path: pathlib.Path) -> np.ndarray:
  try:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
      return loaded
    if len(loaded.files) != 1:
      raise UserError(f'{path} holds the arrays {loaded.files}: it must hold one')
    return loaded[loaded.files[0]]
  except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
    raise UserError(f'{path} is not a sound file of NumPy ({error})') from None


def _as_bytes(path: pathlib.Path, images: np.ndarray) -> np.ndarray:
  """Returns uint8 [N, H, W, C]."""
  if images.ndim == 3:
    images = images[..., None]
  if images.ndim != 4 or images.shape[3] not in _MODES or not images.size:
    raise UserError(
      f'{path} has the shape {images.shape}: it must be [N, H, W] or [N, H, W, 1 or 3]'
    )
  if images.dtype == np.uint8:
    return images
  if images.dtype == bool:
    return images * np.uint8(255)
  if not np.issubdtype(images.dtype, np.floating) or not ((images >= 0) & (images <= 1)).all():
    number = np.issubdtype(images.dtype, np.number)
    between = f' in {images.min()} to {images.max()}' if number else ''
    raise UserError(
      f'{path} must hold uint8, bool, or floats from 0 to 1, not {images.dtype}{between}'
    )
  return np.round(images * 255).astype(np.uint8)


def _fit(image: Image.Image, image_size: tuple[int, int], channels: int) -> np.ndarray:
  height, width = image_size
  image = ImageOps.fit(image.convert(_MODES[channels]), (width, height), Image.Resampling.BOX)
  return np.asarray(image).reshape(height, width, channels)


SPEC = Spec(
  name='images',
  load=load,
  binarizations=('none', 'threshold', 'dynamic'),
  options=ImagesOptions,
)
