"""The user's own images: a folder of them, or arrays in a file.

What was taken, and the range of its values, is in `draw_jax.data.Dataset.notes`.
"""

import dataclasses
import errno
import math
import os
import pathlib
import warnings

import numpy as np
from PIL import Image, ImageOps

from draw_jax import fields, files, memory
from draw_jax.data import array_files, idx, pixels, sources
from draw_jax.data.spec import Spec
from draw_jax.errors import UserError, first_line

_HELD_OUT, _SEED = 0.1, 1  # for validation
_MODES = {1: 'L', 3: 'RGB'}
_SPLITS = {'train': 'train', 'valid': 'valid', 'val': 'valid', 'test': 'test'}  # names of folders
_SHOWN = 10  # classes that a note names

# What `open_image` raises for a file that is no image, or one that cannot be taken: Pillow raises
# whatever the damage makes of its readers.
UNREADABLE = (Exception,)

# uint8 [N, H, W, C], and the names of the classes of the images [N], where they have some.
_Split = tuple[np.ndarray, np.ndarray | None]


@dataclasses.dataclass(frozen=True)
class ImagesOptions:
  """Where your own images are, and what to make of them."""

  path: str | None = fields.field(None, help='A folder, or an .npy, .npz, .mat or IDX file.')
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
  """Returns the user's images, with their labels where they have some.

  Where nothing is for validation, a tenth of what there is to train on is held out by a fixed seed.
  """
  del data_dir
  if not options.path:
    raise UserError(f"the dataset 'images' needs a path: {array_files.ACCEPTED}")
  path = pathlib.Path(options.path).expanduser()
  if options.channels not in (None, *_MODES):
    raise UserError(f'channels={options.channels}: images have 1 or 3')
  if path.is_dir():
    file = idx.in_folder(path)
  else:
    file = path if array_files.is_one(path) and array_files.exists(path) else None
    if file is None:
      problem = 'is not' if files.is_there(path) else 'does not exist: give'
      raise UserError(f'{path} {problem} {array_files.ACCEPTED}')
  if file is None:
    splits, notes = _from_folder(path, options.shape, options.channels or 3)
  else:
    splits, notes = _from_arrays(file, options.shape, options.channels)
  if all(pixels.is_binary(images) for images, _ in splits.values()):
    notes.append(
      'every pixel is black or white: with binarization threshold, which leaves them so, results '
      'are bounds on their likelihood'
    )
  splits, more = _with_class_numbers(splits)
  return _held_out(path, splits, (*notes, *more))


def _held_out(path: pathlib.Path, splits: dict[str, _Split], notes: tuple[str, ...]):
  """The sources, with one for validation."""
  found = {
    name: sources.MemorySource(images, labels, notes) for name, (images, labels) in splits.items()
  }
  train = found['train']
  if len(train) < 2:
    raise UserError(f'{path} holds {len(train)} images: at least 2 are needed')
  if 'valid' not in found:
    order = np.random.default_rng(_SEED).permutation(len(train))
    held_out = max(1, round(_HELD_OUT * len(train)))
    found['valid'] = train.take(np.sort(order[:held_out]))
    found['train'] = train.take(np.sort(order[held_out:]))
  return {name: found[name] for name in ('train', 'valid', 'test') if name in found}


def _from_arrays(
  path: pathlib.Path, image_size: tuple[int, int] | None, channels: int | None
) -> tuple[dict[str, _Split], list[str]]:
  """The splits of a file of arrays, and what was taken; see `array_files.read`.

  Args:
    path: of the file.
    image_size: (H, W) to change images to; None to leave them.
    channels: C to change them to, 1 or 3; None to leave them.
  """
  found = array_files.read(path, image_size)
  taken = {split: some.images for split, some in found.items()}
  scaled, range_ = pixels.to_bytes(taken, f'the images of {path}')
  if len({images.shape[1:] for images in scaled.values()}) > 1:
    shapes = ' and '.join(f'{images.shape[1:]}' for images in scaled.values())
    raise UserError(f'{path} holds images of {shapes}: they must all have one size.')
  file = path.parent if idx.is_idx(path) else path
  notes = [
    f'{split}: {" with ".join(some.names)} of {file}, {len(some.images):,} images of '
    f'{" x ".join(map(str, some.images.shape[1:]))}'
    for split, some in found.items()
  ]
  splits = {}
  for split, images in scaled.items():
    size = image_size or images.shape[1:3]
    shape = (*size, channels or images.shape[3])
    if images.shape[1:] != shape:
      images = np.stack([_fit(_opened(image), *shape) for image in images])
    splits[split] = images, _classes(found[split].labels, len(images))
  return splits, [*notes, f'values: {range_}']


def _classes(labels: np.ndarray | None, num: int) -> np.ndarray | None:
  """The classes of images [N], from labels [N], [N, 1], or [N, K] of which one is 1."""
  if labels is None:
    return None
  if labels.size == num:
    return labels.reshape(num)
  labels = labels.reshape(num, -1) if len(labels) == num else labels.reshape(-1, num).T
  one_hot = (
    labels.dtype.kind in 'buif'
    and ((labels == 0) | (labels == 1)).all()
    and (labels.sum(1) == 1).all()
  )
  return labels.argmax(1) if one_hot else labels


