"""DRAW: A Recurrent Neural Network For Image Generation, in JAX and Flax."""

import importlib.metadata
import os
from typing import TYPE_CHECKING

from draw_jax import start_up  # noqa: F401  Before all that takes time.

# isort: split
from draw_jax import attention, distributions
from draw_jax.models.draw import DRAW, Terms, Trace
from draw_jax.models.initialization import PAPER, Initialization

if TYPE_CHECKING:
  from draw_jax.trained import TrainedModel

__all__ = [
  'DRAW',
  'PAPER',
  'Initialization',
  'Terms',
  'Trace',
  '__version__',
  'attention',
  'distributions',
  'load',
]


try:
  __version__ = importlib.metadata.version('draw_jax')
except importlib.metadata.PackageNotFoundError:  # a checkout that was not installed
  __version__ = 'unknown'


def load(name: str | os.PathLike) -> 'TrainedModel':
  """A trained model: see `draw_jax.trained.load`."""
  # Only now: data and checkpoints take a second to import, which the network does without.
  from draw_jax import trained

  return trained.load(name)
