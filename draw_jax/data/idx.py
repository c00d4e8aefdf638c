"""IDX files, the format in which MNIST and its like are published."""

import gzip
import io
import math
import pathlib
import re
import zlib

import numpy as np

from draw_jax import memory
from draw_jax.errors import UserError

_HEAD = 4 + 4 * 255  # bytes of the longest header
_TYPES = {8: 'u1', 9: 'i1', 11: '>i2', 12: '>i4', 13: '>f4', 14: '>f8'}


def is_idx(path: pathlib.Path) -> bool:
  """Whether a file has a name that such files have, such as train-images-idx3-ubyte.gz."""
  return bool(re.search(r'idx\d', path.name))


def read(path: pathlib.Path) -> np.ndarray:
  """The array of a file, which may be compressed by gzip."""
  try:
    content = path.read_bytes()
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror}.') from None
  return parse(path, decompress(path, content) if content[:2] == b'\x1f\x8b' else content)


def decompress(path: pathlib.Path, content: bytes) -> bytes:
  """What a gzip file holds; the path is for messages."""
  try:
    with gzip.open(io.BytesIO(content)) as file:
      head = file.read(_HEAD)
      wanted = _wanted(head)
      if wanted is None:
        return head  # which says that it is no such file
      memory.check(wanted, f'{path}')
      # No more than it is to hold: a small file may become a thousand times as large.
      rest = file.read(max(0, wanted - len(head)) + 1)
    return head + rest
  except EOFError:
    raise UserError(f'{path} is truncated: get it again') from None
  except (gzip.BadGzipFile, zlib.error) as error:
    raise UserError(f'{path} is not a sound gzip file ({error}): get it again') from None


def parse(path: pathlib.Path, content: bytes) -> np.ndarray:
  """The array of an uncompressed file; the path is for messages."""
  if len(content) < 4 or content[:2] != b'\0\0' or content[2] not in _TYPES:
    raise UserError(f'{path} is no IDX file: it does not start as one.')
  kind, rank = np.dtype(_TYPES[content[2]]), content[3]
  if len(content) < 4 + 4 * rank:
    raise UserError(f'{path} ends before its header does: get it again.')
  shape = np.frombuffer(content, '>u4', rank, offset=4).tolist()
  found, wanted = len(content) - 4 - 4 * rank, math.prod(shape) * kind.itemsize
  if found != wanted:
    raise UserError(f'{path} holds {found} bytes of data where its header asks for {wanted}')
  values = np.frombuffer(content, kind, offset=4 + 4 * rank)
  return values.reshape(shape).astype(kind.newbyteorder('='))


def _wanted(head: bytes) -> int | None:
  """Bytes of the file with this beginning; None if it is none."""
  if len(head) < 4 or head[:2] != b'\0\0' or head[2] not in _TYPES or len(head) < 4 + 4 * head[3]:
    return None
  shape = np.frombuffer(head, '>u4', head[3], offset=4).tolist()
  return 4 + 4 * head[3] + math.prod(shape) * np.dtype(_TYPES[head[2]]).itemsize


def siblings(path: pathlib.Path) -> dict[str, dict[str, pathlib.Path]]:
  """The files that belong to one of images: by split, by 'images' and 'labels'."""
  splits = {'train': path}
  if 'train' in path.name:
    names = (path.name.replace('train', other, 1) for other in ('t10k', 'test'))
    tests = [test for name in names if (test := _there(path.with_name(name)))]
    if tests:
      splits['test'] = tests[0]
  found = {}
  for split, images in splits.items():
    found[split] = {'images': images}
    name = images.name.replace('images', 'labels', 1).replace('idx3', 'idx1', 1)
    if name != images.name and (labels := _there(images.with_name(name))):
      found[split]['labels'] = labels
  return found


def in_folder(folder: pathlib.Path) -> pathlib.Path | None:
  """The file of training images in a folder of such files."""
  found = sorted(path for path in folder.glob('train*images*idx3*') if path.is_file())
  return found[0] if found else None  # the uncompressed one, whose name is shorter


def _there(path: pathlib.Path) -> pathlib.Path | None:
  """The file, compressed or not."""
  plain = path.with_suffix('') if path.suffix == '.gz' else path
  others = (path, plain, plain.with_name(plain.name + '.gz'))
  return next((other for other in others if other.is_file()), None)
