"""Pure transforms: an example and its own random generator in, an example out.

Images are uint8 [H, W, C] throughout, with 255 for an intensity of one.
"""

import abc
from collections.abc import Callable

import numpy as np

from draw_jax.data.sources import Example, Source

Transform = Callable[[Example, np.random.Generator], Example]


class Together(abc.ABC):
  """A transform that also works through a batch of a split in memory, with the same results.

  It then gets what the generators of the examples draw, and does itself what NumPy makes of it. A
  transform that is no subclass makes its examples one by one.

  Attributes:
    draws: how many words an example draws.
  """

  draws: int

  @abc.abstractmethod
  def __call__(self, example: Example, rng: np.random.Generator) -> Example:
    """Makes one example, as any transform."""

  @abc.abstractmethod
  def together(self, indices: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Makes the images of a batch.

    Args:
      indices: int [B].
      words: uint64 [B, draws], what `random_raw` of the bit generator of each example gives.

    Returns:
      uint8 [B, H, W, C], and bool [B]: False for examples, one in thousands, which draw more and
      are to be made one by one.
    """


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


def halves(words: np.ndarray) -> np.ndarray:
  """The 32-bit numbers [B, 2 n] that a generator makes of words [B, n], in its order."""
  return np.ascontiguousarray(words, '<u8').view('<u4')


def below(bound: int, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """What `Generator.integers(0, bound)` makes of 32-bit numbers (Lemire, 2019).

  Args:
    bound: from 2 to 2^32 - 1; of 1 there is no draw.
    drawn: uint32, any shape.

  Returns:
    int64, and bool: False where the generator may refuse a number and draw another.
  """
  product = drawn.astype(np.uint64) * np.uint64(bound)
  return (product >> np.uint64(32)).astype(np.int64), product.astype(np.uint32) >= bound


def fractions(words: np.ndarray) -> np.ndarray:
  """What `Generator.random()` makes of words, float64 in [0, 1)."""
  return (words >> np.uint64(11)) * 2.0**-53


def windows(images: np.ndarray, size: int, writeable: bool = False) -> np.ndarray:
  """A view [B, H - S + 1, W - S + 1, S, S, C] of all squares of size S in images [B, H, W, C]."""
  shape = (size, size, images.shape[-1])
  view = np.lib.stride_tricks.sliding_window_view
  return view(images, shape, (1, 2, 3), writeable=writeable)[:, :, :, 0]


def add(canvas: np.ndarray, pieces: np.ndarray, places: np.ndarray) -> None:
  """Adds a square to each image, in place, clipped at an intensity of one.

  Args:
    canvas: uint8 [B, H, W, C].
    pieces: uint8 [B, S, S, C].
    places: int [B, 2], the row and column of the upper left corner of each.
  """
  view = windows(canvas, pieces.shape[1], writeable=True)
  where = (np.arange(len(canvas)), places[:, 0], places[:, 1])
  total = view[where] + pieces
  # A sum of bytes that is too large begins at 0 again.
  total[total < pieces] = 255
  view[where] = total
