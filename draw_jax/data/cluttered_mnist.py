"""Cluttered translated MNIST, 100 x 100 (Section 4.1, Mnih et al. 2014), made on the fly."""

import numpy as np

from draw_jax.data import mnist, transforms
from draw_jax.data.sources import Example, Source
from draw_jax.data.spec import Spec

_SIZE, _DIGIT = 100, 28
_PIECES, _PIECE = 8, 8


_ROOM = np.array([[_SIZE - _DIGIT + 1]] + [[_SIZE - _PIECE + 1]] * _PIECES)
_CUTS = _DIGIT - _PIECE + 1


def clutter(source: Source, training: bool) -> transforms.Together:
  """Returns a transform that hides a digit among pieces of other digits of the same split."""
  del training
  return _Clutter(source)


class _Clutter(transforms.Together):
  """One example as the words say it, and the same for a batch at a time, which is far faster."""

  # Words of 64 bits that an example draws: two whole numbers, or one other, from each.
  draws = 3 * _PIECES // 2 + 2 * (1 + _PIECES)

  def __init__(self, source: Source):
    self._source = source

  def __call__(self, example: Example, rng: np.random.Generator) -> Example:
    pieces = [example['image']]
    cuts = rng.integers(0, _CUTS, (_PIECES, 2)).tolist()
    for other, (y, x) in zip(
      transforms.others(self._source, example['index'], _PIECES, rng), cuts, strict=True
    ):
      pieces.append(other['image'][y : y + _PIECE, x : x + _PIECE])
    # A product with the number of places is thrice as fast as integers below several bounds.
    places = (rng.random((1 + _PIECES, 2)) * _ROOM).astype(int)
    return example | {'image': transforms.scatter(_SIZE, pieces, places)}

  def together(self, indices: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    num, images = len(indices), self._source.images
    halves, rest = np.split(words, [3 * _PIECES // 2], 1)
    cut, other = np.split(transforms.halves(halves), [2 * _PIECES], 1)
    cut, sure = transforms.below(_CUTS, cut)
    other, sure_too = transforms.below(len(images) - 1, other)
    other += other >= indices[:, None]
    cut = cut.reshape(num, _PIECES, 2)
    pieces = transforms.windows(images, _PIECE)[other, cut[..., 0], cut[..., 1]]
    places = (transforms.fractions(rest).reshape(num, -1, 2) * _ROOM).astype(int)
    canvas = np.zeros((num, _SIZE, _SIZE, images.shape[-1]), np.uint8)
    transforms.add(canvas, images[indices], places[:, 0])
    for i in range(_PIECES):
      transforms.add(canvas, pieces[:, i], places[:, 1 + i])
    return canvas, sure.all(1) & sure_too.all(1)


SPEC = Spec(
  name='cluttered_mnist',
  load=mnist.load,
  builder=mnist.builder,
  binarizations=('none', 'threshold', 'dynamic'),
  num_classes=10,
  transform=clutter,
)
