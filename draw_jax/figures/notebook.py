"""Animations for notebooks, as objects that a cell shows when they are its last line.

Still images need nothing from here: a `page.Page` and an image of Pillow show
themselves.
"""

import base64
import html
import pathlib
import tempfile

from draw_jax.figures import animation as animation_lib
from draw_jax.figures import player as player_lib


class Html:
  """A piece of HTML that a notebook shows as such.

  Attributes:
    text: the HTML.
    words: shown where there is no HTML.
  """

  def __init__(self, text: str, words: str):
    self.text = text
    self.words = words

  def __repr__(self) -> str:
    return f'<{self.words}>'

  def _repr_html_(self) -> str:
    return self.text


def animation(frames, *, seconds: float = 5.0, pause: float = 2.0) -> Html:
  """An animation that repeats for ever.

  Args:
    frames: uint8 [T, h, w, 3].
    seconds: from the first frame to the last.
    pause: seconds that the last frame stays.
  """
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'animation.webp'
    animation_lib.save_webp(path, frames, seconds=seconds, pause=pause)
    data = base64.b64encode(path.read_bytes()).decode()
  return Html(f'<img src="data:image/webp;base64,{data}" style="max-width: 100%">', 'an animation')


def player(title: str, sections: list[player_lib.Section], *, height: int = 480) -> Html:
  """The web page of `player.html` in a frame of its height.

  Args:
    title: of the page.
    sections: what it plays.
    height: of the frame in pixels, where the notebook does not let the page tell its own.
  """
  page = html.escape(player_lib.html(title, sections))
  fit = 'this.height = this.contentDocument.documentElement.scrollHeight'
  look = f'width="100%" height="{height}" frameborder="0" onload="{fit}"'
  return Html(f'<iframe srcdoc="{page}" {look}></iframe>', f'a player: {title}')
