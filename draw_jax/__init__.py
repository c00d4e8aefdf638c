"""DRAW: A Recurrent Neural Network For Image Generation, in JAX and Flax."""

from draw_jax import attention, distributions
from draw_jax.models.draw import DRAW, Terms, Trace
from draw_jax.models.initialization import PAPER, Initialization

__all__ = [
  'DRAW',
  'PAPER',
  'Initialization',
  'Terms',
  'Trace',
  'attention',
  'distributions',
  'load',
]


def load(name):
  """A trained model: see `draw_jax.trained.load`."""
  # Only now: data and checkpoints take a second to import, which the network does without.
  from draw_jax import trained

  return trained.load(name)
