"""The fixed binarization of MNIST (Salakhutdinov & Murray 2008), 50,000 / 10,000 / 10,000."""

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from draw_jax.data import sources
from draw_jax.data.builders import preparation, published
from draw_jax.errors import UserError

_URL = 'http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/'
_COLUMNS = 784


class DrawBinarizedMnist(published.PublishedBuilder):
  """The three .amat texts -> splits train, valid and test."""

  dataset = 'binarized_mnist'
  page = _URL
  image_shape = (28, 28, 1)
  files = (
    published.PublishedFile(
      _URL + 'binarized_mnist_train.amat',
      78400000,
      'ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d',
    ),
    published.PublishedFile(
      _URL + 'binarized_mnist_valid.amat',
      15680000,
      '1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2',
    ),
    published.PublishedFile(
      _URL + 'binarized_mnist_test.amat',
      15680000,
      'e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c',
    ),
  )

  def read(self, paths: dict[str, pathlib.Path]) -> dict[str, Iterable[tuple[Any, Any]]]:
    """Parses the files and checks them."""
    images = {}
    for file in self.files:
      split = pathlib.Path(file.name).stem.rpartition('_')[2]
      images[split] = parse_amat(paths[file.name])
      published.check_file(paths[file.name], file)
    return {
      split: ((i, {'image': image}) for i, image in enumerate(array))
      for split, array in images.items()
    }


def parse_amat(path: pathlib.Path) -> np.ndarray:
  """Parses a text of one image a line, its pixels row by row as 0 or 1.

  Returns:
    uint8 [N, 28, 28, 1], 0 or 255.
  """
  lines = path.read_bytes().splitlines()
  pixels = bytearray()
  for number, line in enumerate(lines, 1):
    words = line.split()
    if len(words) != _COLUMNS:
      raise UserError(f'{path}, line {number}: {len(words)} columns, not {_COLUMNS}')
    joined = b''.join(words)
    if len(joined) != _COLUMNS or joined.strip(b'01'):
      wrong = next(word for word in words if word not in (b'0', b'1'))
      raise UserError(f'{path}, line {number}: {wrong.decode(errors="replace")!r} is not 0 or 1')
    pixels += joined
  bits = np.frombuffer(pixels, np.uint8) - ord('0')
  return (bits * np.uint8(255)).reshape(-1, 28, 28, 1)


def load(data_dir: str | None) -> dict[str, sources.Source]:
  """Returns the published splits."""
  return preparation.load(
    DrawBinarizedMnist, data_dir, {name: name for name in ('train', 'valid', 'test')}
  )
