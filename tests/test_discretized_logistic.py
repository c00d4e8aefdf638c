"""The mixture against its CDF in 60 digits, its sums, gradients, samples and extremes."""

import decimal
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_support import FAST
from reference import TOLERANCE, assert_close, both_precisions

from draw_jax import discretized_logistic as logistic
from draw_jax import distributions

KINDS = [(1, 1), (1, 3), (3, 1), (3, 2), (4, 2)]  # C, K
kinds = pytest.mark.parametrize(('channels', 'components'), KINDS)


def random_canvas(channels, components, *shape, seed=0, scale=1.0):
  rng = np.random.default_rng(seed)
  size = logistic.canvas_channels(channels, components)
  return scale * rng.normal(size=(*shape, size))


def parts(canvas, channels, components):
  """Weights [K], means and log scales [C, K], coupling [P, K] of one pixel, from the definition."""
  logits = np.concatenate([[0.0], canvas[: components - 1]])
  weights = np.exp(logits - logits.max())
  numbers, read = iter(canvas[components - 1 :]), {}
  for name, rows in (
    ('mean', channels),
    ('scale', channels),
    ('pair', channels * (channels - 1) // 2),
  ):
    for row, k in itertools.product(range(rows), range(components)):
      read[name, row, k] = float(next(numbers))
  assert next(numbers, None) is None
  return weights / weights.sum(), read


def cdf(x) -> decimal.Decimal:
  return 1 / (1 + (-x).exp())


def reference_log_prob(canvas, values, channels, components) -> float:
  """Of one pixel with these values of 0 to 255: differences of the CDF in 60 digits."""
  D = decimal.Decimal
  weights, read = parts(canvas, channels, components)
  limits = {'Emin': decimal.MIN_EMIN, 'Emax': decimal.MAX_EMAX}
  with decimal.localcontext(decimal.Context(prec=60, **limits)):
    total = D(0)
    for k in range(components):
      probability = D(float(weights[k]))
      for c in range(channels):
        mean, pair = D(read['mean', c, k]), c * (c - 1) // 2
        for b in range(c):
          center = min(max(read['mean', b, k], -1.0), 1.0)
          apart = D(2) * D(int(values[b])) / D(255) - 1 - D(center)
          mean += D(read['pair', pair + b, k]) * apart
        scale = D(min(max(read['scale', c, k], -7.0), 7.0)).exp()
        middle = D(2) * D(int(values[c])) / D(255) - 1
        ends = [(middle + D(sign) / D(255) - mean) / scale for sign in (-1, 1)]
        ends[0] = ends[0] if values[c] > 0 else D('-Infinity')
        ends[1] = ends[1] if values[c] < 255 else D('Infinity')
        if ends[0] > 0:  # The other tail, as far from its end, has more digits.
          ends = [-ends[1], -ends[0]]
        probability *= cdf(ends[1]) - cdf(ends[0])
      total += probability
    return float(total.ln())


@functools.partial(jax.jit, static_argnums=(2, 3), compiler_options=FAST)
def log_prob(canvas, x, channels, components):
  return logistic.log_prob(logistic.mixture(canvas, channels, components), x)


@functools.partial(jax.jit, static_argnums=(2, 3), compiler_options=FAST)
def value_log_probs(canvas, before, channels, components):
  return logistic.value_log_probs(logistic.mixture(canvas, channels, components), before)


@functools.partial(jax.jit, static_argnums=(1, 2), compiler_options=FAST)
def mean(canvas, channels, components):
  return logistic.mean(logistic.mixture(canvas, channels, components))


@functools.partial(jax.jit, static_argnums=(1, 2, 3), compiler_options=FAST)
def sample(canvas, num, channels, components):
  """Many pixels of one canvas, [num, ..., C]."""
  mixture = logistic.mixture(jnp.broadcast_to(canvas, (num, *canvas.shape)), channels, components)
  return logistic.sample(mixture, jax.random.key(3))


@kinds
@both_precisions
def test_log_prob_agrees_with_the_cdf(channels, components, dtype):
  """The edges and scales at their limits are among the cases."""
  canvas = random_canvas(channels, components, 12)
  canvas[2:4] *= 3
  canvas[4] -= 8  # scales at their lowest, means far from black
  canvas[5] += 8
  values = np.random.default_rng(1).integers(0, 256, (12, channels))
  values[0], values[1] = 0, 255
  values[6, 0], values[7, -1] = 0, 255
  canvas, x = jnp.asarray(canvas, dtype), jnp.asarray(values / 255, dtype)
  expected = [
    reference_log_prob(np.asarray(one, np.float64), value, channels, components)
    for one, value in zip(canvas, values, strict=True)
  ]
  actual = log_prob(canvas, x, channels, components)
  assert actual.dtype == dtype
  if dtype == 'float64':
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
  else:  # A narrow bin is far away by float32's last bits, times the inverse of the scale.
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


EXTREMES = [-1e300, -1e4, -30.0, -7.0, -1.0, -1e-3, 0.0, 0.3, 1.0, 7.0, 50.0, 1e5, 1e300]
numbers = st.one_of(st.floats(-4, 4), st.sampled_from(EXTREMES))


@functools.partial(jax.jit, static_argnums=(2, 3), compiler_options=FAST)
def totals(canvas, before, channels, components):
  """Sum of the probabilities of all values of each channel, given those before it."""
  mixture = logistic.mixture(canvas, channels, components)
  each = [logistic.value_log_probs(mixture, before[:c]) for c in range(channels)]
  return jnp.exp(jnp.stack(each)).sum(-1)


@given(st.lists(numbers, min_size=19, max_size=19), st.tuples(*[st.integers(0, 255)] * 3))
@example([0.0] * 19, (0, 255, 0))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_probabilities_of_all_values_sum_to_one(canvas, values):
  with jax.enable_x64(True):
    canvas, before = jnp.asarray(canvas), jnp.asarray(values) / 255
    np.testing.assert_allclose(totals(canvas, before, 3, 2), 1, atol=1e-9)
    gray = canvas[: logistic.canvas_channels(1, 5)]
    np.testing.assert_allclose(totals(gray, before, 1, 5), 1, atol=1e-9)


@pytest.mark.parametrize(('channels', 'components'), [(1, 3), (3, 2)])
def test_log_prob_is_the_sum_over_channels_in_sequence(channels, components):
  with jax.enable_x64(True):
    canvas = random_canvas(channels, components, 5, 4)
    values = np.random.default_rng(2).integers(0, 256, (5, 4, channels))
    x, total = values / 255, 0
    for c in range(channels):
      all_values = value_log_probs(canvas, x[..., :c], channels, components)
      assert all_values.shape == (5, 4, 256)
      total += np.take_along_axis(all_values, values[..., c, None], -1)[..., 0]
    np.testing.assert_allclose(log_prob(canvas, x, channels, components), total, rtol=1e-12)


def test_the_joint_of_three_channels_by_enumeration(monkeypatch):
  """All 5^3 pixels of 5 levels: they sum to one, and samples come as often as they should."""
  monkeypatch.setattr(logistic, 'LEVELS', 5)
  pixels = np.array(list(itertools.product(range(5), repeat=3)))
  canvas = random_canvas(3, 2, 3)
  with jax.enable_x64(True):
    # Not the compiled ones above, which are for 256 levels.
    mixture = logistic.mixture(canvas, 3, 2)
    each = jax.vmap(logistic.log_prob, (None, 0))(mixture, pixels[:, None] / 4)
    drawn = jax.jit(sample.__wrapped__, static_argnums=(1, 2, 3))(canvas, 100_000, 3, 2)
  probabilities = np.exp(each)
  np.testing.assert_allclose(probabilities.sum(0), 1, rtol=1e-12)
  numbers = np.rint(4 * np.asarray(drawn)).astype(int) @ [25, 5, 1]
  for i in range(3):
    assert chi_square(np.bincount(numbers[:, i], minlength=125), probabilities[:, i]) > 1e-3


def chi_square(counts, probabilities) -> float:
  """The p-value of counts, with those that are seldom expected in one bin."""
  expected = probabilities * counts.sum()
  often = expected >= 5
  counts = np.append(counts[often], counts[~often].sum())
  expected = np.append(expected[often], expected[~often].sum())
  return (
    scipy.stats.chisquare(counts, expected).pvalue
    if expected[-1]
    else (scipy.stats.chisquare(counts[:-1], expected[:-1]).pvalue)
  )


@pytest.mark.parametrize('canvas', [
  [0.1, -2.0],  # one component, inside
  [-1.1, -0.5],  # much of it in black
  [0.5, -6.5],  # a bin or two
  [0.0, 7.0],  # the widest: nearly all black or white
  [1.0, 0.6, -0.4, -3.0, -2.0],  # two components
], ids=str)  # fmt: skip
def test_the_histogram_of_samples(canvas):
  components = (len(canvas) + 1) // 3
  canvas = jnp.asarray(canvas, jnp.float32)
  probabilities = np.exp(value_log_probs(canvas, jnp.zeros(0), 1, components)).astype(float)
  drawn = np.asarray(sample(canvas, 100_000, 1, components))[:, 0]
  values = np.rint(255 * drawn).astype(int)
  np.testing.assert_allclose(drawn, values / 255, rtol=2e-7)
  counts = np.bincount(values, minlength=256)
  assert chi_square(counts, probabilities / probabilities.sum()) > 1e-3


@pytest.mark.parametrize(('channels', 'components'), [(1, 1), (3, 2)])
def test_gradients_agree_with_finite_differences(channels, components):
  with jax.enable_x64(True):
    canvas = random_canvas(channels, components, 3, scale=0.7)
    x = np.random.default_rng(3).integers(0, 256, (3, channels)) / 255
    x[0, 0], x[1, -1] = 0, 1

    def total(canvas):
      mixture = logistic.mixture(canvas, channels, components)
      return logistic.log_prob(mixture, x).sum() + (logistic.mean(mixture) * (1 + x)).sum()

    gradient, step = jax.jit(jax.grad(total))(canvas), 1e-6
    moved = canvas + step * np.eye(canvas.size).reshape(-1, *canvas.shape)
    back = canvas - step * np.eye(canvas.size).reshape(-1, *canvas.shape)
    many = jax.jit(jax.vmap(total))
    expected = (many(moved) - many(back)).reshape(canvas.shape) / (2 * step)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


@functools.partial(jax.jit, static_argnums=(2, 3), compiler_options=FAST)
def everything(canvas, x, channels, components):
  """All that is made of a canvas, and its gradients."""

  def log_prob_and_mean(canvas):
    mixture = logistic.mixture(canvas, channels, components)
    return logistic.log_prob(mixture, x), logistic.mean(mixture)

  mixture = logistic.mixture(canvas, channels, components)
  drawn = logistic.sample(mixture, jax.random.key(0))
  return log_prob_and_mean(canvas), jax.jacrev(log_prob_and_mean)(canvas), drawn


@given(
  st.lists(
    st.one_of(
      st.floats(width=32, allow_nan=False, allow_infinity=False),
      st.sampled_from([-3e38, -1e6, -7.0, 0.0, 7.0, 1e6, 3e38]),
    ),
    min_size=19,
    max_size=19,
  ),
  st.tuples(*[st.sampled_from([0, 1, 127, 255])] * 3),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_finite_canvas_gives_finite_numbers(canvas, values):
  x = jnp.asarray(values, jnp.float32) / 255
  (value, mean), slopes, drawn = everything(jnp.asarray(canvas, jnp.float32), x, 3, 2)
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((value, slopes)))
  assert value <= 0
  assert ((mean >= 0) & (mean <= 1)).all() and ((drawn >= 0) & (drawn <= 1)).all()


def test_each_of_the_256_values_is_that_value():
  """Intensities of float32, as they come to the device, are the values that they were."""
  values = jnp.arange(256, dtype=jnp.uint8)
  intensities = values.astype(jnp.float32) / 255
  canvas = jnp.asarray(random_canvas(1, 2, scale=0.5), jnp.float32)
  actual = log_prob(canvas, intensities[:, None], 1, 2)
  np.testing.assert_allclose(actual, value_log_probs(canvas, jnp.zeros(0), 1, 2), rtol=1e-5)
  np.testing.assert_array_equal(
    actual, log_prob(canvas, np.float32(np.arange(256) / 255)[:, None], 1, 2)
  )
  assert len(np.unique(actual)) > 250


@pytest.mark.parametrize(('channels', 'components'), [(1, 3), (3, 2)])
def test_mean_agrees_with_the_sum_over_values(channels, components):
  """To half a value for the first channel, and for all where black and white are far."""
  with jax.enable_x64(True):
    canvas = random_canvas(channels, components, 50)
    first = np.exp(value_log_probs(canvas, np.zeros((50, 0)), channels, components))
    actual = mean(canvas, channels, components)
    np.testing.assert_allclose(actual[:, 0], first @ np.arange(256) / 255, atol=0.5 / 255)
    canvas[:, components - 1 :] *= 0.2
    scales = components - 1 + channels * components
    canvas[:, scales : scales + channels * components] -= 3
    drawn = np.asarray(sample(canvas, 4000, channels, components))
    error = drawn.std(0) / np.sqrt(4000)
    apart = np.abs(mean(canvas, channels, components) - drawn.mean(0))
    assert (apart < 5 * error + 0.5 / 255).all()


@both_precisions
def test_from_mean_has_that_mean_and_is_wide(dtype):
  image = jnp.asarray(np.random.default_rng(0).uniform(0.02, 0.98, (4, 5, 3)), dtype)
  canvas = jax.jit(logistic.from_mean, static_argnums=1)(image, 2)
  assert canvas.dtype == dtype
  assert_close(mean(canvas, 3, 2), image, TOLERANCE[dtype])
  probabilities = np.exp(value_log_probs(canvas, jnp.zeros((4, 5, 0), dtype), 3, 2))
  # Of all images no value would be a surprise.
  assert probabilities.min() > 1e-5
  # A channel that differs from its mean as the one before does is likely, another no surprise.
  given = logistic.mixture(canvas, 3, 2)
  with_the_one_before = np.broadcast_to(np.array([[1], [0], [1]]), given.coupling.shape)
  np.testing.assert_array_equal(given.coupling, with_the_one_before)
  dark, light = (jnp.full((4, 5, 1), value, dtype) for value in (102 / 255, 153 / 255))
  second = [np.exp(value_log_probs(canvas, first, 3, 2)) for first in (dark, light)]
  assert np.min(second) > 1e-12
  # The ends have the tails.
  likely = np.array([p[..., 1:-1].argmax(-1) + 1 for p in second])
  inside = ((likely > 10) & (likely < 245)).all(0)
  assert inside.any()
  np.testing.assert_allclose(likely[1][inside] - likely[0][inside], 51, atol=1)


def test_the_name_that_configs_use():
  output = distributions.OUTPUTS['discretized_logistic'](3, 2)
  canvas = jnp.asarray(random_canvas(3, 2, 2, 4, 5), jnp.float32)
  x = jnp.asarray(np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3)) / 255, jnp.float32)
  assert output.canvas_channels == canvas.shape[-1] == 19
  each = log_prob(canvas, x, 3, 2)
  np.testing.assert_allclose(jax.jit(output.log_prob)(canvas, x), each.sum((1, 2)), rtol=1e-6)
