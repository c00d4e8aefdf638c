"""Figures 1, 5, 7 and 10: images step by step, one row for each example."""

import jax
import numpy as np

from draw_jax.attention import Window
from draw_jax.figures import page, windows

_GAP = 2  # pixels between images
_MARGIN = 2
_BARS = 12  # height of the bars under a row


def chosen_steps(steps: int, columns: int) -> np.ndarray:
  """At most `columns` steps, evenly spread from the first to the last."""
  return np.linspace(0, steps - 1, min(steps, columns)).round().astype(int)


def sequences(
  images,
  window: Window | None = None,
  size: int | None = None,
  *,
  columns: int = 12,
  color=windows.RED,
) -> page.Page:
  """Figs. 1, 7 and 10: how images come about, with the window of each step.

  Args:
    images: [T, n, H, W, C], the images after each step.
    window: where each step wrote, each field [T, n]; None without attention.
    size: N of the window's grid.
    columns: how many of the steps are shown, the first and the last among them.
    color: of the rectangles, bytes.
  """
  images = np.asarray(images)
  return _rows([(images, window, size, color)], None, columns)


def glimpses(images, window: Window, size: int, *, columns: int = 8) -> page.Page:
  """Fig. 5: where a classifier looks, in green.

  Args:
    images: [n, H, W, C].
    window: where each glimpse was taken, each field [T, n].
    size: N of the window's grid.
    columns: how many of the glimpses are shown.
  """
  steps = len(window.stride)
  images = np.broadcast_to(images, (steps, *np.shape(images)))
  return sequences(images, window, size, columns=columns, color=windows.GREEN)


def reconstructions(
  targets,
  images,
  kl,
  read: Window | None = None,
  write: Window | None = None,
  sizes: tuple[int, int] = (0, 0),
  *,
  columns: int = 12,
) -> page.Page:
  """Where the encoder looks, above what the decoder draws, above what it costs.

  Args:
    targets: [n, H, W, C], the images that are encoded.
    images: [T, n, H, W, C], their reconstructions after each step.
    kl: [T, n], nats of each step, drawn as bars: the bar of a step that is shown
      stands under the middle of its image.
    read: where each step read, each field [T, n]; None without attention.
    write: where each step wrote, each field [T, n]; None without attention.
    sizes: N of the reading and of the writing grid.
    columns: how many of the steps are shown, the first and the last among them.
  """
  images = np.asarray(images)
  targets = np.broadcast_to(targets, images.shape)
  lines = [(targets, read, sizes[0], windows.GREEN), (images, write, sizes[1], windows.RED)]
  return _rows(lines, np.asarray(kl), columns)


def _rows(lines, kl, columns: int) -> page.Page:
  """One group of lines of images for each example, over one arrow of time.

  Args:
    lines: what each line of a group shows: images [T, n, H, W, C], window or
      None, N, color.
    kl: [T, n] for bars under each group, or None.
    columns: how many of the steps are shown.
  """
  steps, num, height, width, _ = lines[0][0].shape
  shown_steps = chosen_steps(steps, columns)
  step_x, step_y = width + _GAP, height + _GAP
  group = len(lines) * step_y + (0 if kl is None else _BARS + 3 * _GAP)
  total = 2 * _MARGIN + len(shown_steps) * step_x - _GAP
  footer = 0.04 * total
  sheet = page.Page(total, 2 * _MARGIN + num * group + footer)
  for row, (images, window, size, color) in enumerate(lines):
    shown = None if window is None else windows.rectangles(window, size, height, width)
    for i in range(num):
      for column, t in enumerate(shown_steps):
        x, y = _MARGIN + column * step_x, _MARGIN + i * group + row * step_y
        sheet.image(images[t, i], x, y)
        if shown is not None:
          one = jax.tree.map(lambda a, t=t, i=i: a[t, i], shown)
          sheet.rectangle(one, x, y, (height, width), color)
  if kl is not None:
    middle = _MARGIN + width / 2
    x = middle + np.arange(steps) * (len(shown_steps) - 1) * step_x / max(steps - 1, 1)
    for i in range(num):
      sheet.bars(kl[:, i], x, _MARGIN + (i + 1) * group - 3 * _GAP, _BARS, kl.max())
  y = _MARGIN + num * group + footer / 2
  words = 'Time' if kl is None else 'Time (bars: KL of each step)'
  sheet.arrow(_MARGIN, y, total - _MARGIN, y, words=words)
  return sheet


def interpolation(first, ways, last) -> page.Page:
  """Ways between images: where each starts, what the network draws, where it goes.

  Args:
    first: [n, H, W, C], the images on the left.
    ways: [n, K, H, W, C], drawn ones from the first to the last.
    last: [n, H, W, C], the images on the right.
  """
  num, between, height, width, _ = np.shape(ways)
  step_x, step_y, apart = width + _GAP, height + _GAP, 3 * _GAP
  total = 2 * _MARGIN + (between + 2) * step_x - _GAP + 2 * apart
  sheet = page.Page(total, 2 * _MARGIN + num * step_y - _GAP)
  for i in range(num):
    y = _MARGIN + i * step_y
    sheet.image(first[i], _MARGIN, y)
    for k in range(between):
      sheet.image(ways[i][k], _MARGIN + (k + 1) * step_x + apart, y)
    sheet.image(last[i], _MARGIN + (between + 1) * step_x + 2 * apart, y)
  return sheet
