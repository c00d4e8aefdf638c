"""The user's own images in files of arrays: NumPy's, MATLAB's, and IDX files."""

import math
import pathlib
import re
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import h5py
import numpy as np

from draw_jax import files, memory
from draw_jax.data import idx
from draw_jax.errors import UserError, first_line

ACCEPTED = 'a folder of images, or an .npy, .npz, .mat or IDX file'

# The names of arrays that are understood, such as images, x_train, testdata or train_labels.
_SPLITS = {'train': 'train', 'valid': 'valid', 'val': 'valid', 'test': 'test'}
_IMAGES, _LABELS = ('images', 'image', 'x', 'data'), ('labels', 'label', 'y', 'targets', 'target')
_NAME = re.compile(
  rf'(?:({"|".join(_SPLITS)})_?)?({"|".join(_IMAGES + _LABELS)})(?:_?({"|".join(_SPLITS)}))?'
)


class Found(NamedTuple):
  """The arrays of one split."""

  images: np.ndarray  # [N, H, W, C], of any type
  labels: np.ndarray | None  # [N, ...], of any type
  names: tuple[str, ...]  # what the file calls both, or the first


def is_one(path: pathlib.Path) -> bool:
  """Whether the name of a path is that of a file of arrays."""
  return path.suffix in ('.npy', '.npz', '.mat') or idx.is_idx(path)


def read(path: pathlib.Path, image_size: tuple[int, int] | None = None) -> dict[str, Found]:
  """The arrays of a file by split: 'train', and 'valid' and 'test' if they are there.

  Args:
    path: of the file.
    image_size: (H, W) of images whose pixels stand in one row; None for square ones.
  """
  if idx.is_idx(path):
    found = {}
    for split, parts in idx.siblings(path).items():
      arrays = {name: idx.read(part) for name, part in parts.items()}
      names = tuple(part.name for part in parts.values())
      found[split] = Found(arrays['images'], arrays.get('labels'), names)
  elif path.suffix == '.mat':
    found = _by_split(path, _load_mat(path), 2)
    found = {
      split: some._replace(images=_first(path, some, image_size)) for split, some in found.items()
    }
  else:
    found = _by_split(path, load_numpy(path), 3)
  order = [split for split in ('train', 'valid', 'test') if split in found]
  return {split: _checked(path, found[split]) for split in order}


def _by_split(path: pathlib.Path, arrays: Mapping[str, np.ndarray], rank: int) -> dict[str, Found]:
  """Images, which have `rank` axes or more, and labels among arrays, by their names."""
  images, labels = {}, {}
  for name in arrays:
    match = _NAME.fullmatch(name.lower())
    if not match or (match[1] and match[3]):
      continue
    role, split = (
      images if match[2] in _IMAGES else labels,
      _SPLITS[match[1] or match[3] or 'train'],
    )
    if split in role:
      raise UserError(f'{path} holds both {role[split]} and {name}: leave one of them out.')
    role[split] = name
  if 'train' not in images:
    others = [n for n, a in arrays.items() if a.ndim >= rank and a.dtype.kind in 'buif']
    others = list(arrays) if len(arrays) == 1 else others
    if images or len(others) != 1:
      raise UserError(
        f'{path} holds the arrays {", ".join(arrays) or "none"}: call one images, or x_train '
        'beside x_test, with labels as labels, or y_train and y_test.'
      )
    images['train'] = others[0]
  return {
    split: Found(arrays[name], arrays[labels[split]], (name, labels[split]))
    if split in labels
    else Found(arrays[name], None, (name,))
    for split, name in images.items()
  }


def _checked(path: pathlib.Path, found: Found) -> Found:
  """With images [N, H, W, C]."""
  images, labels = found.images, found.labels
  name = f'{path} has the shape {images.shape}'
  if images.ndim == 3:
    images = images[..., None]
  if images.ndim != 4 or images.shape[3] not in (1, 3) or not images.size:
    raise UserError(f'{name}: it must be [N, H, W] or [N, H, W, 1 or 3]')
  if labels is not None and len(images) not in labels.shape:
    raise UserError(
      f'{path}: {found.names[1]} has the shape {labels.shape} for {len(images)} images'
    )
  return found._replace(images=images)


