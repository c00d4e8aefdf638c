"""Pure transforms: an example and its own random generator in, an example out.

Images are uint8 [H, W, C] throughout, with 255 for an intensity of one.
"""

from collections.abc import Callable

import numpy as np

from draw_jax.data.sources import Example, Source

Transform = Callable[[Example, np.random.Generator], Example]


def identity(example: Example, rng: np.random.Generator) -> Example:
  """Returns the example as it is."""
  del rng
  return example


def threshold(example: Example, rng: np.random.Generator) -> Example:
  """Turns each pixel on if its intensity is more than one half."""
  del rng
  return example | {'image': _bits(example['image'] > 127)}


def dynamic(example: Example, rng: np.random.Generator) -> Example:
  """Turns each pixel on with a probability equal to its intensity."""
  image = example['image']
  draw = rng.random(image.shape, dtype=np.float32) * 255
  return example | {'image': _bits(draw < image)}


def _bits(on: np.ndarray) -> np.ndarray:
  # The negative of the byte 1 is the byte 255: cheaper than a product or a choice.
  return -on.view(np.uint8)


BINARIZERS: dict[str, Transform] = {
  'none': identity,
  'fixed': identity,
  'threshold': threshold,
  'dynamic': dynamic,
}


def random_crop(size: int) -> Transform:
  """Returns a transform that cuts a square patch out at a random place."""

  def crop(example: Example, rng: np.random.Generator) -> Example:
    height, width, _ = example['image'].shape
    y, x = rng.integers(0, (height - size + 1, width - size + 1))
    return example | {'image': example['image'][y : y + size, x : x + size]}

  return crop


def center_crop(size: int) -> Transform:
  """Returns a transform that cuts a square patch out of the middle."""

  def crop(example: Example, rng: np.random.Generator) -> Example:
    del rng
    height, width, _ = example['image'].shape
    y, x = (height - size) // 2, (width - size) // 2
    return example | {'image': example['image'][y : y + size, x : x + size]}

  return crop


def scatter(size: int, pieces: list[np.ndarray], places: np.ndarray) -> np.ndarray:
  """Adds pieces to a black square, clipped at an intensity of one.

  Args:
    size: of the square, S.
    pieces: uint8 [H, W, C] each.
    places: int [len(pieces), 2], the row and column of the upper left corner of each.

  Returns:
    uint8 [S, S, C].
  """
  # Wide enough for 257 pieces of 255.
  canvas = np.zeros((size, size, pieces[0].shape[2]), np.uint16)
  for piece, (y, x) in zip(pieces, places.tolist(), strict=True):
    canvas[y : y + piece.shape[0], x : x + piece.shape[1]] += piece
  return np.minimum(canvas, 255).astype(np.uint8)


def others(source: Source, index: int, count: int, rng: np.random.Generator) -> list[Example]:
  """Returns random examples of a split other than the one at `index`."""
  chosen = rng.integers(0, len(source) - 1, count)
  return [source[i] for i in (chosen + (chosen >= index)).tolist()]
