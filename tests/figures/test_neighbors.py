"""The exact search for nearest images."""

import numpy as np
import pytest

from draw_jax.figures import neighbors


def in_chunks(images, size):
  return (images[i : i + size] for i in range(0, len(images), size))


def brute_force(queries, images):
  differences = queries[:, None].astype(np.float64) - images[None].astype(np.float64)
  squared = (differences**2).sum((2, 3, 4))
  return squared.argmin(1), np.sqrt(squared.min(1))


@pytest.mark.parametrize('chunk', [7, 100, 1000])
@pytest.mark.parametrize('channels', [1, 3])
def test_agrees_with_brute_force(chunk, channels):
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (300, 6, 9, channels), np.uint8)
  queries = rng.random((11, 6, 9, channels)).astype(np.float32)
  index, distance, found = neighbors.nearest(queries, in_chunks(images, chunk))
  expected, expected_distance = brute_force(queries, images / 255)
  np.testing.assert_array_equal(index, expected)
  np.testing.assert_allclose(distance, expected_distance, rtol=1e-5)
  np.testing.assert_allclose(found, images[expected] / 255, atol=1e-6)


def test_tells_almost_equal_images_apart():
  """|q|^2 - 2 q x + |x|^2 in float32 would not."""
  image = np.random.default_rng(0).random((64, 64, 3), np.float32)
  images = np.stack([image] * 50)
  images[:, 0, 0, 0] += np.random.default_rng(1).permutation(np.arange(1, 51)) * 1e-4
  index, _, _ = neighbors.nearest(image[None], in_chunks(images, 20))
  assert index == images[:, 0, 0, 0].argmin()


def test_the_first_of_equal_ones_is_taken_across_chunks():
  images = np.zeros((6, 2, 2, 1), np.uint8)
  index, distance, _ = neighbors.nearest(np.zeros((1, 2, 2, 1)), in_chunks(images, 2))
  assert (index, distance) == ([0], [0])


def test_grid_has_a_column_of_neighbors():
  images = np.zeros((6, 8, 8, 1))
  plain = neighbors.samples(images, 3)
  beside = neighbors.samples(images, 3, np.ones((2, 8, 8, 1)))
  assert beside.axes.get_xlim()[1] > plain.axes.get_xlim()[1] + 8
  assert beside.axes.get_ylim() == plain.axes.get_ylim()
