import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import TOLERANCE, assert_close, both_precisions

from draw_jax import distributions

MEANS = np.array([-2.0, -0.3, 0.0, 0.7, 3.0])
LOG_STDS = np.array([-3.0, 0.4, 0.0, -0.2, 1.0])
gaussian_kl_and_slopes = jax.jit(jax.value_and_grad(distributions.gaussian_kl, (0, 1)))


def arguments(dtype, *values):
  return [jnp.asarray(value, dtype) for value in values]


@both_precisions
def test_gaussian_kl_is_the_expected_log_ratio_of_densities(dtype):
  prior = scipy.stats.norm()
  expected = []
  for mean, log_std in zip(MEANS, LOG_STDS, strict=True):
    q = scipy.stats.norm(mean, np.exp(log_std))
    # By the entropies, and not by the closed form: E_q[log q] - E_q[log p].
    cross = -prior.logpdf(0) + (mean**2 + q.var()) / 2
    expected.append(cross - q.entropy())
  actual = distributions.gaussian_kl(*arguments(dtype, MEANS, LOG_STDS))
  assert actual.dtype == dtype
  assert_close(actual, expected, TOLERANCE[dtype])


def test_gaussian_kl_of_known_cases():
  mean, log_std = arguments('float32', [0, 1, 0], [0, 0, 1])
  expected = [0, 0.5, (np.e**2 - 1) / 2 - 1]
  np.testing.assert_allclose(distributions.gaussian_kl(mean, log_std), expected, rtol=1e-6)


@given(st.floats(-1e4, 1e4), st.floats(-80, 40))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_gaussian_kl_is_not_negative(mean, log_std):
  kl, slopes = gaussian_kl_and_slopes(mean, log_std)
  assert np.isfinite([kl, *slopes]).all()
  assert kl >= -1e-6


@both_precisions
def test_gaussian_log_ratio_agrees_with_scipy(dtype):
  noise = np.array([0.3, -1.0, 2.0, 0.0, -0.4])
  z = MEANS + np.exp(LOG_STDS) * noise
  expected = scipy.stats.norm(MEANS, np.exp(LOG_STDS)).logpdf(z) - scipy.stats.norm().logpdf(z)
  given = arguments(dtype, MEANS, LOG_STDS, noise)
  assert_close(distributions.gaussian_sample(*given), z, TOLERANCE[dtype])
  assert_close(distributions.gaussian_log_ratio(*given), expected, TOLERANCE[dtype])


@both_precisions
def test_gaussian_log_ratio_averages_to_kl(dtype):
  """By Gauss-Hermite quadrature, which is exact for a quadratic of the noise."""
  noise, weights = np.polynomial.hermite_e.hermegauss(5)
  mean, log_std, noise = arguments(dtype, MEANS, LOG_STDS, noise[:, None])
  ratio = np.asarray(distributions.gaussian_log_ratio(mean, log_std, noise))
  average = weights @ ratio / weights.sum()
  assert_close(average, distributions.gaussian_kl(mean, log_std), TOLERANCE[dtype])


@pytest.mark.parametrize('kind', ['binary', 'intensities'])
@both_precisions
def test_bernoulli_log_prob_agrees_with_loops(kind, dtype):
  rng = np.random.default_rng(0)
  logits = rng.normal(scale=3, size=(4, 3, 2))
  x = rng.uniform(size=logits.shape)
  x = np.round(x) if kind == 'binary' else x
  logits, x = arguments(dtype, logits, x)
  actual = distributions.bernoulli_log_prob(logits, x)
  assert actual.dtype == dtype
  given = np.asarray(logits, np.float64), np.asarray(x, np.float64)
  assert_close(actual.sum(), reference.bernoulli_log_prob(*given), TOLERANCE[dtype])
  if kind == 'binary':
    expected = scipy.stats.bernoulli(scipy.special.expit(given[0])).logpmf(given[1])
    assert_close(actual, expected, TOLERANCE[dtype])


@pytest.mark.parametrize('x', [0.0, 0.25, 1.0])
@pytest.mark.parametrize('logit', [-1e4, -80.0, 80.0, 1e4])
def test_bernoulli_log_prob_of_extreme_logits(logit, x):
  """log(1 - p) is -80 or -1e4 there and log(p) nothing, or the other way round."""
  value, slope = jax.value_and_grad(distributions.bernoulli_log_prob)(logit, x)
  surprise = (1 - x) if logit > 0 else x
  np.testing.assert_allclose(value, -surprise * abs(logit), rtol=1e-6, atol=1e-30)
  np.testing.assert_allclose(slope, x - (logit > 0), atol=1e-6)


