"""Frames, GIF files and films."""

import pathlib

import numpy as np
import pytest
from PIL import Image

from draw_jax.attention import Window
from draw_jax.figures import animation, windows

STEPS, NUM, HEIGHT, WIDTH = 5, 3, 8, 12


def some_window(seed=0):
  rng = np.random.default_rng(seed)
  return Window(*(rng.uniform(1, 6, (STEPS, NUM)) for _ in range(5)))


def some_images():
  return np.random.default_rng(1).random((STEPS, NUM, HEIGHT, WIDTH, 1))


def some_frames():
  return animation.drawing_frames(some_images(), some_window(), 3, scale=3)


def test_one_frame_a_step_with_each_rectangle_on_its_image():
  frames = some_frames()
  assert frames.shape[0] == STEPS and frames.dtype == np.uint8
  shown = windows.rectangles(some_window(), 3, HEIGHT, WIDTH)
  t, i = 3, 1
  one = windows.Rectangles(*(a[t, i] for a in shown))
  cell = windows.mark(some_images()[t, i], one, 3)
  left = 2 + 3 * WIDTH + 2
  np.testing.assert_array_equal(frames[t, 2 : 2 + 3 * HEIGHT, left : left + 3 * WIDTH], cell)


def test_without_a_window_frames_are_gray():
  frames = animation.drawing_frames(some_images())
  np.testing.assert_array_equal(frames[..., 0], frames[..., 1])


def test_reconstructions_show_reading_beside_writing():
  images = some_images()
  frames = animation.reconstruction_frames(
    images[-1], images, some_window(0), some_window(1), (2, 3), columns=1, scale=2
  )
  assert frames.shape == (STEPS, 4 + NUM * (2 * HEIGHT + 4), 8 + 4 * WIDTH, 3)
  inside = frames[0, 4 : 4 + 2 * HEIGHT, 4:-4].astype(int)
  green = inside[..., 1] > inside[..., 0] + 50
  red = inside[..., 0] > inside[..., 1] + 50
  assert green[:, : 2 * WIDTH].any() and not green[:, 2 * WIDTH :].any()
  assert red[:, 2 * WIDTH :].any() and not red[:, : 2 * WIDTH].any()


def test_gif_has_every_frame_and_waits_on_the_last(tmp_path):
  animation.save_gif(tmp_path / 'a.gif', some_frames(), seconds=1.0, pause=3.0)
  with Image.open(tmp_path / 'a.gif') as gif:
    assert gif.n_frames == STEPS
    assert gif.info['loop'] == 0
    durations = []
    for t in range(STEPS):
      gif.seek(t)
      durations.append(gif.info['duration'])
  assert durations == [200] * (STEPS - 1) + [3000]


def test_the_same_frames_are_the_same_gif(tmp_path):
  for name in ('a.gif', 'b.gif'):
    animation.save_gif(tmp_path / name, some_frames())
  assert (tmp_path / 'a.gif').read_bytes() == (tmp_path / 'b.gif').read_bytes()


def test_gif_of_one_still_frame(tmp_path):
  animation.save_gif(tmp_path / 'a.gif', some_frames()[:1])
  assert Image.open(tmp_path / 'a.gif').size == some_frames().shape[2:0:-1]


def test_gif_keeps_gray_and_red(tmp_path):
  frames = some_frames()
  animation.save_gif(tmp_path / 'a.gif', frames)
  with Image.open(tmp_path / 'a.gif') as gif:
    gif.seek(STEPS - 1)
    back = np.asarray(gif.convert('RGB')).astype(int)
  assert np.abs(back - frames[-1]).mean() < 4


@pytest.mark.parametrize('suffix', ['.mp4', '.webm'])
def test_film_is_written_where_there_is_an_encoder(tmp_path, suffix):
  path = tmp_path / f'a{suffix}'
  reason = animation.save_film(path, some_frames()[:, :-1, :-1])
  if reason:
    pytest.skip(reason)
  head = path.read_bytes()[:64]
  assert (b'ftyp' if suffix == '.mp4' else b'webm') in head
  assert list(tmp_path.iterdir()) == [path]


def test_without_ffmpeg_a_sentence_says_so(tmp_path, monkeypatch):
  monkeypatch.setattr(animation, 'find_ffmpeg', lambda: None)
  reason = animation.save_film(pathlib.Path(tmp_path / 'a.mp4'), some_frames())
  assert 'a.mp4 is left out' in reason and 'ffmpeg' in reason
  assert not list(tmp_path.iterdir())
