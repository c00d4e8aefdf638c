"""Sweeps: what an experiment is to be tried with, running it, and what came out."""

from draw_jax.sweeps.overrides import Overrides, from_words, names, product, values, zipped

__all__ = ['Overrides', 'from_words', 'names', 'product', 'values', 'zipped']
