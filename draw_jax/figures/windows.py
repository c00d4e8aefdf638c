"""Attention windows as rectangles.

A window is shown by the rectangle through the centers of its outermost filters.
Filters that stand outside the image act on its nearest edge (see
`attention.filterbank`), so corners outside are moved to the edge pixels: the
rectangle delimits the pixels that the window acts on, and a window that lies
wholly outside is a line along that edge.
"""

from typing import NamedTuple

import numpy as np

from draw_jax.attention import Window
from draw_jax.figures import grid

RED = (255, 40, 40)  # where the network writes
GREEN = (0, 200, 60)  # where it reads

# A border as wide as sigma would hide a digit.
_WIDTH_PER_SIGMA = 0.4
# Of the longer side: borders that can be seen but do not fill the image.
_THINNEST, _THICKEST = 0.012, 0.12


class Rectangles(NamedTuple):
  """Rectangles on images, in pixels from 0 in the middle of the first; each [...]."""

  left: np.ndarray
  top: np.ndarray
  right: np.ndarray
  bottom: np.ndarray
  line: np.ndarray  # width of the border


def rectangles(window: Window, size: int, height: int, width: int) -> Rectangles:
  """The rectangles that show windows on images of H x W.

  Args:
    window: each field [...].
    size: N of the window's grid.
    height: H.
    width: W.

  Returns:
    Rectangles from center - (N - 1) / 2 stride to center + (N - 1) / 2 stride on
    both axes, within the image, with borders whose width grows with sigma.
  """
  x, y, variance, stride = (np.asarray(field, np.float64) for field in window[:4])
  half = (size - 1) / 2 * stride
  side = max(height, width)
  return Rectangles(
    left=np.clip(x - half, 0, width - 1),
    top=np.clip(y - half, 0, height - 1),
    right=np.clip(x + half, 0, width - 1),
    bottom=np.clip(y + half, 0, height - 1),
    line=np.clip(_WIDTH_PER_SIGMA * np.sqrt(variance), _THINNEST * side, _THICKEST * side),
  )


def mark(images, shown: Rectangles | None, scale: int = 1, color=RED) -> np.ndarray:
  """Enlarges images and draws a rectangle on each, with smooth borders.

  Args:
    images: [..., H, W, C], floats in [0, 1] or uint8.
    shown: each field [...] as the leading axes of the images; None draws none.
    scale: pixels of the result for one of the image.
    color: of the borders, bytes.

  Returns:
    uint8 [..., scale H, scale W, 3].
  """
  images = grid.enlarge(grid.rgb(images), scale)
  if shown is None:
    return images
  height, width = images.shape[-3:-1]
  left, top, right, bottom, line = (np.asarray(a)[..., None, None] for a in shown)
  x = ((np.arange(width) + 0.5) / scale - 0.5)[None, :]
  y = ((np.arange(height) + 0.5) / scale - 0.5)[:, None]
  outside_x = np.abs(x - (left + right) / 2) - (right - left) / 2
  outside_y = np.abs(y - (top + bottom) / 2) - (bottom - top) / 2
  distance = np.abs(np.maximum(outside_x, outside_y))  # from the border, corners square
  # One pixel of the result at least, and half covered where the border's side passes.
  cover = np.clip((np.maximum(line, 1 / scale) / 2 - distance) * scale + 0.5, 0, 1)[..., None]
  return np.round(images * (1 - cover) + np.asarray(color) * cover).astype(np.uint8)