outputs = pytest.mark.parametrize(
  ('name', 'components'),
  [(name, 1) for name in distributions.OUTPUTS] + [('discretized_logistic', 2)],
)


@outputs
def test_outputs(name, components):
  """What `Output` promises, whatever the distribution."""
  output = distributions.OUTPUTS[name](3, components)
  image = jnp.asarray(np.random.default_rng(0).uniform(0.05, 0.95, (4, 5, 3)), jnp.float32)
  canvas = output.from_mean(image)
  assert canvas.shape == (4, 5, output.canvas_channels)
  assert_close(output.mean(canvas), image, 1e-3)
  draw = jax.jit(jax.vmap(output.sample, (None, 0)))
  draws = draw(canvas, jax.random.split(jax.random.key(0), 4000))
  assert draws.shape == (4000, 4, 5, 3)
  assert draws.dtype == canvas.dtype
  # Five standard errors of a value in [0, 1] at most.
  atol = 5 * 0.5 / 4000**0.5
  np.testing.assert_allclose(draws.mean(0)[..., 0], output.mean(canvas)[..., 0], atol=atol)
  # Those of further channels are exact where the ones before seldom are beyond black and white.
  middle = output.from_mean(0.4 + 0.2 * image)
  drawn = draw(middle, jax.random.split(jax.random.key(0), 4000))
  np.testing.assert_allclose(drawn.mean(0), output.mean(middle), atol=atol)
  log_prob = jax.jit(output.log_prob)(canvas, draws[:7])
  assert log_prob.shape == (7,)
  values = np.rint(draws[:7] * (output.values - 1)).astype(int)
  np.testing.assert_allclose(draws[:7], values / (output.values - 1), atol=1e-7)
  total = 0
  for c in range(3):
    each = jax.jit(output.value_log_probs)(canvas, draws[:7, ..., :c])
    assert each.shape[-3:] == (4, 5, output.values)
    np.testing.assert_allclose(np.exp(each).sum(-1), 1, rtol=1e-5)
    each = np.broadcast_to(each, (7, 4, 5, output.values))
    total += np.take_along_axis(each, values[..., c, None], -1).sum((1, 2, 3))
  np.testing.assert_allclose(log_prob, total, rtol=1e-5)


@outputs
def test_outputs_from_black_and_white(name, components):
  output = distributions.OUTPUTS[name](1, components)
  extremes = jnp.array([0.0, 1.0]).reshape(2, 1, 1)
  canvas = output.from_mean(extremes)
  assert np.isfinite(canvas).all()
  np.testing.assert_allclose(output.mean(canvas), extremes, atol=0.02)


def test_what_is_a_mixture_and_what_a_likelihood():
  assert {name: distributions.is_mixture(name) for name in distributions.OUTPUTS} == {
    'bernoulli': False,
    'discretized_logistic': True,
  }
  for name, of_intensities in (('bernoulli', False), ('discretized_logistic', True)):
    output = distributions.OUTPUTS[name](1, 1)
    assert distributions.is_likelihood(output, 'none') == of_intensities
    assert distributions.is_likelihood(output, 'fixed')


def test_a_prior_that_is_not_standard():
  """KL and log ratio against SciPy's densities; the expectation of the one is the other."""
  rng = np.random.default_rng(0)
  mean, log_std, p_mean, p_log_std = rng.normal(size=(4, 5))
  prior = distributions.Gaussian(p_mean, p_log_std)
  noise = rng.normal(size=(200_000, 5))
  z = mean + np.exp(log_std) * noise
  log_q = scipy.stats.norm.logpdf(z, mean, np.exp(log_std))
  log_p = scipy.stats.norm.logpdf(z, p_mean, np.exp(p_log_std))
  found = distributions.gaussian_log_ratio(mean, log_std, noise, prior)
  np.testing.assert_allclose(found, log_q - log_p, rtol=1e-3, atol=1e-3)
  kl = distributions.gaussian_kl(mean, log_std, prior)
  error = np.std(log_q - log_p, axis=0) / np.sqrt(len(z))
  assert np.all(np.abs(kl - (log_q - log_p).mean(0)) < 5 * error)


def test_entropy_of_bytes():
  """Of 0 and 255 it is zero, also where XLA fuses the division with what comes after it."""

  @jax.jit
  def entropy(images):
    return distributions.bernoulli_entropy(images.astype(jnp.float32) / 255).sum((1, 2, 3))

  x = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
  images = np.concatenate([x, 255 * (x > 100), 0 * x]).astype(np.uint8)
  images = np.resize(images, (60, 16, 16, 1))  # XLA does not fuse them for a few images
  expected = scipy.stats.bernoulli(images / 255).entropy().sum((1, 2, 3))
  np.testing.assert_allclose(entropy(images), expected, rtol=1e-6)
