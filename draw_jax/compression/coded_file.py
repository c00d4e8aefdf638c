"""Files of coded images.

    8 bytes   MAGIC
    1 byte    VERSION
    4 bytes   length of the header, with the lowest first, as all numbers
    ...       header: JSON, compressed by zlib
    ...       stream: words of 32 bits
    32 bytes  sha256 of all bytes before

The header has the fields of `Header`.
"""

import dataclasses
import hashlib
import itertools
import json
import pathlib
import struct
import zlib
from typing import Any

import jax
import numpy as np

from draw_jax import files
from draw_jax.errors import UserError

MAGIC, VERSION = b'\x93DRAWJAX', 1
_PREFIX = struct.Struct('<8sBI')
_HASH = hashlib.sha256().digest_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
  """All that decoding needs besides model and stream.

  Attributes:
    model: its name, for messages.
    model_sha256: see `model_sha256`.
    glimpses: T.
    image_shape: (H, W, C).
    layout: of the array that the images are given back as, see `images.Layout`.
    images_sha256: of their bytes, uint8 [N, H, W, C].
    latent_bits: see `bits_back.Codec`, as the next.
    batch_size: the largest batch.
    batches: rows [size, how many batches of this size follow each other].
    borrowed: see `bits_back.Coded`.
    jax: its version.
    backend: such as cpu.
    fingerprint: of the arithmetic, see `bits_back.Codec.fingerprint`.
  """

  model: str
  model_sha256: str
  glimpses: int
  image_shape: tuple[int, int, int]
  layout: dict[str, Any]
  images_sha256: str
  latent_bits: int
  batch_size: int
  batches: list[list[int]]
  borrowed: int
  jax: str
  backend: str
  fingerprint: str

  @property
  def sizes(self) -> tuple[int, ...]:
    """Of each batch."""
    return tuple(size for size, times in self.batches for _ in range(times))

  @property
  def count(self) -> int:
    """Images."""
    return sum(size * times for size, times in self.batches)


def run_lengths(sizes: tuple[int, ...]) -> list[list[int]]:
  return [[size, len(list(group))] for size, group in itertools.groupby(sizes)]


def platform() -> dict[str, str]:
  """What arithmetic depends on, as far as it has a name."""
  return {'jax': jax.__version__, 'backend': jax.default_backend()}


def sha256(images: np.ndarray) -> str:
  return hashlib.sha256(np.ascontiguousarray(images)).hexdigest()


def pack(header: Header, words: np.ndarray) -> bytes:
  """The content of a file."""
  text = json.dumps(dataclasses.asdict(header), separators=(',', ':'))
  packed = zlib.compress(text.encode(), 9)
  stream = words.astype('<u4').tobytes()
  content = _PREFIX.pack(MAGIC, VERSION, len(packed)) + packed + stream
  return content + hashlib.sha256(content).digest()


def unpack(content: bytes, label: str) -> tuple[Header, np.ndarray]:
  """What `pack` was given; a `UserError` unless each byte is as it was written."""
  if not content.startswith(MAGIC):
    raise UserError(f'{label} was not written by draw_jax.compress.')
  body, digest = content[:-_HASH], content[-_HASH:]
  if len(body) < _PREFIX.size or hashlib.sha256(body).digest() != digest:
    raise UserError(
      f'{label} is damaged or cut: its content does not have the sha256 that it names.'
    )
  _, version, length = _PREFIX.unpack_from(body)
  if version != VERSION:
    raise UserError(
      f'{label} has the format {version}, this version reads {VERSION}: update draw_jax.'
    )
  try:
    fields = json.loads(zlib.decompress(body[_PREFIX.size : _PREFIX.size + length]))
    fields['image_shape'] = tuple(fields['image_shape'])
    words = np.frombuffer(body[_PREFIX.size + length :], '<u4').astype(np.uint32)
    return Header(**fields), words
  except (ValueError, TypeError, KeyError, zlib.error) as error:
    raise UserError(f'{label} does not have the header of its format.') from error


def read(path: pathlib.Path) -> tuple[Header, np.ndarray]:
  if not files.is_there(path):
    raise UserError(f'there is no file {path}.')
  try:
    return unpack(path.read_bytes(), str(path))
  except OSError as error:
    raise UserError(f'cannot read {path}: {error.strerror}.') from error


def check_platform(header: Header, label: str) -> None:
  """Refuses a file of another platform, whose numbers round in another way."""
  there, here = {name: getattr(header, name) for name in platform()}, platform()
  if there != here:
    words = ' and '.join(f'{name} {value}' for name, value in there.items() if value != here[name])
    now = ' and '.join(f'{name} {here[name]}' for name in here if there[name] != here[name])
    raise UserError(f'{label} was coded with {words}, and can only be decoded so; this is {now}.')
