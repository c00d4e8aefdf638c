"""OMNIGLOT in 28 x 28 pixels, 24,345 / 8,070, from the MATLAB file of Burda et al. (2015)."""

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.io

from draw_jax.data import sources
from draw_jax.data.builders import intact, preparation, published
from draw_jax.errors import UserError

_VALID = 1345  # of the published training split
# Names in the file, by split: the images, and which alphabet each is of.
_ARRAYS = {'train': ('data', 'target'), 'test': ('testdata', 'testtarget')}


class DrawOmniglot(published.PublishedBuilder):
  """The file -> splits train (24,345) and test (8,070); labels are the 50 alphabets."""

  dataset = 'omniglot'
  page = 'https://github.com/yburda/iwae/tree/master/datasets/OMNIGLOT'
  image_shape = (28, 28, 1)
  labeled = True
  files = (
    published.PublishedFile(
      'https://raw.githubusercontent.com/yburda/iwae/master/datasets/OMNIGLOT/chardata.mat',
      md5='21ecaf34373511aa7691cf2e0802aa3d',
    ),
  )

  def read(self, paths: dict[str, pathlib.Path]) -> dict[str, Iterable[tuple[Any, Any]]]:
    """Checks the file and takes it apart."""
    (file,) = self.files
    path = paths[file.name]
    published.check_file(path, file)
    splits = parse_mat(path)
    return {
      split: (
        (i, {'image': image, 'label': label})
        for i, (image, label) in enumerate(zip(*arrays, strict=True))
      )
      for split, arrays in splits.items()
    }


def parse_mat(path: pathlib.Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Reads the file: columns are images in column-major order, and alphabets as 0 and 1.

  Args:
    path: a MATLAB file with the arrays of `_ARRAYS`, intensities from 0 to 1.

  Returns:
    By split: uint8 [N, 28, 28, 1], rounded to 8 bits, and int32 [N].
  """
  try:
    found = scipy.io.loadmat(path)
  except Exception as error:  # SciPy raises whatever the damage makes of its reader.
    raise UserError(f'{path} is not a sound MATLAB file ({type(error).__name__})') from None
  splits = {}
  for split, (images, targets) in _ARRAYS.items():
    if missing := [name for name in (images, targets) if name not in found]:
      raise UserError(f'{path} has no array {missing[0]!r}')
    pixels, target = found[images], found[targets]
    if pixels.ndim != 2 or len(pixels) != 784 or target.shape[1:] != pixels.shape[1:]:
      raise UserError(
        f'{path}: {images} is {pixels.shape} and {targets} {target.shape}, not [784, N] and [K, N]'
      )
    if not (pixels.min() >= 0 and pixels.max() <= 1):
      raise UserError(f'{path}: {images} has values outside of 0 to 1')
    columns = pixels.T.reshape(-1, 28, 28, 1)
    bytes_ = np.round(255 * columns.swapaxes(1, 2)).astype(np.uint8)
    splits[split] = bytes_, target.argmax(0).astype(np.int32)
  return splits


def load(data_dir: str | None) -> dict[str, sources.Source]:
  """Returns the images; 1,345 of the published training split are for validation."""
  builder = preparation.ensure_prepared(DrawOmniglot, data_dir)
  records = intact.Records(builder, 'train')
  # They come alphabet by alphabet.
  order = np.random.default_rng(0).permutation(len(records))
  num_valid = min(_VALID, len(records) // 10)
  return {
    'train': sources.from_records(records, np.sort(order[num_valid:])),
    'valid': sources.from_records(records, np.sort(order[:num_valid])),
    'test': sources.from_records(intact.Records(builder, 'test')),
  }
