"""Whether a prepared dataset is still as it was written; what is damaged is told in one line."""

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow_datasets as tfds

from draw_jax import files
from draw_jax.data.sources import Example
from draw_jax.errors import UserError, first_line

_CHECKSUMS = 'checksums.json'
# Bytes of a piece, and how many of a larger file go into its checksum, evenly spread. Records have
# hashes of their own, besides, that are compared when they are read.
_PIECE, _PIECES = 2**20, 64


def seal(builder: tfds.core.DatasetBuilder) -> None:
  """Writes the checksums of what was prepared beside it. A bucket has its own."""
  if files.is_remote(builder.data_dir):
    return
  folder = pathlib.Path(builder.data_dir)
  found = {path.name: _checksum(path) for path in sorted(folder.iterdir()) if path.is_file()}
  files.write_text(folder / _CHECKSUMS, json.dumps(found, indent=2) + '\n')


def check(builder: tfds.core.DatasetBuilder) -> None:
  """Raises a `UserError` if a file has another checksum; there are none of older datasets."""
  with reading(builder.data_dir):
    if not builder.info.splits:
      raise ValueError('dataset_info.json names no splits')
    if files.is_remote(builder.data_dir):
      return
    folder = pathlib.Path(builder.data_dir)
    if not (folder / _CHECKSUMS).exists():
      return
    for name, checksum in json.loads((folder / _CHECKSUMS).read_text()).items():
      if not (folder / name).is_file():
        raise ValueError(f'{name} is missing')
      if _checksum(folder / name) != checksum:
        raise ValueError(f'{name} is not as it was written')


@contextlib.contextmanager
def reading(folder: str | os.PathLike) -> Iterator[None]:
  """Tells in one line what is wrong with a prepared dataset, whichever library says it."""
  try:
    yield
  except (UserError, MemoryError, OSError):  # The last are about the place.
    raise
  except Exception as error:
    raise UserError(
      f'{folder} cannot be read ({first_line(error)}). If it is damaged, remove that folder: the '
      'same command prepares it anew.'
    ) from error


class Records(Sequence[Example]):
  """The records of a prepared dataset."""

  def __init__(self, builder: tfds.core.DatasetBuilder, split: str):
    """Opens them.

    Args:
      builder: of the dataset.
      split: in TFDS's notation.
    """
    self._folder = builder.data_dir
    with reading(self._folder):
      self._records = builder.as_data_source(split)

  def __len__(self) -> int:
    return len(self._records)

  def __getitem__(self, index: int) -> Example:
    with reading(self._folder):
      return self._records[index]

  def __getitems__(self, indices: Sequence[int]) -> list[Example]:
    with reading(self._folder):
      return self._records.__getitems__(indices)


def _checksum(path: pathlib.Path) -> str:
  size = path.stat().st_size
  if size <= _PIECE * _PIECES:
    starts = range(0, size, _PIECE)
  else:
    starts = np.linspace(0, size - _PIECE, _PIECES).astype(int).tolist()
  found = hashlib.sha256(f'{size} bytes'.encode())
  with open(path, 'rb') as file:
    for start in starts:
      file.seek(start)
      found.update(file.read(_PIECE))
  return found.hexdigest()
