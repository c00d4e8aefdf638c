"""Random access to the examples of one split, in memory where they fit."""

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Example = dict[str, Any]

# Larger splits stay on disk and are read record by record.
MEMORY_LIMIT = 2**30
_CHUNK = 4096
# Examples of a split on disk that stand for all in its checksum.
_CHECKED = 256


class Source(Protocol):
  """The examples of one split: `image` uint8 [H, W, C] and, where there is one, `label`."""

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> Example: ...


@dataclasses.dataclass(frozen=True)
class MemorySource:
  """A split that is held in memory.

  Attributes:
    images: uint8 [N, H, W, C].
    labels: int32 [N], or None.
    notes: what is to be said of where they come from.
  """

  images: np.ndarray
  labels: np.ndarray | None = None
  notes: tuple[str, ...] = ()

  def __len__(self) -> int:
    return len(self.images)

  def __getitem__(self, index: int) -> Example:
    example = {'image': self.images[index]}
    if self.labels is not None:
      example['label'] = self.labels[index]
    return example

  def take(self, indices: np.ndarray) -> 'MemorySource':
    """Returns the split that holds only these examples, in this order."""
    labels = None if self.labels is None else self.labels[indices]
    return dataclasses.replace(self, images=self.images[indices], labels=labels)


@dataclasses.dataclass(frozen=True)
class RecordSource:
  """A split that is read from its records whenever an example is asked for."""

  records: Sequence[Example]
  indices: np.ndarray  # int [N], where each example is among the records

  def __len__(self) -> int:
    return len(self.indices)

  def __getitem__(self, index: int) -> Example:
    return self.records[int(self.indices[index])]


def from_records(records: Sequence[Example], indices: np.ndarray | None = None) -> Source:
  """Returns a split of prepared records, held in memory if it is small enough.

  Args:
    records: what `tfds.data_source` gives.
    indices: int [N], the records that belong to the split; all of them if None.
  """
  indices = np.arange(len(records)) if indices is None else indices
  first = records[0]
  if len(indices) * first['image'].nbytes > MEMORY_LIMIT:
    return RecordSource(records, indices)
  images = np.empty((len(indices), *first['image'].shape), np.uint8)
  labels = np.empty(len(indices), np.int32) if 'label' in first else None
  for start in range(0, len(indices), _CHUNK):
    chunk = records.__getitems__(indices[start : start + _CHUNK].tolist())
    for i, example in enumerate(chunk, start):
      images[i] = example['image']
      if labels is not None:
        labels[i] = example['label']
  return MemorySource(images, labels)


def checksum(source: Source) -> int:
  """Returns the CRC-32 of all examples in memory, or of 256 spread over a split on disk."""
  if isinstance(source, MemorySource):
    arrays = [source.images, source.labels]
  else:
    places = np.unique(np.linspace(0, len(source) - 1, _CHECKED).astype(int))
    arrays = [value for place in places.tolist() for value in source[place].values()]
  found = 0
  for array in arrays:
    if array is not None:
      found = zlib.crc32(np.ascontiguousarray(array), found)
  return found
