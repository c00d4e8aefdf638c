from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reference import TOLERANCE, assert_close, both_precisions

from draw_jax import attention

# Height, width, channels, N.
GRIDS = [(6, 9, 1, 3), (9, 6, 3, 2), (7, 7, 3, 4), (5, 8, 2, 1)]

check = settings(max_examples=100, deadline=None, derandomize=True)
any_float = st.floats(width=32, allow_nan=False, allow_infinity=False)
near_limit = st.floats(-13, 13, width=32)
raws = arrays(np.float32, (8, 5), elements=st.one_of(near_limit, any_float))
grids = st.sampled_from([(28, 28, 2), (5, 9, 3), (6, 1, 1)])  # height, width, N


def some(seed, dtype, *shape, scale=1.0):
  return (scale * np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def zeros_window(size, height, width):
  return attention.window(jnp.zeros(5), size, height, width)


@jax.jit
def apply(raw, image, patch):
  """All that the module computes: sizes are those of the image [..., H, W, C] and the patch."""
  size, (height, width) = patch.shape[-2], image.shape[-3:-1]
  window = attention.window(raw, size, height, width)
  f_y, f_x = attention.filterbanks(window, size, height, width)
  seen = attention.read(image, window, size)
  written = attention.write(patch, window, height, width)
  return {'window': jnp.stack(window, -1), 'f_y': f_y, 'f_x': f_x, 'read': seen, 'write': written}


def arguments(dtype, height, width, channels, size, leading=(), scale=1.0):
  """Raw numbers, an image and a patch."""
  raw = some(0, dtype, *leading, 5, scale=scale)
  image = some(1, dtype, *leading, height, width, channels)
  return raw, image, some(2, dtype, *leading, size, size, channels)


@pytest.mark.parametrize('grid', GRIDS)
@both_precisions
def test_agrees_with_the_equations(grid, dtype):
  height, width, _, size = grid
  raws, images, patches = arguments(dtype, *grid, leading=(6,), scale=0.7)
  actual = apply(raws, images, patches)
  for n, (raw, image, patch) in enumerate(zip(raws, images, patches, strict=True)):
    w = reference.window(raw.astype(float), size, height, width)
    f_y, f_x = reference.filterbanks(w, size, height, width)
    expected = {
      'window': np.subtract(w, [1, 1, 0, 0, 0]),  # the package counts pixels from 0
      'f_y': f_y,
      'f_x': f_x,
      'read': reference.read(image, w, size),
      'write': reference.write(patch, w, height, width),
    }
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
      assert value.dtype == dtype
      assert_close(value[n], expected[name], TOLERANCE[dtype])


@pytest.mark.parametrize('leading', [(), (2, 3)])
def test_takes_any_leading_axes(leading):
  given = arguments('float32', 6, 9, 2, 3, leading)
  each = apply
  for _ in leading:
    each = jax.vmap(each)
  actual, expected = apply(*given), each(*given)
  for name, value in actual.items():
    assert value.shape[: len(leading)] == leading
    assert_close(value, expected[name], 1e-6)


@pytest.mark.parametrize(
  'size, expected', [(1, [13.5]), (2, [0, 27]), (5, [0, 6.75, 13.5, 20.25, 27])]
)
def test_zeros_span_the_image(size, expected):
  window = zeros_window(size, 28, 28)
  np.testing.assert_array_equal(attention.centers(window.center_x, window.stride, size), expected)
  np.testing.assert_array_equal(attention.centers(window.center_y, window.stride, size), expected)
  assert (window.variance, window.intensity) == (1, 1)


def test_zeros_on_an_oblong_image():
  """The longer side is spanned; on the shorter one the grid stands out on both ends."""
  window = zeros_window(2, 20, 28)
  np.testing.assert_array_equal(attention.centers(window.center_x, window.stride, 2), [0, 27])
  np.testing.assert_array_equal(attention.centers(window.center_y, window.stride, 2), [-4, 23])


def test_one_filter_has_no_stride():
  raw, image, patch = arguments('float32', 6, 9, 1, 1)
  for log_stride in (-20, 0, 3, 20):
    moved = np.where(np.arange(5) == 3, np.float32(log_stride), raw)
    read = apply(moved, image, patch)['read']
    np.testing.assert_array_equal(read, apply(raw, image, patch)['read'])


@pytest.mark.parametrize('shape', [(8, 8), (6, 9)])
def test_x_is_the_column_and_y_the_row(shape):
  """Fails if F_X and F_Y change places, on a square image too."""
  row, column = 1, 4
  image = np.zeros((*shape, 1), np.float32)
  image[row, column] = 1
  window = attention.Window(*map(jnp.float32, (column, row, 1e-3, 1, 1)))
  np.testing.assert_array_equal(attention.read(image, window, 1), [[[1]]])
  np.testing.assert_array_equal(attention.write(jnp.ones((1, 1, 1)), window, *shape), image)
  f_y, f_x = attention.filterbanks(window, 1, *shape)
  assert (f_y.argmax(), f_x.argmax()) == (row, column)


def test_one_image_through_many_windows():
  rng = np.random.default_rng(0)
  image, raw = rng.uniform(size=(5, 7, 2)), rng.normal(size=(4, 5), scale=0.3)
  window = attention.window(jnp.asarray(raw), 3, 5, 7)
  many = attention.read(jnp.asarray(image), window, 3)
  for patch, numbers in zip(many, raw, strict=True):
    expected = reference.read(image, reference.window(numbers, 3, 5, 7), 3)
    assert_close(patch, expected, TOLERANCE['float32'])


def test_patches_have_rows_first():
  """Fails if a patch is transposed: filters on whole pixels copy an oblong corner."""
  image = some(0, 'float32', 6, 9, 2)
  window = attention.Window(*map(jnp.float32, (3, 2, 1e-3, 1, 1)))
  np.testing.assert_array_equal(attention.read(image, window, 3), image[1:4, 2:5])
  written = attention.write(image[1:4, 2:5], window, 6, 9)
  np.testing.assert_array_equal(written[1:4, 2:5], image[1:4, 2:5])


@pytest.mark.parametrize('x', [-1e30, -12, 12, 1e30])
@pytest.mark.parametrize('log_variance', [-1e30, 0, 12])
@pytest.mark.parametrize('log_stride', [-12, 0, 1e30])
@both_precisions
def test_far_outside_agrees_with_exact_arithmetic(x, log_variance, log_stride, dtype):
  _, image, patch = arguments(dtype, 28, 28, 1, 3)
  out = apply(np.array([x, 0, log_variance, log_stride, 0], dtype), image, patch)
  center, _, variance, stride, _ = (Decimal(float(number)) for number in out['window'])
  expected = reference.exact_filterbank(center + 1, stride, variance, 3, 28)
  assert_close(out['f_x'], expected, TOLERANCE[dtype])


@pytest.mark.parametrize('x, y', [(-3, 2.5), (3, -2.5), (1e38, 1e38), (-1e38, -1e38)])
def test_far_outside_reads_the_nearest_edge(x, y):
  _, image, patch = arguments('float32', 5, 9, 1, 2)
  read = apply(np.float32([x, y, -4, -5, np.log(3)]), image, patch)['read']
  corner = image[0 if y < 0 else -1, 0 if x < 0 else -1]
  assert_close(read, np.broadcast_to(3 * corner, (2, 2, 1)), 1e-5)


@jax.jit
def gradients(raw, image, patch):
  """Of a weighed sum of all that is read and written, by each argument."""

  def weighed(raw, image, patch):
    out = apply(raw, image, patch)
    return (some(3, 'float32', *patch.shape) * out['read']).sum() + (image * out['write']).sum()

  return jax.grad(weighed, (0, 1, 2))(raw, image, patch)


def probes(grid):
  """An image of two channels and a patch for each of `raws`."""
  height, width, size = grid
  _, image, patch = arguments('float32', height, width, 2, size, leading=(8,))
  return image, patch


@check
@given(raws, grids)
def test_every_filter_sums_to_one(raw, grid):
  out = apply(raw, *probes(grid))
  for bank in (out['f_y'], out['f_x']):
    assert np.isfinite(bank).all()
    assert (np.asarray(bank) >= 0).all()
    np.testing.assert_allclose(bank.sum(-1), 1, rtol=1e-5)


@check
@given(raws, grids)
def test_values_and_gradients_are_finite(raw, grid):
  given = raw, *probes(grid)
  for array in (*apply(*given).values(), *gradients(*given)):
    assert np.isfinite(array).all()


@check
@given(raws, grids)
def test_filters_relative_to_the_stride_are_finite(raw, grid):
  image, _ = probes(grid)
  *shape, size = grid

  def read(raw):
    return attention.read(image, attention.window(raw, size, *shape, relative=True), size).sum()

  for array in jax.jit(jax.value_and_grad(read))(raw):
    assert np.isfinite(array).all()


def test_filters_relative_to_the_stride_keep_their_proportions():
  raw = some(0, 'float32', 6, 5)
  window = attention.window(raw, 3, 6, 9, relative=True)
  plain = attention.window(raw, 3, 6, 9)
  assert_close(window.variance, np.exp(raw[:, 2]) * plain.stride**2, TOLERANCE['float32'])
  for name in ('center_x', 'center_y', 'stride', 'intensity'):
    np.testing.assert_array_equal(getattr(window, name), getattr(plain, name))
  # The image of one pixel, and a grid of one filter.
  one = attention.window(raw, 1, 1, 1, relative=True)
  assert np.isfinite(np.stack(one)).all()


@check
@given(raws, grids, st.floats(-4, 4, width=32))
def test_a_constant_reads_as_gamma_times_it(raw, grid, value):
  image, patch = probes(grid)
  out = apply(raw, np.full_like(image, value), patch)
  expected = value * out['window'][:, -1, None, None, None]
  np.testing.assert_allclose(out['read'], np.broadcast_to(expected, patch.shape), rtol=1e-5)


@check
@given(raws, grids)
def test_write_is_the_transpose_of_read(raw, grid):
  """<read(x), w> / gamma = <x, write(w)> gamma."""
  image, patch = probes(grid)
  out = apply(raw, image, patch)
  gamma = out['window'][:, -1]
  left = np.einsum('nijc,nijc->n', out['read'], patch) / gamma
  right = np.einsum('nijc,nijc->n', out['write'], image) * gamma
  np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


@check
@given(st.data(), st.sampled_from([(28, 28, 2), (12, 7, 5), (7, 12, 1)]))
def test_a_sharp_filter_on_pixels_reads_them(data, grid):
  *shape, size = grid
  gaps = max(size - 1, 1)
  stride = data.draw(st.integers(1, max((min(shape) - 1) // gaps, 1)))
  span = (size - 1) * stride
  row, column = (data.draw(st.integers(0, length - 1 - span)) for length in shape)
  # The raw numbers of the paper's formulas for a grid on these pixels, counted from 1.
  g_y, g_x = row + 1 + span / 2, column + 1 + span / 2
  log_factor = np.log(stride * gaps / (max(shape) - 1))
  raw = [2 * g_x / (shape[1] + 1) - 1, 2 * g_y / (shape[0] + 1) - 1, -8, log_factor, 0]
  _, image, patch = arguments('float32', *shape, 1, size)
  pixels = image[row : row + span + 1 : stride, column : column + span + 1 : stride]
  np.testing.assert_array_equal(apply(np.float32(raw), image, patch)['read'], pixels)
