"""MNIST: 28 x 28 gray digits, 50,000 / 10,000 / 10,000, from the four IDX files."""

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from draw_jax.data import idx, sources
from draw_jax.data.builders import preparation, published
from draw_jax.errors import UserError

_URL = 'https://storage.googleapis.com/cvdf-datasets/mnist/'
_IMAGES, _LABELS = 2051, 2049  # magic numbers

# Of the uncompressed files: copies that were compressed again are as good.
_CONTENT = {
  'train-images-idx3-ubyte.gz': 'ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db',
  'train-labels-idx1-ubyte.gz': '65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5',
  't10k-images-idx3-ubyte.gz': '0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7',
  't10k-labels-idx1-ubyte.gz': 'ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2',
}


class DrawMnist(published.PublishedBuilder):
  """The four IDX files -> splits train (60,000) and test (10,000)."""

  dataset = 'mnist'
  page = 'http://yann.lecun.com/exdb/mnist'
  image_shape = (28, 28, 1)
  labeled = True
  content = _CONTENT
  files = (
    published.PublishedFile(
      _URL + 'train-images-idx3-ubyte.gz',
      9912422,
      '440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609',
    ),
    published.PublishedFile(
      _URL + 'train-labels-idx1-ubyte.gz',
      28881,
      '3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c',
    ),
    published.PublishedFile(
      _URL + 't10k-images-idx3-ubyte.gz',
      1648877,
      '8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6',
    ),
    published.PublishedFile(
      _URL + 't10k-labels-idx1-ubyte.gz',
      4542,
      'f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6',
    ),
  )

  def read(self, paths: dict[str, pathlib.Path]) -> dict[str, Iterable[tuple[Any, Any]]]:
    """Parses the files and checks them."""
    splits = {}
    for split, prefix in (('train', 'train'), ('test', 't10k')):
      images = self._idx(paths, f'{prefix}-images-idx3-ubyte.gz', _IMAGES)
      labels = self._idx(paths, f'{prefix}-labels-idx1-ubyte.gz', _LABELS)
      if len(images) != len(labels):
        raise UserError(f'MNIST {split}: {len(images)} images but {len(labels)} labels')
      splits[split] = (
        (i, {'image': image[..., None], 'label': label})
        for i, (image, label) in enumerate(zip(images, labels, strict=True))
      )
    return splits

  def _idx(self, paths: dict[str, pathlib.Path], name: str, magic: int) -> np.ndarray:
    content = idx.decompress(paths[name], pathlib.Path(paths[name]).read_bytes())
    array = parse_idx(paths[name], content, magic)
    published.check_content(paths[name], content, self.content[name])
    return array


def parse_idx(path: pathlib.Path, content: bytes, magic: int) -> np.ndarray:
  """Parses an IDX file of unsigned bytes.

  Args:
    path: for messages.
    content: the uncompressed file.
    magic: the number that the file must start with; its last byte is the number of dimensions.

  Returns:
    uint8, [N, H, W] for images and [N] for labels.
  """
  found = int.from_bytes(content[:4], 'big')
  if found != magic:
    raise UserError(
      f'{path} starts with the magic number {found}, not {magic}: not the file of that name'
    )
  return idx.parse(path, content)


def load(data_dir: str | None) -> dict[str, sources.Source]:
  """Returns the digits; the last 10,000 of the published training split are for validation."""
  return preparation.load(
    DrawMnist,
    data_dir,
    {'train': 'train[:50000]', 'valid': 'train[50000:]', 'test': 'test'},
  )
