"""Sweeps: what an experiment is to be tried with, running it, and what came out."""

from draw_jax.sweeps.overrides import Overrides, names, product, values, zipped

__all__ = ['Overrides', 'names', 'product', 'values', 'zipped']
