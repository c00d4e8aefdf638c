"""DRAW: A Recurrent Neural Network For Image Generation, in JAX and Flax."""

from draw_jax import attention, distributions
from draw_jax.model import DRAW, PAPER, Start, Terms, Trace

__all__ = ['DRAW', 'PAPER', 'Start', 'Terms', 'Trace', 'attention', 'distributions']
