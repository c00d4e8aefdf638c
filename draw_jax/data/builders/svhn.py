"""Multi-digit SVHN, 64 x 64, cut as in Goodfellow et al. 2013."""

import itertools
import pathlib
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import h5py
import numpy as np
from PIL import Image

from draw_jax.data import sources
from draw_jax.data.builders import intact, preparation, published
from draw_jax.errors import UserError, first_line

_URL = 'http://ufldl.stanford.edu/housenumbers/'
_SIZE = 64
_WIDEN = 0.3  # of the digits' common box, half on each side
_HELD_OUT, _SEED = 0.02, 64  # of the training images, for validation
_STRUCT = 'digitStruct.mat'


class DrawSvhn(published.PublishedBuilder):
  """{train,test,extra}.tar.gz or their folders -> splits of the same names."""

  dataset = 'svhn'
  page = _URL
  image_shape = (_SIZE, _SIZE, 3)
  ordered = False  # an archive and a folder list the images in different orders
  files = (
    published.PublishedFile(
      _URL + 'train.tar.gz',
      404141560,
      '4b17bb33b6cd8f963493168f80143da956f28ec406cc12f8e5745a9f91a51898',
      folder='train',
    ),
    published.PublishedFile(
      _URL + 'test.tar.gz',
      276555967,
      '57ac9ceb530e4aa85b55d991be8fc49c695b3d71c6f6a88afea86549efde7fb5',
      folder='test',
    ),
    published.PublishedFile(
      _URL + 'extra.tar.gz',
      1955489752,
      'e857e27d1e65bd1e7d3959b094061777f6506bbc39889a0df3bba6a729d60f9c',
      folder='extra',
      optional=True,
    ),
  )

  def read(self, paths: dict[str, pathlib.Path]) -> dict[str, Iterable[tuple[Any, Any]]]:
    """Parses the files and checks them."""
    for file in self.files:
      if file.name in paths and not paths[file.name].is_dir():
        published.check_file(paths[file.name], file)
    return {file.folder: _examples(paths[file.name]) for file in self.files if file.name in paths}


def _examples(path: pathlib.Path) -> Iterator[tuple[str, sources.Example]]:
  """Yields (name, example) for the images of a folder or an archive."""
  boxes = read_boxes(path / _STRUCT, _read_struct(path))
  for name, stream in _open_images(path):
    if name not in boxes:
      raise UserError(f'{path / _STRUCT} lacks a box for {name}: get it again')
    yield name, {'image': cut(path / name, stream, boxes.pop(name))}
  if boxes:
    raise UserError(f'{path} has no {next(iter(boxes))}, which its {_STRUCT} names: get it again')


def _read_struct(path: pathlib.Path) -> bytes:
  if path.is_dir():
    if (path / _STRUCT).exists():
      return (path / _STRUCT).read_bytes()
  else:
    for name, stream in _members(path):
      if name == _STRUCT:
        return stream.read()
  raise UserError(f'{path} has no {_STRUCT}: get it from {_URL}')


def _open_images(path: pathlib.Path) -> Iterator[tuple[str, BinaryIO]]:
  if not path.is_dir():
    yield from ((name, stream) for name, stream in _members(path) if name.endswith('.png'))
    return
  for image in path.glob('*.png'):
    with open(image, 'rb') as stream:
      yield image.name, stream


def _members(path: pathlib.Path) -> Iterator[tuple[str, BinaryIO]]:
  """Yields the files of an archive without unpacking it."""
  try:
    with tarfile.open(path, 'r|gz') as archive:
      for member in archive:
        if member.isfile():
          yield pathlib.PurePosixPath(member.name).name, archive.extractfile(member)
  except (tarfile.TarError, EOFError, zlib.error) as error:
    raise UserError(f'{path} is not a sound .tar.gz file ({error}): get it again') from None


def read_boxes(path: pathlib.Path, content: bytes) -> dict[str, np.ndarray]:
  """Reads a digitStruct.mat: MATLAB structs, which HDF5 keeps as arrays of references.

  Args:
    path: for messages.
    content: of the file.

  Returns:
    By the image's name, float [4, digits]: left, top, width and height of each digit.
  """
  boxes = {}
  try:
    with h5py.File(h5py.h5f.open_file_image(content)) as file:
      names, groups = (file[f'digitStruct/{field}'][:, 0] for field in ('name', 'bbox'))
      for name, group in itertools.zip_longest(names, groups):
        name = ''.join(map(chr, _follow(file, name)))
        boxes[name] = _read_box(file, group)
        if boxes[name] is None:
          raise UserError(f'{path} lacks a box for {name}: get it again')
  except UserError:
    raise
  except Exception as error:  # h5py raises whatever parts of another kind lead to.
    raise UserError(
      f'{path} is not a digitStruct file ({first_line(error)}): get it again'
    ) from None
  return boxes


def _read_box(file: h5py.File, reference: h5py.Reference | None) -> np.ndarray | None:
  """Returns float [4, digits], or None if a part is not there."""
  if not reference:
    return None
  group = h5py.h5r.dereference(reference, file.id)
  columns = []
  for key in (b'left', b'top', b'width', b'height'):
    if key not in group:
      return None
    column = _read_column(h5py.h5d.open(group, key))
    if column.dtype == object:  # one digit is kept as a number, several as references to numbers
      column = [_follow(file, cell)[0] for cell in column]
    columns.append(column)
  return np.array(columns, float) if len(columns[0]) else None


def _follow(file: h5py.File, reference: h5py.Reference) -> np.ndarray:
  return _read_column(h5py.h5r.dereference(reference, file.id))


def _read_column(data: h5py.h5d.DatasetID) -> np.ndarray:
  # There are a dozen of these an image, and h5py's comfortable interface takes thrice as long.
  values = np.empty(data.shape, data.dtype)
  data.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
  return values[:, 0]


def cut(path: pathlib.Path, stream: BinaryIO, boxes: np.ndarray) -> np.ndarray:
  """Cuts an image to its digits' common box, widened by 30 %, at 64 x 64.

  Args:
    path: for messages.
    stream: the image.
    boxes: float [4, digits]: left, top, width and height of each digit.

  Returns:
    uint8 [64, 64, 3].
  """
  try:
    image = Image.open(stream).convert('RGB')
  except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
    raise UserError(f'{path} does not decode ({error}): get it again') from None
  start = boxes[:2].min(axis=1)
  stop = (boxes[:2] + boxes[2:]).max(axis=1)
  margin = (stop - start) * _WIDEN / 2
  start = np.maximum(start - margin, 0)
  stop = np.minimum(stop + margin, image.size)
  if (start >= stop).any():
    raise UserError(f"{path}: its digits' boxes lie outside the image: get it again")
  return np.asarray(image.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR, (*start, *stop)))


def load(data_dir: str | None) -> dict[str, sources.Source]:
  """Returns train (with extra, if prepared) but for the 2 % held out as valid, and test."""
  builder = preparation.ensure_prepared(DrawSvhn, data_dir)
  published_splits = [name for name in ('train', 'extra') if name in builder.info.splits]
  records = intact.Records(builder, '+'.join(published_splits))
  order = np.random.default_rng(_SEED).permutation(len(records))
  held_out = round(_HELD_OUT * len(records))
  return {
    'train': sources.from_records(records, np.sort(order[held_out:])),
    'valid': sources.from_records(records, np.sort(order[:held_out])),
    'test': sources.from_records(intact.Records(builder, 'test')),
  }
