"""What notebooks show, as they get it."""

import base64
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
from PIL import Image

from draw_jax.figures import notebook, page, player


def test_an_animation_is_an_image_in_the_page_itself():
  frames = np.zeros((3, 8, 10, 3), np.uint8)
  frames[1] = 255
  text = notebook.animation(frames, seconds=0.6, pause=1.0)._repr_html_()
  data = re.fullmatch(r'<img src="data:image/webp;base64,([^"]+)" style="[^"]+">', text)[1]
  with Image.open(io.BytesIO(base64.b64decode(data))) as image:
    assert (image.format, image.size, image.n_frames) == ('WEBP', (10, 8), 3)
    grays, times = [], []
    for t in range(3):
      image.seek(t)
      grays.append(image.convert('L').getpixel((0, 0)))
      times.append(image.info['duration'])
  assert grays == [0, 255, 0]
  assert times == [200, 200, 1000]


def test_the_player_is_framed_whole():
  sections = [player.Section('<Ways> & "means"', np.zeros((2, 1, 4, 4, 1)))]
  text = notebook.player('Drawn', sections, height=300)._repr_html_()
  frame = ET.fromstring(text)
  assert frame.attrib['height'] == '300'  # until the page tells its own, so that nothing scrolls
  assert frame.attrib['onload'].startswith('this.height = ')
  # A parser of XML makes spaces of the line breaks in an attribute.
  assert frame.attrib['srcdoc'] == player.html('Drawn', sections).replace('\n', ' ')


def test_a_page_shows_itself():
  sheet = page.Page(100, 50)
  sheet.image(np.ones((4, 4, 1)), 0, 0, 4)
  with Image.open(io.BytesIO(sheet._repr_png_())) as image:
    assert image.format == 'PNG'
    width, height = image.size
  assert width == 2 * height
  assert 400 <= width <= 1000
