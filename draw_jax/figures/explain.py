"""Figures 3 and 4: what the grid of filters is and what it sees."""

import jax
import jax.numpy as jnp
import numpy as np

from draw_jax import attention
from draw_jax.attention import Window
from draw_jax.figures import page, windows

PATCH = 12  # N of the patches, as in the paper
_BLUE = '#3a7bff'
_MARGIN = 2


def explainer_windows(height: int, width: int) -> Window:
  """The three windows of Fig. 3 for images of H x W, each field [3].

  The first has a small stride and a high sigma, the second a large stride and a
  low sigma, the third both large and high.
  """
  side = max(height, width)
  full = (side - 1) / (PATCH - 1)
  stride = np.array([0.35, 0.95, 0.8]) * full
  sigma = np.array([0.07, 0.015, 0.09]) * side
  one = np.ones(3)
  return Window((width - 1) / 2 * one, (height - 1) / 2 * one, sigma**2, stride, one)


def explainer(image) -> page.Page:
  """Fig. 3: a 3 x 3 grid on an image, and three windows with what they see.

  Args:
    image: [H, W, C].
  """
  image = np.asarray(image)
  height, width = image.shape[:2]
  window = explainer_windows(height, width)
  seen = attention.read(_floats(image)[None], jax.tree.map(jnp.asarray, window), PATCH)
  shown = windows.rectangles(window, PATCH, height, width)
  small, gap = 0.5, 0.06 * width
  patch = small * height
  row = patch + gap
  big = (3 * row - gap) / height
  right = _MARGIN + big * width + gap
  total = right + small * width + 2 * gap + patch + _MARGIN
  sheet = page.Page(total, 3 * row - gap + 2 * _MARGIN)
  _grid_of_filters(sheet, image, _MARGIN, _MARGIN, big)
  for i in range(3):
    y = _MARGIN + i * row
    sheet.image(image, right, y, small * width)
    one = jax.tree.map(lambda a, i=i: a[i], shown)
    sheet.rectangle(one, right, y, (height, width), windows.GREEN, small)
    x = right + small * width
    sheet.arrow(x + 0.4 * gap, y + patch / 2, x + 1.6 * gap, y + patch / 2)
    sheet.image(seen[i], x + 2 * gap, y, patch)
  return sheet


def _grid_of_filters(sheet: page.Page, image, x: float, y: float, zoom: float, size: int = 3):
  """Draws the image with a marked grid of filters on it, its stride and its center."""
  height, width = image.shape[:2]
  sheet.image(image, x, y, zoom * width)
  center_x, center_y, stride = 0.55 * width, 0.5 * height, 0.26 * min(height, width)
  offsets = (np.arange(size) - (size - 1) / 2) * stride
  xs, ys = (x + zoom * (center_x + offsets + 0.5), y + zoom * (center_y + offsets + 0.5))
  axes = sheet.axes
  look = {'color': _BLUE, 'lw': 1.0}
  axes.vlines(xs, y, y + zoom * height, **look)
  axes.hlines(ys, x, x + zoom * width, **look)
  points_x, points_y = np.meshgrid(xs, ys)
  axes.scatter(points_x, points_y, s=36, color=page.color_of(windows.GREEN), zorder=3)
  axes.scatter(xs[1], ys[1], s=60, color=page.color_of(windows.RED), zorder=4)
  nudge = 0.02 * zoom * width
  label = {'color': 'white', 'fontsize': 10, 'outlined': True}
  sheet.text('$(g_X, g_Y)$', xs[1] + nudge, ys[1] - 1.8 * nudge, **label)
  below = y + 0.93 * zoom * height
  sheet.arrow(xs[0], below, xs[1], below, '<|-|>', 'white', outlined=True)
  sheet.text(r'$\delta$', (xs[0] + xs[1]) / 2, below - 2 * nudge, ha='center', **label)


def zooming(image) -> page.Page:
  """Fig. 4: an image, its patch, the image from the patch, and two of the filters.

  Args:
    image: [H, W, C].
  """
  image = np.asarray(image)
  height, width = image.shape[:2]
  window = zooming_window(height, width)
  window = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), window)
  patch = attention.read(_floats(image), window, PATCH)
  again = attention.write(patch, window, height, width)
  # Filters are normalized over pixels, so a patch of ones comes back as their density.
  density = attention.write(jnp.ones((PATCH, PATCH, 1)), window, height, width)
  f_y, f_x = attention.filterbanks(window, PATCH, height, width)
  filters = [jnp.outer(f_y[i], f_x[i])[..., None] for i in (0, PATCH - 1)]
  shown = windows.rectangles(window, PATCH, height, width)
  gap = 0.05 * width
  side = 0.45 * height
  bottom = _MARGIN + height + gap
  sheet = page.Page(2 * (width + _MARGIN + gap) + side, bottom + height + _MARGIN)
  right = _MARGIN + width + 2 * gap + side
  sheet.image(image, _MARGIN, _MARGIN)
  sheet.rectangle(shown, _MARGIN, _MARGIN, (height, width), windows.GREEN)
  sheet.image(patch, _MARGIN + width + gap, _MARGIN + (height - side) / 2, side)
  sheet.image(again / density.max(), right, _MARGIN)
  for x, one in zip((_MARGIN, right), filters, strict=True):
    sheet.image(one / one.max(), x, bottom)
    thin = shown._replace(line=0.3 * shown.line)
    sheet.rectangle(thin, x, bottom, (height, width), windows.GREEN)
  return sheet


def zooming_window(height: int, width: int) -> Window:
  """A window on the middle of an image of H x W, half as wide as its shorter side."""
  stride = 0.5 * (min(height, width) - 1) / (PATCH - 1)
  variance = max(0.5 * stride, 0.5) ** 2
  return Window((width - 1) / 2, (height - 1) / 2, variance, stride, 1.0)


def _floats(image) -> jax.Array:
  image = np.asarray(image)
  return jnp.asarray(image / 255 if image.dtype == np.uint8 else image, jnp.float32)
