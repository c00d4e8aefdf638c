"""Figures of sequences: what is placed where."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from draw_jax.attention import Window
from draw_jax.figures import explain, page, sequences, windows

STEPS, NUM, HEIGHT, WIDTH = 7, 2, 10, 16


def some_window():
  rng = np.random.default_rng(0)
  return Window(*(rng.uniform(2, 8, (STEPS, NUM)) for _ in range(5)))


def some_images(channels=1):
  return np.random.default_rng(1).random((STEPS, NUM, HEIGHT, WIDTH, channels))


def drawn(sheet):
  """Rectangles as (x, y, width, height, line width) in pixels of the images."""
  patches = [p for p in sheet.axes.patches if isinstance(p, Rectangle) and not p.get_fill()]
  return np.array([(*p.get_bbox().bounds, p.get_linewidth() * sheet.point) for p in patches])


def test_chosen_steps_are_spread_from_the_first_to_the_last():
  assert sequences.chosen_steps(64, 10).tolist() == [0, 7, 14, 21, 28, 35, 42, 49, 56, 63]
  assert sequences.chosen_steps(3, 10).tolist() == [0, 1, 2]
  assert sequences.chosen_steps(1, 10).tolist() == [0]


@pytest.mark.parametrize('channels', [1, 3])
def test_each_rectangle_lies_on_its_image(channels):
  sheet = sequences.sequences(some_images(channels), some_window(), 3, columns=4)
  steps = sequences.chosen_steps(STEPS, 4)
  assert len(sheet.axes.images) == NUM * len(steps)
  shown = windows.rectangles(some_window(), 3, HEIGHT, WIDTH)
  for patch, image, (i, t) in zip(
    drawn(sheet), sheet.axes.images, [(i, t) for i in range(NUM) for t in steps], strict=True
  ):
    left, _, _, top = image.get_extent()
    # The middle of the first pixel is half a pixel inside the image.
    x, y = left + shown.left[t, i] + 0.5, top + shown.top[t, i] + 0.5
    width = shown.right[t, i] - shown.left[t, i]
    height = shown.bottom[t, i] - shown.top[t, i]
    np.testing.assert_allclose(patch, (x, y, width, height, shown.line[t, i]), rtol=1e-6)


def test_without_attention_there_are_no_rectangles():
  assert len(drawn(sequences.sequences(some_images()))) == 0


def test_glimpses_are_green_on_the_same_image():
  images = some_images()[0]
  sheet = sequences.glimpses(images, some_window(), 12)
  assert len(drawn(sheet)) == NUM * STEPS
  first, second = (np.asarray(image.get_array()) for image in sheet.axes.images[:2])
  np.testing.assert_array_equal(first, second)
  green = [p.get_edgecolor()[:3] for p in sheet.axes.patches if not p.get_fill()]
  assert set(green) == {page.color_of(windows.GREEN)}


def test_the_bar_of_a_step_stands_under_its_image_and_shows_its_kl():
  kl = np.random.default_rng(2).random((STEPS, NUM))
  images = some_images()
  sheet = sequences.reconstructions(images[0], images, kl, columns=4)
  bars = [p for p in sheet.axes.patches if p.get_fill()]
  assert len(bars) == NUM * STEPS
  heights = np.array([abs(bar.get_height()) for bar in bars]).reshape(NUM, STEPS).T
  np.testing.assert_allclose(heights / heights.max(), kl / kl.max())
  middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
  for column, step in enumerate(sequences.chosen_steps(STEPS, 4)):
    left, right, _, _ = sheet.axes.images[column].get_extent()
    assert middles[step] == pytest.approx((left + right) / 2)


@pytest.mark.parametrize('kl', [None, np.ones((STEPS, NUM))])
def test_time_runs_from_the_first_image_to_the_last(kl):
  images = some_images()
  sheet = (
    sequences.sequences(images, columns=4)
    if kl is None
    else sequences.reconstructions(images[-1], images, kl, columns=4)
  )
  (arrow,) = [text for text in sheet.axes.texts if text.get_text().startswith('Time')]
  extents = np.array([image.get_extent() for image in sheet.axes.images])
  assert arrow.xyann[0] == extents[:, 0].min() and arrow.xy[0] == extents[:, 1].max()


def test_interpolation_is_framed_by_both_ends():
  ways = np.random.default_rng(0).random((2, 3, HEIGHT, WIDTH, 1))
  sheet = sequences.interpolation(ways[:, 0], ways, ways[:, -1])
  assert len(sheet.axes.images) == 2 * 5


def test_the_same_figure_is_the_same_file(tmp_path):
  for name in 'ab':
    figure = sequences.sequences(some_images(), some_window(), 3)
    paths = page.save(figure, tmp_path / name)
    assert [path.name for path in paths] == [f'{name}.png', f'{name}.pdf']
  for suffix in ('png', 'pdf'):
    assert (tmp_path / f'a.{suffix}').read_bytes() == (tmp_path / f'b.{suffix}').read_bytes()


@pytest.mark.parametrize('shape', [(28, 28, 1), (75, 100, 3), (40, 30, 1)])
def test_attention_is_explained_on_any_image(shape):
  image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
  assert len(drawn(explain.explainer(image))) == 3
  # The image, its patch, the image from the patch, and two filters.
  assert len(explain.zooming(image).axes.images) == 5


def test_explained_windows_differ_as_the_caption_says():
  small, sharp, blurry = zip(*explain.explainer_windows(28, 28)[2:4], strict=True)
  assert small[1] < min(sharp[1], blurry[1])
  assert sharp[0] < min(small[0], blurry[0])
