import math

import numpy as np
import pytest
from scipy.special import logsumexp

from draw_jax.tasks import bounds


def cut(values, sizes):
  """Chunks of these sizes along the last axis, and one of what is left."""
  return np.split(values, np.cumsum(sizes), axis=-1)


def gather(start, values, sizes=()):
  for chunk in cut(values, sizes):
    start = start.add(chunk)
  return start


CUTS = [(), (1,), (63,), (5, 1, 30), (0, 7, 0, 20), (16, 16, 16)]


@pytest.mark.parametrize('sizes', CUTS, ids=str)
def test_moments_do_not_depend_on_the_chunks(sizes):
  values = 1e4 + np.random.default_rng(0).normal(size=(3, 2, 64))
  moments = gather(bounds.Moments(), values, sizes)
  assert moments.count == 64
  np.testing.assert_allclose(moments.mean, values.mean(-1), rtol=1e-14)
  np.testing.assert_allclose(moments.squares / 64, values.var(-1), rtol=1e-9)


@pytest.mark.parametrize('sizes', CUTS, ids=str)
@pytest.mark.parametrize('samples', [1, 8, 10, 64])
def test_importance_bound_does_not_depend_on_the_chunks(sizes, samples):
  # Weights far beyond what float64 can hold before the logarithm is taken.
  log_weights = -5000 + 30 * np.random.default_rng(1).normal(size=(3, 64))
  bound = gather(bounds.ImportanceBound(samples), log_weights, sizes)
  whole = 64 // samples
  groups = log_weights[:, : whole * samples].reshape(3, whole, samples)
  expected = math.log(samples) - logsumexp(groups, -1)
  assert bound.groups.count == whole
  np.testing.assert_allclose(bound.groups.mean, expected.mean(-1), rtol=1e-13)
  np.testing.assert_allclose(bound.groups.squares, whole * expected.var(-1), rtol=1e-9, atol=1e-18)


def test_more_samples_never_give_a_higher_bound():
  log_weights = 5 * np.random.default_rng(2).standard_t(2, size=(50, 120))
  means = [gather(bounds.ImportanceBound(k), log_weights, (7,)).groups.mean for k in (1, 4, 12, 60)]
  assert np.all(np.diff(means, axis=0) < 0)


def test_a_weight_of_zero_is_no_nan():
  log_weights = np.array([[-math.inf, -math.inf, 0.0, -math.inf]])
  bound = gather(bounds.ImportanceBound(4), log_weights, (1, 1))
  np.testing.assert_allclose(bound.groups.mean, math.log(4))


def test_bounds_are_the_sums_of_their_parts():
  rng = np.random.default_rng(3)
  reconstruction = rng.uniform(50, 90, size=(4, 20)).astype(np.float32)
  kl, log_ratio = rng.uniform(0, 2, size=(2, 4, 6, 20)).astype(np.float32)
  start = bounds.Bounds(importance=(bounds.ImportanceBound(5), bounds.ImportanceBound(20)))
  result = start.add(reconstruction[:, :3], kl[..., :3], log_ratio[..., :3])
  result = result.add(reconstruction[:, 3:], kl[..., 3:], log_ratio[..., 3:])
  exact = [a.astype(np.float64) for a in (reconstruction, kl, log_ratio)]
  np.testing.assert_allclose(result.bound.mean, (exact[0] + exact[1].sum(1)).mean(-1), rtol=1e-13)
  np.testing.assert_allclose(result.kl.mean, result.kl_glimpses.mean.sum(-1), rtol=1e-13)
  log_weights = -exact[0] - exact[2].sum(1)
  np.testing.assert_allclose(
    result.importance[1].groups.mean, math.log(20) - logsumexp(log_weights, -1), rtol=1e-13
  )


def test_standard_errors_are_those_of_repeated_experiments():
  rng = np.random.default_rng(4)
  num, draws, repeats = 40, 6, 2000
  spread = rng.uniform(0.5, 3, size=(num, 1))  # some images are noisier than others

  def experiment(centers):
    values = centers + spread * rng.normal(size=(num, draws))
    # In two parts of unequal size, as the last batch of a split is.
    return bounds.estimate([bounds.Moments().add(values[:25]), bounds.Moments().add(values[25:])])

  centers = rng.normal(0, 4, size=(num, 1))
  same_images = [experiment(centers) for _ in range(repeats)]
  other_images = [experiment(rng.normal(0, 4, size=(num, 1))) for _ in range(repeats)]

  def actual(results):
    return np.std([r['mean'] for r in results])

  def claimed(results, name):
    return np.mean([r[name] for r in results])

  # The standard deviation of 2,000 values is known to 1.6 %; four times that is allowed.
  assert claimed(same_images, 'stderr_draws') == pytest.approx(actual(same_images), rel=0.065)
  assert claimed(other_images, 'stderr_images') == pytest.approx(actual(other_images), rel=0.065)


def test_one_image_or_one_draw_has_no_standard_error():
  one_draw = bounds.estimate([bounds.Moments().add(np.array([[1.0], [3.0]]))])
  assert one_draw == {'mean': 2.0, 'stderr_images': pytest.approx(1.0), 'stderr_draws': None}
  one_image = bounds.estimate([bounds.Moments().add(np.array([[1.0, 3.0]]))])
  assert one_image == {'mean': 2.0, 'stderr_images': None, 'stderr_draws': pytest.approx(1.0)}


@pytest.mark.parametrize(
  ('samples', 'expected'),
  [
    (1, ()),
    (2, (2,)),
    (10, (10,)),
    (64, (10, 64)),
    (100, (10, 100)),
    (5000, (10, 100, 1000, 5000)),
  ],
)
def test_ladder(samples, expected):
  assert bounds.ladder(samples) == expected


def test_bits_per_dim():
  # Fair coins for every value cost one bit each.
  assert bounds.bits_per_dim(32 * 32 * 3 * math.log(2), (32, 32, 3)) == pytest.approx(1)
