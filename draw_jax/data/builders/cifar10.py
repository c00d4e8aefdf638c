"""CIFAR-10: 32 x 32 color images, 45,000 / 5,000 / 10,000, from the binary version."""

import pathlib
import tarfile
import zlib
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from draw_jax.data import sources
from draw_jax.data.builders import preparation, published
from draw_jax.errors import UserError

_FOLDER = 'cifar-10-batches-bin'
_RECORD = 1 + 3 * 32 * 32  # a label, then three planes
_LARGEST = 2**26  # bytes of a file in the archive; those published have 31 million


class DrawCifar10(published.PublishedBuilder):
  """The six .bin files -> splits train (50,000) and test (10,000)."""

  dataset = 'cifar10'
  page = 'https://www.cs.toronto.edu/~kriz/cifar.html'
  image_shape = (32, 32, 3)
  labeled = True
  files = (
    published.PublishedFile(
      'https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz',
      170052171,
      'c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd',
      folder=_FOLDER,
    ),
  )
  # Of the files inside: an archive that was made again is as good.
  content: ClassVar[dict[str, str]] = {
    'data_batch_1.bin': 'cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5',
    'data_batch_2.bin': 'a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed',
    'data_batch_3.bin': 'bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67',
    'data_batch_4.bin': '014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48',
    'data_batch_5.bin': '755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add',
    'test_batch.bin': '8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b',
  }

  def read(self, paths: dict[str, pathlib.Path]) -> dict[str, Iterable[tuple[Any, Any]]]:
    """Parses the files and checks them."""
    (path,) = paths.values()
    contents = _read_folder(path) if path.is_dir() else _read_archive(path)
    records = {'train': [], 'test': []}
    for name, sha256 in self.content.items():
      if name not in contents:
        raise UserError(f'{path} has no {name}: get it again from {self.page}')
      records[name.partition('_')[0].replace('data', 'train')].append(
        parse_bin(path / name, contents[name])
      )
      published.check_content(path / name, contents[name], sha256)
    return {split: _examples(np.concatenate(parts)) for split, parts in records.items()}


def _read_folder(path: pathlib.Path) -> dict[str, bytes]:
  return {file.name: file.read_bytes() for file in path.glob('*.bin')}


def _read_archive(path: pathlib.Path) -> dict[str, bytes]:
  try:
    with tarfile.open(path, 'r|gz') as archive:
      return {
        pathlib.PurePosixPath(member.name).name: archive.extractfile(member).read()
        for member in archive
        if member.isfile() and member.name.endswith('.bin') and member.size <= _LARGEST
      }
  except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
    raise UserError(f'{path} is not a sound .tar.gz file ({error}): get it again') from None


def parse_bin(path: pathlib.Path, content: bytes) -> np.ndarray:
  """Parses a file of the binary version into uint8 [N, 3073], a label and three planes each."""
  if not content or len(content) % _RECORD:
    raise UserError(f'{path} has {len(content)} bytes, not a multiple of {_RECORD}: get it again')
  return np.frombuffer(content, np.uint8).reshape(-1, _RECORD)


def _examples(records: np.ndarray) -> Iterable[tuple[int, sources.Example]]:
  for i, record in enumerate(records):
    image = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
    yield i, {'image': np.ascontiguousarray(image), 'label': record[0]}


def load(data_dir: str | None) -> dict[str, sources.Source]:
  """Returns the images; the last 5,000 of the published training split are for validation."""
  return preparation.load(
    DrawCifar10,
    data_dir,
    {'train': 'train[:45000]', 'valid': 'train[45000:]', 'test': 'test'},
  )
