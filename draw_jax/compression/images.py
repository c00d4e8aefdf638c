"""Images to code, from files and datasets, and files of the same images."""

import os
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np
from PIL import Image

from draw_jax import data, files
from draw_jax.data import array_files, registry
from draw_jax.data import images as data_images
from draw_jax.errors import UserError

_CHUNK = 1000
_MODES = {1: ('1', 'L'), 3: ('RGB',)}  # of Pillow, by channels
_ARRAYS = ('.npy', '.npz')


class Layout(NamedTuple):
  """The array that images were given as.

  Attributes:
    dtype: such as '|u1'.
    ndim: 3 without an axis of channels, or 4.
    one: what stands there for 255; None for bytes as they are.
  """

  dtype: str = '|u1'
  ndim: int = 4
  one: int | None = None

  def restore(self, images: np.ndarray) -> np.ndarray:
    """The array of images uint8 [N, H, W, C]."""
    if self.one is not None:
      images = ((images > 0) * self.one).astype(self.dtype)
    return images[..., 0] if self.ndim == 3 else images


class Given(NamedTuple):
  """Images that were given."""

  images: np.ndarray  # uint8 [N, H, W, C], in binary ones 255 for a one
  layout: Layout
  label: str  # for people


def read(source: str, model, binary: bool) -> Given:
  """The images of a file, a folder, or a split of a dataset.

  Args:
    source: a path, or NAME:SPLIT.
    model: the `trained.TrainedModel` that codes them.
    binary: whether it codes pixels of two values only.
  """
  path = pathlib.Path(source).expanduser()
  name, _, split = source.rpartition(':')
  if name in data.NAMES and not files.is_there(path):
    given = _of_dataset(name, split, model)
  elif path.suffix in _ARRAYS and files.is_there(path):
    given = _of_array(path)
  elif path.is_dir():
    given = _of_folder(path, model.image_shape)
  else:
    raise UserError(
      f'{source} is neither an .npy or .npz file, nor a folder of images, nor DATASET:SPLIT such '
      'as binarized_mnist:test.'
    )
  if not len(given.images):
    raise UserError(f'{given.label} has no images.')
  if given.images.shape[1:] != model.image_shape:
    there, needed = (' x '.join(map(str, s)) for s in (given.images.shape[1:], model.image_shape))
    raise UserError(f'{given.label} has images of {there}, and the model codes those of {needed}.')
  if binary and not np.isin(given.images, (0, 255)).all():
    raise UserError(
      f'{given.label} has gray values, and the model codes images of two values only: give '
      'binary ones.'
    )
  return given


def _of_dataset(name: str, split: str, model) -> Given:
  if name == model.config.data.name:
    dataset = model.dataset
  else:
    takes = registry.find(name).binarizations
    binarization = model.binarization if model.binarization in takes else None
    dataset = data.open_dataset(name, data_dir=model.data_dir, binarization=binarization)
  batches = dataset.eval_batches(split, _CHUNK)
  images = np.concatenate([batch['image'][batch['mask']] for batch in batches])
  return Given(images, Layout(), f'{name} ({dataset.binarization}), split {split}')


def _of_array(path: pathlib.Path) -> Given:
  arrays = array_files.load_numpy(path)
  if len(arrays) != 1:
    raise UserError(f'{path} holds the arrays {", ".join(arrays) or "none"}: it must hold one.')
  (array,) = arrays.values()
  if array.ndim not in (3, 4):
    raise UserError(f'{path} has the shape {array.shape}: it must be [N, H, W] or [N, H, W, C].')
  zeros_and_ones = np.isin(array, (0, 1)).all()
  if zeros_and_ones or array.dtype == np.uint8:
    layout = Layout(array.dtype.str, array.ndim, 1 if zeros_and_ones else None)
    images = 255 * (array == 1).astype(np.uint8) if zeros_and_ones else array
    images = images[..., None] if array.ndim == 3 else images
    # Such as of a zero with a sign, not.
    if layout.restore(images).tobytes() == array.tobytes():
      return Given(images, layout, str(path))
  raise UserError(
    f'{path} holds {array.dtype}: give uint8, or zeros and ones of any type, which can be given '
    'back as they were.'
  )


def _of_folder(path: pathlib.Path, shape: tuple[int, int, int]) -> Given:
  height, width, channels = shape
  found = data_images.list_folder(path)
  images = np.empty((len(found), *shape), np.uint8)
  for i, file in enumerate(found):
    try:
      with Image.open(file) as opened:
        mode = opened.mode
      image = data_images.open_image(file)
    except data_images.UNREADABLE as error:
      raise UserError(f'{file} does not decode ({error}): mend or remove it.') from None
    if {mode, image.mode} - {*_MODES.get(channels, ())} or image.size != (width, height):
      raise UserError(
        f'{file} is {image.height} x {image.width} of mode {mode}, and the model codes '
        f'{height} x {width} of mode {" or ".join(_MODES.get(channels, ("none",)))}.'
      )
    images[i] = np.asarray(image.convert(_MODES[channels][-1])).reshape(shape)
  return Given(images, Layout(), str(path))


def write(path: pathlib.Path, images: np.ndarray, layout: Layout) -> None:
  """Writes an .npy or .npz file of the array as it was, or a folder of PNG files."""
  if path.suffix in _ARRAYS:
    with files.writing(path) as temporary:
      if path.suffix == '.npy':
        np.save(temporary, layout.restore(images))
      else:
        np.savez(temporary, images=layout.restore(images))
    return
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'.{path.name}.', dir=path.parent) as temporary:
      folder = pathlib.Path(temporary) / path.name
      folder.mkdir()
      for i, image in enumerate(images):
        image = image[..., 0] if image.shape[-1] == 1 else image
        Image.fromarray(image).save(folder / f'{i:0{len(str(len(images) - 1))}}.png')
      # An empty folder gives way.
      os.replace(folder, path)
  except OSError as error:
    raise UserError(f'cannot write {path}: {error.strerror or error}.') from error
