"""Rectangles against known attention parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from draw_jax import attention
from draw_jax.attention import Window
from draw_jax.figures import windows

HEIGHT, WIDTH = 20, 30


def window(x, y, sigma=1.0, stride=2.0):
  return Window(*(np.float32(a) for a in (x, y, sigma**2, stride, 1.0)))


@pytest.mark.parametrize('size', [1, 2, 5])
def test_corners_are_half_a_grid_from_the_center_on_an_image_that_is_not_square(size):
  shown = windows.rectangles(window(17.5, 8.0, stride=1.5), size, HEIGHT, WIDTH)
  half = (size - 1) / 2 * 1.5
  assert (shown.left, shown.right) == (17.5 - half, 17.5 + half)
  assert (shown.top, shown.bottom) == (8.0 - half, 8.0 + half)


def test_corners_are_the_outermost_filters_of_the_network():
  raw = jnp.array([0.2, -0.3, 0.0, -1.5, 0.0])
  one = attention.window(raw, 5, HEIGHT, WIDTH)
  shown = windows.rectangles(one, 5, HEIGHT, WIDTH)
  xs = attention.centers(one.center_x, one.stride, 5)
  ys = attention.centers(one.center_y, one.stride, 5)
  np.testing.assert_allclose((shown.left, shown.right), (xs[0], xs[-1]), rtol=1e-5)
  np.testing.assert_allclose((shown.top, shown.bottom), (ys[0], ys[-1]), rtol=1e-5)


def test_raw_zeros_on_a_square_are_the_whole_image():
  shown = windows.rectangles(attention.window(jnp.zeros(5), 5, 28, 28), 5, 28, 28)
  np.testing.assert_allclose(shown[:4], (0, 0, 27, 27), atol=1e-4)


def test_a_window_that_leaves_the_image_ends_at_its_edge_pixels():
  shown = windows.rectangles(window(28, 1, stride=3), 5, HEIGHT, WIDTH)
  assert shown[:4] == (22, 0, WIDTH - 1, 7)


@pytest.mark.parametrize(
  ('x', 'y', 'corners'),
  [
    (-50, 10, (0, 6, 0, 14)),
    (80, 10, (WIDTH - 1, 6, WIDTH - 1, 14)),
    (15, -50, (11, 0, 19, 0)),
    (15, 80, (11, HEIGHT - 1, 19, HEIGHT - 1)),
  ],
)
def test_a_window_outside_is_a_line_on_the_nearest_edge(x, y, corners):
  assert windows.rectangles(window(x, y), 5, HEIGHT, WIDTH)[:4] == corners


def test_a_window_around_the_image_frames_it():
  shown = windows.rectangles(window(15, 10, stride=100), 5, HEIGHT, WIDTH)
  assert shown[:4] == (0, 0, WIDTH - 1, HEIGHT - 1)


def test_line_width_follows_sigma_within_limits():
  sigmas = np.array([0.01, 1.0, 2.0, 4.0, 1000.0])
  ones = np.ones_like(sigmas)
  shown = windows.rectangles(Window(ones, ones, sigmas**2, ones, ones), 5, HEIGHT, WIDTH)
  assert np.all(np.diff(shown.line) > 0)
  assert shown.line[2] == pytest.approx(2 * shown.line[1])
  assert 0 < shown.line[0] < 1
  assert shown.line[-1] < WIDTH / 5


@pytest.mark.parametrize('channels', [1, 2, 3, 4])
def test_marks_the_pixels_under_the_border_and_no_others(channels):
  image = np.zeros((HEIGHT, WIDTH, channels), np.uint8)
  shown = windows.Rectangles(*(np.float64(a) for a in (5, 3, 12, 9, 1)))
  marked = windows.mark(image, shown, color=(255, 0, 0))
  expected = np.zeros((HEIGHT, WIDTH), np.uint8)
  expected[3:10, 5:13] = 255
  expected[4:9, 6:12] = 0
  np.testing.assert_array_equal(marked[..., 0], expected)
  assert not marked[..., 1:].any()


def test_marks_in_the_same_place_when_enlarged():
  image = np.zeros((HEIGHT, WIDTH, 1), np.uint8)
  shown = windows.Rectangles(*(np.float64(a) for a in (5, 3, 12, 9, 1)))
  small = windows.mark(image, shown).astype(float)
  large = windows.mark(image, shown, scale=4).astype(float)
  means = large.reshape(HEIGHT, 4, WIDTH, 4, 3).mean((1, 3))
  np.testing.assert_allclose(means, small, atol=1)


def test_marks_each_image_with_its_own_rectangle():
  images = np.zeros((2, 3, HEIGHT, WIDTH, 1))
  rng = np.random.default_rng(0)
  fields = (rng.uniform(0, 20, (2, 3)) for _ in range(5))
  shown = windows.rectangles(Window(*fields), 3, HEIGHT, WIDTH)
  marked = windows.mark(images, shown, 2)
  one = windows.mark(images[1, 2], jax.tree.map(lambda a: a[1, 2], shown), 2)
  np.testing.assert_array_equal(marked[1, 2], one)
