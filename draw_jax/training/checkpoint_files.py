"""One checkpoint on disk: what was saved of it, and whether it is still that.

Orbax notices a file that is short, and neither a changed number nor changed metadata. So with a
checkpoint go a checksum of each part's arrays and one of all else that is saved; checkpoints of
before it have only the former.
"""

import json
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging
from orbax.checkpoint import v1 as ocp

from draw_jax import renamed
from draw_jax.errors import first_line
from draw_jax.pretrained import file_format

_PARTS = {'params', 'ema', 'rest'}
_SAYS = 'metadata'  # the checksum of what is not in an array


class Record(NamedTuple):
  """What was saved beside the arrays."""

  progress: dict[str, Any]  # by today's names of its fields
  metrics: dict[str, float] | None  # of the evaluation at this step, and its `rank`
  checksums: dict[str, int]
  metadata: Mapping[str, Any]  # shapes and types of the arrays, by part


def to_save(parts: Mapping[str, Any], progress: dict, metrics: dict | None) -> dict[str, Any]:
  """What goes with the arrays and the metrics of a checkpoint; `record` reads it."""
  checksums = {name: checksum(part) for name, part in parts.items()}
  forms = _forms(jax.tree.map(without_key_type, parts))
  # As they will be read: JSON has no tuples.
  progress, metrics = json.loads(json.dumps([progress, metrics]))
  return {
    'progress': progress,
    'checksums': {**checksums, _SAYS: _checksum_of_json(progress, metrics, checksums, forms)},
  }


def record(path: pathlib.Path) -> Record:
  """Reads what was saved beside the arrays; raises some error if it is damaged."""
  about = ocp.checkpointables_metadata(path)
  if not 0 < (about.commit_timestamp_nsecs or 1) < 2**62:
    raise ValueError('its time is wrong')
  progress, checksums = (about.custom_metadata[name] for name in ('progress', 'checksums'))
  file = path / 'metrics' / 'metrics'
  metrics = json.loads(file.read_text()) if file.exists() else None
  if not _PARTS <= checksums.keys() <= _PARTS | {_SAYS}:
    raise ValueError('its checksums are not those of its parts')
  if _SAYS in checksums:
    arrays = {name: checksums[name] for name in _PARTS}
    said = _checksum_of_json(progress, metrics, arrays, _forms(about.metadata))
    if said != checksums[_SAYS]:
      raise ValueError('the checksum of its metadata is wrong')
  progress = renamed.record(progress)
  if progress.get('best'):
    progress['best'] = renamed.record(progress['best'])
  return Record(progress, metrics, checksums, about.metadata)


def read(path: pathlib.Path, abstract: dict[str, Any], checksums: Mapping[str, int]) -> dict:
  """Some parts of a checkpoint; raises some error if they are damaged."""
  parts = ocp.load_checkpointables(path, abstract)
  for name, part in parts.items():
    if checksum(part) != checksums[name]:
      raise ValueError(f'the checksum of {name!r} is wrong')
  return parts


def checksum(tree) -> int:
  """Of the numbers of all arrays."""
  found = 0
  for leaf in jax.tree.leaves(tree):
    found = zlib.crc32(np.ascontiguousarray(without_key_type(leaf)), found)
  return found


def without_key_type(array):
  """The array, or the numbers of random keys, as which they are saved."""
  is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
  return jax.random.key_data(array) if is_key else array


def warn(path: pathlib.Path, error: Exception) -> None:
  """Says that a checkpoint is passed over."""
  logging.warning('checkpoint %s cannot be read and is passed over: %s', path, first_line(error))


def put_aside(path: pathlib.Path) -> None:
  """Moves a checkpoint out of the way of those to come."""
  aside = path.parent.parent / 'damaged'
  aside.mkdir(exist_ok=True)
  # In a bucket a folder is there if something is in it.
  (aside / 'about.txt').write_text('Checkpoints that could not be read.\n')
  names = (aside / (path.name + (f'.{i}' if i else '')) for i in range(1000))
  path.rename(next(name for name in names if not name.exists()))


def _forms(parts: Mapping[str, Any]) -> list[str]:
  """Name, type and shape of each array."""
  named = {part: file_format.by_name(parts[part]) for part in _PARTS}
  return sorted(
    f'{part}/{name} {array.dtype} {list(array.shape)}'
    for part, arrays in named.items()
    for name, array in arrays.items()
  )


def _checksum_of_json(*values: Any) -> int:
  return zlib.crc32(json.dumps(values, sort_keys=True).encode())
