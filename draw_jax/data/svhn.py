"""Multi-digit SVHN, 64 x 64, cut as in Goodfellow et al. 2013; batches are 54 x 54 patches."""

import contextlib
import io
import pathlib
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import h5py
import numpy as np
from PIL import Image

from draw_jax.data import preparation, published, sources, transforms
from draw_jax.data.spec import Options, Spec
from draw_jax.errors import UserError

_URL = 'http://ufldl.stanford.edu/housenumbers/'
_SIZE, _PATCH = 64, 54
_WIDEN = 0.3  # of the digits' common box, half on each side
_HELD_OUT, _SEED = 0.02, 64  # of the training pictures, for validation
_STRUCT = 'digitStruct.mat'


class DrawSvhn(published.PublishedBuilder):
  """{train,test,extra}.tar.gz or their folders -> splits of the same names."""

  dataset = 'svhn'
  page = _URL
  image_shape = (_SIZE, _SIZE, 3)
  ordered = False  # an archive and a folder list the pictures in different orders
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
    for file in self.files:
      if file.name in paths and not paths[file.name].is_dir():
        published.check_file(paths[file.name], file)
    return {file.folder: _examples(paths[file.name]) for file in self.files if file.name in paths}


def _examples(path: pathlib.Path) -> Iterator[tuple[str, sources.Example]]:
  """Yields (name, example) for the pictures of a folder or an archive."""
  with _open_struct(path) as struct:
    boxes = read_boxes(path / _STRUCT, struct)
  for name, stream in _open_pictures(path):
    if name not in boxes:
      raise UserError(f'{path / _STRUCT} lacks a box for {name}: get it again')
    yield name, {'image': cut(path / name, stream, boxes.pop(name))}
  if boxes:
    raise UserError(f'{path} has no {next(iter(boxes))}, which its {_STRUCT} names: get it again')


@contextlib.contextmanager
def _open_struct(path: pathlib.Path) -> Iterator[BinaryIO]:
  if not path.is_dir():
    for name, stream in _members(path):
      if name == _STRUCT:
        yield io.BytesIO(stream.read())
        return
  elif (path / _STRUCT).exists():
    with open(path / _STRUCT, 'rb') as stream:
      yield stream
    return
  raise UserError(f'{path} has no {_STRUCT}: get it from {_URL}')


def _open_pictures(path: pathlib.Path) -> Iterator[tuple[str, BinaryIO]]:
  if not path.is_dir():
    yield from ((name, stream) for name, stream in _members(path) if name.endswith('.png'))
    return
  for picture in path.glob('*.png'):
    with open(picture, 'rb') as stream:
      yield picture.name, stream


def _members(path: pathlib.Path) -> Iterator[tuple[str, BinaryIO]]:
  """Yields the files of an archive without unpacking it."""
  try:
    with tarfile.open(path, 'r|gz') as archive:
      for member in archive:
        if member.isfile():
          yield pathlib.PurePosixPath(member.name).name, archive.extractfile(member)
  except (tarfile.TarError, EOFError, zlib.error) as error:
    raise UserError(f'{path} is not a sound .tar.gz file ({error}): get it again') from None


def read_boxes(path: pathlib.Path, stream: BinaryIO) -> dict[str, np.ndarray]:
  """Reads a digitStruct.mat: MATLAB structs, which HDF5 keeps as arrays of references.

  Args:
    path: for messages.
    stream: the file.

  Returns:
    By the picture's name, float [4, digits]: left, top, width and height of each digit.
  """
  try:
    with h5py.File(stream) as file:
      names = file['digitStruct/name'][:, 0]
      groups = file['digitStruct/bbox'][:, 0]
      boxes = {}
      for i, reference in enumerate(names):
        name = ''.join(map(chr, file[reference][:, 0]))
        boxes[name] = _read_box(file, groups[i]) if i < len(groups) else None
        if boxes[name] is None:
          raise UserError(f'{path} lacks a box for {name}: get it again')
      return boxes
  except (OSError, KeyError, ValueError) as error:
    raise UserError(f'{path} is not a digitStruct file ({error}): get it again') from None


def _read_box(file: h5py.File, reference: h5py.Reference) -> np.ndarray | None:
  """Returns float [4, digits], or None if a part is not there."""
  if not reference:
    return None
  group = file[reference]
  fields = [group.get(key) for key in ('left', 'top', 'width', 'height')]
  if any(field is None or not field.size for field in fields):
    return None
  # One digit is stored as a number, several as references to numbers.
  return np.array(
    [
      field[:, 0] if field.size == 1 else [file[cell][0, 0] for cell in field[:, 0]]
      for field in fields
    ],
    float,
  )


def cut(path: pathlib.Path, stream: BinaryIO, boxes: np.ndarray) -> np.ndarray:
  """Cuts a picture to its digits' common box, widened by 30 %, at 64 x 64.

  Args:
    path: for messages.
    stream: the picture.
    boxes: float [4, digits]: left, top, width and height of each digit.

  Returns:
    uint8 [64, 64, 3].
  """
  try:
    picture = Image.open(stream).convert('RGB')
  except (OSError, SyntaxError, ValueError) as error:
    raise UserError(f'{path} does not decode ({error}): get it again') from None
  start = boxes[:2].min(axis=1)
  stop = (boxes[:2] + boxes[2:]).max(axis=1)
  margin = (stop - start) * _WIDEN / 2
  start = np.maximum(start - margin, 0)
  stop = np.minimum(stop + margin, picture.size)
  if (start >= stop).any():
    raise UserError(f"{path}: its digits' boxes lie outside the picture: get it again")
  return np.asarray(picture.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR, (*start, *stop)))


def load(options: Options) -> dict[str, sources.Source]:
  """Returns train (with extra, if prepared) but for the 2 % held out as valid, and test."""
  builder = preparation.ensure_prepared(DrawSvhn, options.data_dir)
  published_splits = [name for name in ('train', 'extra') if name in builder.info.splits]
  records = builder.as_data_source('+'.join(published_splits))
  order = np.random.default_rng(_SEED).permutation(len(records))
  held_out = round(_HELD_OUT * len(records))
  return {
    'train': sources.from_records(records, np.sort(order[held_out:])),
    'valid': sources.from_records(records, np.sort(order[:held_out])),
    'test': sources.from_records(builder.as_data_source('test')),
  }


def patches(source: sources.Source, training: bool) -> transforms.Transform:
  """Patches at random places in training, at the centre in evaluation."""
  del source
  return transforms.random_crop(_PATCH) if training else transforms.centre_crop(_PATCH)


SPEC = Spec(name='svhn', load=load, builder=DrawSvhn, binarizations=('none',), transform=patches)