def _with_class_numbers(splits: dict[str, _Split]) -> tuple[dict[str, _Split], list[str]]:
  """The classes as numbers from 0, in the order of their names, and what they are."""
  found = [classes for _, classes in splits.values() if classes is not None]
  one_each = all(classes.ndim == 1 for classes in found)
  names = np.unique(np.concatenate(found)) if found and one_each else np.array([])
  if not one_each or (names.dtype.kind == 'f' and (names != np.round(names)).any()):
    problem = 'as they are neither whole numbers nor names'
  elif len(found) < len(splits):
    problem = 'as not every image has one'
  else:
    numbered = {
      name: (images, np.searchsorted(names, classes).astype(np.int32))
      for name, (images, classes) in splits.items()
    }
    names = names.astype(int) if names.dtype.kind == 'f' else names
    if names.tolist() == list(range(len(names))):
      return numbered, [f'labels: {len(names)} classes, 0 to {len(names) - 1}']
    shown = [f'{i} for {name}' for i, name in enumerate(names[:_SHOWN].tolist())]
    more = f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''
    return numbered, [f'labels: {len(names)} classes, {", ".join(shown)}{more}']
  without = {name: (images, None) for name, (images, _) in splits.items()}
  return without, [f'labels: left out, {problem}'] if found else []


def _num_classes(splits: dict[str, sources.MemorySource]) -> int | None:
  if splits['train'].labels is None:
    return None
  return 1 + int(max(split.labels.max() for split in splits.values()))


def _from_folder(
  path: pathlib.Path, image_size: tuple[int, int] | None, channels: int
) -> tuple[dict[str, _Split], list[str]]:
  """The splits of a folder, and what was taken.

  Folders called train, valid (or val) and test are splits, if nothing else is beside them. Where
  all images of each are in folders, those are their classes.
  """
  if image_size is None:
    raise UserError('a folder of images needs an image_size')
  if not os.access(path, os.R_OK | os.X_OK):
    raise UserError(f'cannot look into {path}: {os.strerror(errno.EACCES)}.')
  inside = [entry for entry in path.iterdir() if entry.name[0] != '.']
  roots = {_SPLITS.get(entry.name): entry for entry in inside if entry.is_dir()}
  if 'train' not in roots or None in roots or len(roots) < len(inside):
    roots = {'train': path}
  splits, notes = {}, []
  for split, root in sorted(roots.items(), key=lambda pair: list(_SPLITS).index(pair[0])):
    images, files = read_folder(root, image_size, channels)
    inside = [file.relative_to(root).parts for file in files]
    labeled = len({parts[0] for parts in inside}) > 1 and all(len(parts) > 1 for parts in inside)
    splits[split] = images, np.array([parts[0] for parts in inside]) if labeled else None
    if not len(images):
      raise UserError(f'{root} holds 0 images: at least 2 are needed')
    notes.append(
      f'{split}: {len(images):,} images below {root}, scaled and cut to '
      f'{" x ".join(map(str, images.shape[1:]))}, values: {images.min()} to {images.max()}'
    )
  if max(images.max() for images, _ in splits.values()) == 0:
    raise UserError(f'every image below {path} is black: give others')
  return splits, notes


def read_folder(
  path: pathlib.Path, image_size: tuple[int, int], channels: int
) -> tuple[np.ndarray, list[pathlib.Path]]:
  """Reads every image below a folder, in the order of their names; see `open_image`.

  Images of 0 and 1 alone, as masks are, are read as black and white.

  Args:
    path: of the folder.
    image_size: (H, W); images are scaled to fill it and cut to their middle.
    channels: C, 1 or 3.

  Returns:
    uint8 [N, H, W, C], and their files.
  """
  found = list_folder(path)
  memory.check(len(found) * math.prod((*image_size, channels)), f'image_size={max(image_size)}')
  images = np.empty((len(found), *image_size, channels), np.uint8)
  for masks in (False, True):
    highest = 0
    for i, file in enumerate(found):
      try:
        image = open_image(file).convert(_MODES[channels])
        highest = max(highest, *np.ravel(image.getextrema()))
        image = image.point(lambda value: 255 if value else 0) if masks else image
        images[i] = _fit(image, *image_size, channels)
      except UNREADABLE as error:
        raise UserError(
          f'{file} does not decode ({first_line(error)}): mend or remove it'
        ) from None
    if highest != 1:
      break
  return images, found


def list_folder(path: pathlib.Path) -> list[pathlib.Path]:
  """The images below a folder, in the order of their names."""
  known = Image.registered_extensions()
  # A pipe would let us wait for ever.
  return sorted(f for f in path.rglob('*') if f.suffix.lower() in known and f.is_file())


def open_image(path: str | pathlib.Path) -> Image.Image:
  """Reads an image as bytes without transparency, turned as its camera says.

  Images have 8 or 16 bits: 16 bits of gray are scaled to 8. What is transparent becomes white.

  Raises:
    One of `UNREADABLE`.
  """
  with warnings.catch_warnings():
    # Of as many pixels as a small file can have, Pillow by itself only warns.
    warnings.simplefilter('error', Image.DecompressionBombWarning)
    return _open_image(path)


def _open_image(path: str | pathlib.Path) -> Image.Image:
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


def _opened(image: np.ndarray) -> Image.Image:
  return Image.fromarray(image.squeeze(-1) if image.shape[2] == 1 else image)


def _fit(image: Image.Image, height: int, width: int, channels: int) -> np.ndarray:
  image = ImageOps.fit(image.convert(_MODES[channels]), (width, height), Image.Resampling.BOX)
  return np.asarray(image).reshape(height, width, channels)


SPEC = Spec(
  name='images',
  load=load,
  binarizations=('none', 'threshold', 'dynamic'),
  num_classes=_num_classes,
  resized=lambda options: options.image_size is not None,
  options=ImagesOptions,
)
