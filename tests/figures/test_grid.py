"""Images side by side, and files that are whole."""

import numpy as np
import pytest
from PIL import Image

from draw_jax import files
from draw_jax.errors import UserError
from draw_jax.figures import grid


def test_tiles_in_rows_with_padding_around_and_between():
  images = np.arange(1, 4, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 5, 1), np.uint8)
  sheet = grid.tile(images, columns=2, padding=1)
  assert sheet.shape == (2 * 3 + 1, 2 * 6 + 1, 3)
  expected = np.full((7, 13), 255)
  expected[1:3, 1:6] = 1
  expected[1:3, 7:12] = 2
  expected[4:6, 1:6] = 3
  np.testing.assert_array_equal(sheet[..., 0], expected)


def test_grids_are_about_square_and_full_where_they_can_be():
  columns = [grid.default_columns(num) for num in (1, 2, 3, 4, 7, 8, 10, 12, 25, 32, 64, 100)]
  assert columns == [1, 2, 3, 2, 3, 4, 5, 4, 5, 8, 8, 10]


def test_enlarges_pixels_but_not_the_padding():
  sheet = grid.tile(np.zeros((4, 2, 3, 1)), padding=1, scale=5)
  assert sheet.shape == (2 * 11 + 1, 2 * 16 + 1, 3)


def test_floats_bytes_gray_and_color_agree():
  images = np.random.default_rng(0).random((3, 4, 5, 3))
  as_bytes = np.round(255 * images).astype(np.uint8)
  np.testing.assert_array_equal(grid.rgb(images), as_bytes)
  np.testing.assert_array_equal(grid.rgb(as_bytes), as_bytes)
  gray = grid.rgb(images[..., :1])
  assert gray.shape == images.shape
  np.testing.assert_array_equal(gray[..., 2], as_bytes[..., 0])
  np.testing.assert_array_equal(grid.rgb(np.full((2, 2, 5), [0, 0, 0, 0, 1.0])), 51)


def test_values_outside_the_unit_interval_do_not_wrap():
  np.testing.assert_array_equal(grid.rgb(np.array([-0.1, 1.1]).reshape(1, 2, 1))[0, :, 0], [0, 255])


def test_png_is_read_back(tmp_path):
  image = np.random.default_rng(0).integers(0, 256, (7, 9, 3), np.uint8)
  grid.save_png(tmp_path / 'new' / 'folder' / 'a.png', image)
  np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / 'new/folder/a.png')), image)


def test_nothing_half_written_replaces_a_file(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('old')
  with pytest.raises(KeyError), files.writing(path) as temporary:
    temporary.write_text('half')
    raise KeyError
  assert path.read_text() == 'old'
  assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_one_message(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match=r'cannot write .*a\.png'):
    grid.save_png(tmp_path / 'file' / 'a.png', np.zeros((2, 2, 1)))
