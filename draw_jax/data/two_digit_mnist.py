"""Two MNIST digits at random places on 60 x 60 (Section 4.3), made on the fly."""

import numpy as np

from draw_jax.data import mnist, transforms
from draw_jax.data.sources import Example, Source
from draw_jax.data.spec import Spec

_SIZE, _DIGIT = 60, 28


def two_digits(source: Source, training: bool) -> transforms.Transform:
  """Returns a transform that sets a digit and another of the same split on one canvas."""
  del training

  def place(example: Example, rng: np.random.Generator) -> Example:
    (other,) = transforms.others(source, example['index'], 1, rng)
    places = rng.integers(0, _SIZE - _DIGIT + 1, (2, 2))
    return {'image': transforms.scatter(_SIZE, [example['image'], other['image']], places)}

  return place


SPEC = Spec(
  name='two_digit_mnist',
  load=mnist.load,
  builder=mnist.builder,
  binarizations=('none', 'threshold', 'dynamic'),
  transform=two_digits,
)
