"""A web page that plays the drawing of many images side by side, all in one file."""

import base64
import io
from typing import NamedTuple

import numpy as np
from PIL import Image

from draw_jax import files
from draw_jax.attention import Window
from draw_jax.figures import grid, web


class Section(NamedTuple):
  """n drawings with a heading."""

  title: str
  images: np.ndarray  # [T, n, H, W, C], the images after each step
  write: Window | None = None  # where each step wrote, each field [T, n]
  write_size: int = 0  # N of the writing grid
  read: Window | None = None  # where each step read, each field [T, n]
  read_size: int = 0  # N of the reading grid
  targets: np.ndarray | None = None  # [n, H, W, C], what is reconstructed, shown beside it
  kl: np.ndarray | None = None  # [T, n], nats of each step


def html(title: str, sections: list[Section]) -> str:
  """The page as text: images, script and style are in it, and it asks for nothing else."""
  data = {'title': title, 'sections': [_section(section) for section in sections]}
  return web.fill('player.html', {'data': web.data(data)})


def save(path, title: str, sections: list[Section]) -> None:
  with files.writing(path) as temporary:
    temporary.write_text(html(title, sections), 'utf-8')


def _section(section: Section) -> dict:
  images = np.asarray(section.images)
  steps, num, height, width, _ = images.shape
  result = {
    'title': section.title,
    'steps': steps,
    'height': height,
    'width': width,
    'frames': [_png(images[:, i].reshape(steps * height, width, -1)) for i in range(num)],
    'write': _windows(section.write, section.write_size),
    'read': _windows(section.read, section.read_size),
  }
  if section.targets is not None:
    result['targets'] = [_png(target) for target in np.asarray(section.targets)]
  if section.kl is not None:
    kl = np.asarray(section.kl, float)
    result |= {'kl': kl.T.round(3).tolist(), 'klMax': max(kl.max(), 1e-6)}
  return result


def _windows(window: Window | None, size: int) -> dict | None:
  """N, and [n][T][4]: what `rectangle` in web/drawing.js takes of a window."""
  if window is None:
    return None
  fields = np.stack(window[:4], -1).astype(float)
  return {'size': size, 'windows': fields.transpose(1, 0, 2).round(4).tolist()}


def _png(image: np.ndarray) -> str:
  """An image [H, W, C] as a data address, in gray where it is gray."""
  pixels = grid.rgb(image)
  pixels = pixels if image.shape[-1] == 3 else pixels[..., 0]
  buffer = io.BytesIO()
  Image.fromarray(pixels).save(buffer, format='PNG', optimize=True)
  return 'data:image/png;base64,' + base64.b64encode(buffer.getvalue()).decode()
