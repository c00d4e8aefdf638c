"""Cluttered translated MNIST, 100 x 100 (Section 4.1, Mnih et al. 2014), made on the fly."""

import numpy as np

from draw_jax.data import mnist, transforms
from draw_jax.data.sources import Example, Source
from draw_jax.data.spec import Spec

_SIZE, _DIGIT = 100, 28
_PIECES, _PIECE = 8, 8


def clutter(source: Source, training: bool) -> transforms.Transform:
  """Returns a transform that hides a digit among pieces of other digits of the same split."""
  del training
  room = np.array([[_SIZE - _DIGIT + 1]] + [[_SIZE - _PIECE + 1]] * _PIECES)

  def place(example: Example, rng: np.random.Generator) -> Example:
    pieces = [example['image']]
    cuts = rng.integers(0, _DIGIT - _PIECE + 1, (_PIECES, 2)).tolist()
    for other, (y, x) in zip(
      transforms.others(source, example['index'], _PIECES, rng), cuts, strict=True
    ):
      pieces.append(other['image'][y : y + _PIECE, x : x + _PIECE])
    # A product with the number of places is thrice as fast as integers below several bounds.
    places = (rng.random((1 + _PIECES, 2)) * room).astype(int)
    return example | {'image': transforms.scatter(_SIZE, pieces, places)}

  return place


SPEC = Spec(
  name='cluttered_mnist',
  load=mnist.load,
  builder=mnist.builder,
  binarizations=('none', 'threshold', 'dynamic'),
  num_classes=10,
  transform=clutter,
)
