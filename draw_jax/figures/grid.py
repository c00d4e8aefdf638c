"""Images side by side in one array."""

import math

import numpy as np
from PIL import Image

from draw_jax import files

WHITE = 255


def rgb(images) -> np.ndarray:
  """Images as bytes in three channels.

  Args:
    images: [..., H, W, C], floats in [0, 1] or uint8. Three channels are red,
      green and blue; any other number is shown as the gray of their mean.

  Returns:
    uint8 [..., H, W, 3].
  """
  images = np.asarray(images)
  if images.dtype != np.uint8:
    images = np.round(255 * np.clip(images.astype(np.float32), 0, 1)).astype(np.uint8)
  if images.shape[-1] != 3:
    gray = images if images.shape[-1] == 1 else np.round(images.mean(-1, keepdims=True))
    images = np.repeat(gray.astype(np.uint8), 3, -1)
  return images


def enlarge(images: np.ndarray, scale: int) -> np.ndarray:
  """Each pixel becomes scale x scale equal ones: [..., H, W, C] to [..., sH, sW, C]."""
  return images.repeat(scale, -3).repeat(scale, -2)


def default_columns(num: int) -> int:
  """Columns of a grid of `num` images that is about square, with no cell left over if it can."""
  root = math.sqrt(num)
  full = (c for c in range(math.ceil(root), int(2 * root) + 1) if num % c == 0)
  return max(1, next(full, math.ceil(root)))


def tile(images, columns: int | None = None, padding: int = 2, scale: int = 1) -> np.ndarray:
  """Lays images out in rows, from left to right and from top to bottom.

  Args:
    images: [n, H, W, C], floats in [0, 1] or uint8.
    columns: images in a row; None makes the grid about square.
    padding: pixels between neighbors and around the grid.
    scale: enlarges each pixel of an image to a square of this side.

  Returns:
    uint8 [h, w, 3].
  """
  images = enlarge(rgb(images), scale)
  num, height, width, _ = images.shape
  columns = columns or default_columns(num)
  rows = max(1, math.ceil(num / columns))
  step_y, step_x = height + padding, width + padding
  shape = (rows * step_y + padding, columns * step_x + padding, 3)
  sheet = np.full(shape, WHITE, np.uint8)
  for i, image in enumerate(images):
    top, left = (i // columns) * step_y + padding, (i % columns) * step_x + padding
    sheet[top : top + height, left : left + width] = image
  return sheet


def save_png(path, image) -> None:
  """Writes one image [h, w, C] as PNG."""
  with files.writing(path) as temporary:
    Image.fromarray(rgb(image)).save(temporary, format='PNG', optimize=True)