def load_numpy(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Arrays by name; that of an .npy file is called images."""
  try:
    if zipfile.is_zipfile(path):
      with zipfile.ZipFile(path) as archive:
        memory.check(sum(entry.file_size for entry in archive.infolist()), f'{path}')
    else:
      np.load(path, mmap_mode='r', allow_pickle=False)  # Is it as long as its shape asks for?
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
      return {'images': loaded}
    with loaded:
      return {name: _load_member(loaded, name) for name in loaded.files}
  except UserError:
    raise
  except Exception as error:  # NumPy and zipfile raise whatever a damaged file leads to.
    raise UserError(f'{path} is not a sound file of NumPy ({first_line(error)})') from None


def _load_member(archive, name: str) -> np.ndarray:
  """One array of an .npz file, unless it is shorter than its shape asks for."""
  member = name if name in archive.zip.namelist() else f'{name}.npy'
  with archive.zip.open(member) as file:
    version = np.lib.format.read_magic(file)
    read = (np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0)
    shape, _, kind = read[version[0] > 1](file)
    if math.prod(shape) * kind.itemsize > archive.zip.getinfo(member).file_size:
      raise ValueError(f'{name} is shorter than its shape {shape} asks for')
  return archive[name]


def _load_mat(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Arrays by name, their axes as in MATLAB; other variables are left out."""
  import scipy.io  # which a config need not wait for

  try:
    if h5py.is_hdf5(path):  # of MATLAB 7.3, which has the axes the other way round
      with h5py.File(path) as file:
        arrays = {n: item for n, item in file.items() if isinstance(item, h5py.Dataset)}
        memory.check(sum(array.nbytes for array in arrays.values()), f'{path}')
        found = {name: array[()].T for name, array in arrays.items()}
    else:
      found = scipy.io.loadmat(path)
  except UserError:
    raise
  except Exception as error:  # SciPy raises whatever a damaged file leads to.
    raise UserError(f'{path} is not a sound .mat file ({first_line(error)})') from None
  return {
    name: array
    for name, array in found.items()
    if isinstance(array, np.ndarray) and array.dtype.kind in 'buif' and array.ndim > 1
  }


def _first(path: pathlib.Path, found: Found, image_size: tuple[int, int] | None) -> np.ndarray:
  """The images of MATLAB with the axis that counts them in front.

  MATLAB puts it last, and a row of pixels goes down the columns of an image; what Python wrote
  has it in front.
  """
  images, labels = found.images, found.labels
  if images.ndim > 4:
    return images  # to be refused
  first, last = (_is_image(shape, image_size) for shape in (images.shape[1:], images.shape[:-1]))
  if first == last and labels is not None:
    first, last = (size in labels.shape for size in (len(images), images.shape[-1]))
  if first == last:
    raise UserError(
      f'{path}: which axis of {found.names[0]} {images.shape} counts the images cannot be told. '
      'Give them as [N, H, W] in an .npy file, or labels beside them.'
    )
  images = images if first else np.moveaxis(images, -1, 0)
  if images.ndim > 2:
    return images
  height, width = image_size or (math.isqrt(images.shape[1]),) * 2
  return images.reshape(-1, width, height).swapaxes(1, 2)


def _is_image(shape: tuple[int, ...], image_size: tuple[int, int] | None) -> bool:
  """Whether axes are those of one image."""
  if len(shape) == 1:
    return (
      shape[0] == math.prod(image_size) if image_size else math.isqrt(shape[0]) ** 2 == shape[0]
    )
  return shape[0] == shape[1] if len(shape) == 2 else shape[2] in (1, 3)


def exists(path: pathlib.Path) -> bool:
  return files.is_there(path) and path.is_file()
