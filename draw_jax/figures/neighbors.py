"""Figures 6, 9 and 12: generated images beside the training images nearest to them."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from draw_jax.figures import grid, page

_GAP = 2  # pixels between images
_APART = 6  # between the generated images and the column of neighbors


def nearest(queries, chunks: Iterable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The nearest of many images to each query, by L2 over all pixels, searched exactly.

  Distances are sums of squared differences, not products that cancel, so the
  order of two close neighbors is right to the last bits of a float32.

  Args:
    queries: [q, H, W, C], floats in [0, 1] or uint8.
    chunks: arrays [m, H, W, C] of the images to search, of any number each,
      floats in [0, 1] or uint8; chunks of one size are compiled once.

  Returns:
    The index [q] of each neighbor in all chunks together (the first of equal
    ones), its distance [q], and the neighbors [q, H, W, C], floats in [0, 1].
  """
  queries = _floats(queries)
  index = np.full(len(queries), -1)
  distance = np.full(len(queries), np.inf, np.float32)
  found = np.zeros(queries.shape, np.float32)
  start = 0
  for chunk in chunks:
    best, squared = (np.asarray(a) for a in _search(queries, chunk))
    for i in np.flatnonzero(squared < distance):
      index[i], distance[i], found[i] = start + best[i], squared[i], _floats(chunk[best[i]])
    start += len(chunk)
  return index, np.sqrt(distance), found


@jax.jit
def _search(queries, chunk):
  """The index [q] in the chunk of each query's neighbor and its squared distance [q]."""
  chunk = _floats(chunk)

  def one(query):
    squared = ((chunk - query) ** 2).sum((-3, -2, -1))
    best = jnp.argmin(squared)
    return best, squared[best]

  return jax.lax.map(one, queries)


def _floats(images) -> jax.Array:
  images = jnp.asarray(images)
  scale = 255 if images.dtype == jnp.uint8 else 1
  return images.astype(jnp.float32) / scale


def samples(images, columns: int | None = None, nearest_images=None) -> page.Page:
  """Figs. 6, 8, 9 and 12: a grid of generated images.

  Args:
    images: [n, H, W, C].
    columns: images in a row; None makes the grid about square.
    nearest_images: [rows, H, W, C], the training images nearest to those of the
      last column, shown to the right of it; None shows no such column.
  """
  images = np.asarray(images)
  columns = columns or grid.default_columns(len(images))
  sheet = grid.tile(images, columns, _GAP)
  extra = 0 if nearest_images is None else _APART + images.shape[2]
  result = page.Page(sheet.shape[1] + extra, sheet.shape[0])
  result.image(sheet, 0, 0)
  if nearest_images is not None:
    column = grid.tile(nearest_images, 1, _GAP)
    result.image(column, sheet.shape[1] + _APART - 2 * _GAP, 0)
  return result
