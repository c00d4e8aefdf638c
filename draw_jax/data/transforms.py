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
