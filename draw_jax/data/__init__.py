"""Every dataset of the paper, from published files to batches, without TensorFlow."""

from draw_jax.data.dataset import Dataset
from draw_jax.data.registry import NAMES, open_dataset

__all__ = ['NAMES', 'Dataset', 'open_dataset']
