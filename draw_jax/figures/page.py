"""Static figures: a page measured in pixels of the images on it, without axes."""

import io
import pathlib

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from draw_jax import files
from draw_jax.figures import grid, windows

_DPI = 200
# Pixels of a PNG file: about as wide as a page is made.
_PNG_WIDTH = 1800
_FONT = 7  # points
_NOTEBOOK_DPI = _DPI // 2  # a notebook's column is about 900 pixels wide


class Page:
  """An empty white page on which images are placed.

  Coordinates are pixels of the images, x to the right and y downwards from the
  upper left corner of the page. Rectangles and words stay sharp in a PDF file.
  """

  def __init__(self, width: float, height: float):
    self.scale = int(np.clip(_PNG_WIDTH // width, 1, 12))
    inches = self.scale / _DPI
    self.figure = Figure(figsize=(width * inches, height * inches), dpi=_DPI)
    self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    self.axes.axis('off')

  def _repr_png_(self) -> bytes:
    """Shows the page in a notebook."""
    buffer = io.BytesIO()
    self.figure.savefig(buffer, format='png', dpi=_NOTEBOOK_DPI)
    return buffer.getvalue()

  @property
  def point(self) -> float:
    """The length of one point, in pixels of the images."""
    return _DPI / 72 / self.scale

  def image(self, image, x: float, y: float, width: float | None = None):
    """Places an image [H, W, C] with its corner at x, y; `width` enlarges it."""
    image = grid.rgb(image)
    width = width or image.shape[1]
    height = width * image.shape[0] / image.shape[1]
    self.axes.imshow(
      image,
      extent=(x, x + width, y + height, y),
      interpolation='none',
      aspect='auto',
    )

  def rectangle(self, shown: windows.Rectangles, x: float, y: float, shape, color, zoom=1.0):
    """Draws one rectangle on an image of shape (H, W) placed at x, y, enlarged `zoom` times."""
    left, top, right, bottom, line = (zoom * float(a) for a in shown)
    x, y, inset = x + zoom / 2, y + zoom / 2, zoom / 2
    clip = Rectangle(
      (x - inset, y - inset), zoom * shape[1], zoom * shape[0], transform=self.axes.transData
    )
    patch = Rectangle(
      (x + left, y + top),
      right - left,
      bottom - top,
      fill=False,
      edgecolor=color_of(color),
      linewidth=line / self.point,
      joinstyle='miter',
    )
    self.axes.add_patch(patch)
    patch.set_clip_path(clip)

  def bars(self, values, x: np.ndarray, y: float, height: float, top: float):
    """Draws bars on a line at y; a value of `top` is `height` high."""
    width = 0.8 * (x[1] - x[0]) if len(x) > 1 else 2.0
    lengths = height * np.asarray(values) / top
    self.axes.bar(x, -lengths, width, bottom=y, color='0.45', linewidth=0)

  def text(self, words: str, x: float, y: float, outlined: bool = False, **options):
    """Writes words, by default to the right of x and in the middle of the line at y."""
    options = {'fontsize': _FONT, 'ha': 'left', 'va': 'center', 'zorder': 5, **options}
    self.axes.text(x, y, words, path_effects=_outline(outlined), **options)

  def arrow(self, x0, y0, x1, y1, style='-|>', color='black', words='', outlined: bool = False):
    """Draws a thin arrow between two points; with words, from behind them at the first."""
    look = {'arrowstyle': style, 'color': color, 'lw': 0.8, 'mutation_scale': 7, 'shrinkB': 0}
    look |= {'path_effects': _outline(outlined), 'relpos': (1, 0.5), 'shrinkA': 2 if words else 0}
    self.axes.annotate(words, (x1, y1), (x0, y0), fontsize=_FONT, va='center', arrowprops=look)


def save(figure: Page | Figure, stem) -> list[pathlib.Path]:
  """Writes a figure as `stem`.png and `stem`.pdf and returns both paths."""
  figure = figure.figure if isinstance(figure, Page) else figure
  paths = [pathlib.Path(f'{stem}.{suffix}') for suffix in ('png', 'pdf')]
  for path in paths:
    # No date, so that the same figure is the same file.
    metadata = {'CreationDate': None} if path.suffix == '.pdf' else None
    # Publishers refuse the Type 3 fonts that are matplotlib's default.
    with files.writing(path) as temporary, matplotlib.rc_context({'pdf.fonttype': 42}):
      figure.savefig(temporary, dpi=_DPI, metadata=metadata)
  return paths


def _outline(wanted: bool):
  """A dark line around what is white, to be seen on white too."""
  return [patheffects.withStroke(linewidth=2.5, foreground='black')] if wanted else None


def color_of(color) -> tuple[float, ...]:
  """A color of three bytes as matplotlib takes it."""
  return tuple(c / 255 for c in color)
