"""Latents on the stack, against SciPy's normal distribution."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from draw_jax.compression.bins import MOST_BITS, Bins, NotCodedHereError
from draw_jax.compression.bits_back import Posterior, pop_latents, push_latents
from draw_jax.compression.stack import Stack, borrowed_words


def random(num, seed=0):
  return np.random.default_rng(seed).integers(0, 2**64, num, np.uint64)


def full_stack(num=2000):
  return Stack(borrowed_words(num))


@pytest.mark.parametrize('bits', [1, 5, MOST_BITS])
def test_bins_have_equal_mass_and_their_medians(bits):
  bins = Bins(bits)
  normal = scipy.stats.norm()
  np.testing.assert_allclose(normal.cdf(bins.centers), (np.arange(bins.num) + 0.5) / bins.num)
  assert (np.diff(bins.centers) > 0).all()
  assert np.isfinite(bins.centers).all()


@settings(max_examples=60, deadline=None)
@given(
  bits=st.integers(1, MOST_BITS),
  means=st.lists(st.floats(-1e4, 1e4) | st.floats(-4, 4), min_size=1, max_size=8),
  log_stds=st.lists(st.floats(-200, 90) | st.floats(-5, 1), min_size=1, max_size=8),
)
def test_what_is_popped_can_be_pushed(bits, means, log_stds):
  mean, std = (a.reshape(-1) for a in np.meshgrid(means, np.exp(log_stds)))
  bins, stack = Bins(bits), full_stack()
  before = stack.words()
  noise = random(len(mean), len(means))
  index = bins.pop(stack, mean, std, noise)
  assert ((index >= 0) & (index < bins.num)).all()
  bins.push(stack, index, mean, std, noise)
  np.testing.assert_array_equal(stack.words(), before)


def test_frequencies():
  """Popped bins are draws from q: their histogram, and the bits that they cost."""
  bins, num = Bins(4), 40_000
  mean, std = 0.7, 0.4
  stack = full_stack(20_000)
  before = stack.bits()
  index = bins.pop(stack, np.full(num, mean), np.full(num, std), random(num))
  edges = scipy.stats.norm.ppf(np.arange(bins.num + 1) / bins.num)
  expected = np.diff(scipy.stats.norm(mean, std).cdf(edges))
  counts = np.bincount(index, minlength=bins.num)
  spread = np.sqrt(num * expected * (1 - expected)) + 1
  assert (np.abs(counts - num * expected) < 5 * spread).all()
  cost = -np.log2(expected[index]).sum()
  np.testing.assert_allclose(before - stack.bits(), cost, rtol=2e-3)


def test_covariances():
  num, latents = 10_000, 3
  rng = np.random.default_rng(0)
  factor = 0.3 * np.tril(rng.normal(size=(latents, latents)), -1)
  mean, std = np.array([0.1, -0.2, 0.3]), np.array([0.5, 0.3, 0.4])
  same = (np.broadcast_to(a, (num, *a.shape)) for a in (mean, std, factor))
  posterior, bins, stack = Posterior(*same), Bins(14), full_stack(30_000)
  before = stack.words()
  index = pop_latents(stack, bins, posterior, (5, 1))
  whole = np.diag(std) + factor
  z = bins.centers[index]
  np.testing.assert_allclose(z.mean(0), mean, atol=0.05)
  np.testing.assert_allclose(np.cov(z.T), whole @ whole.T, atol=0.05)
  push_latents(stack, bins, index, posterior, (5, 1))
  np.testing.assert_array_equal(stack.words(), before)


def test_a_bin_that_q_does_not_have_is_not_taken():
  with pytest.raises(NotCodedHereError):
    Bins(8).push(full_stack(), np.array([3]), np.array([2.0]), np.array([1e-3]), random(1))


def test_borrowed_words_lie_below_the_others():
  """A stack that borrows when it has to ends as one that had all from the start."""
  stack, sizes = Stack(), np.array([5, 1, 2**20, 77])
  popped = []
  for _ in range(30):
    stack.reserve(200)
    popped.append(stack.pop_uniform(sizes))
    stack.push(np.array([1, 0]), np.array([[0.1, 0.9], [0.8, 0.2]], np.float32))
  assert stack.borrowed > 10
  other = Stack(borrowed_words(stack.borrowed))
  for expected in popped:
    np.testing.assert_array_equal(other.pop_uniform(sizes), expected)
    other.push(np.array([1, 0]), np.array([[0.1, 0.9], [0.8, 0.2]], np.float32))
  np.testing.assert_array_equal(other.words(), stack.words())
  longer = borrowed_words(100)
  np.testing.assert_array_equal(longer[-7:], borrowed_words(7))
