"""Passes of a small network as arrays."""

import jax
import numpy as np
import pytest

from draw_jax import DRAW
from draw_jax.figures import passes

SHAPE = (6, 9, 1)


def make(attention):
  model = DRAW(SHAPE, glimpses=4, hidden=8, latent=3, attention=attention)
  key = jax.random.key(0)
  params = jax.jit(model.init)(key, np.zeros((1, *SHAPE)), key)['params']
  # Larger weights than at the start, so that latents matter.
  return model, jax.tree.map(lambda a: 2 * a, params)


@pytest.fixture(scope='module')
def network():
  return make(attention=True)


@pytest.fixture(scope='module')
def images():
  return np.random.default_rng(0).integers(0, 2, (5, *SHAPE)).astype(np.float32)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(network):
  first, again, other = (passes.generate(*network, 3, seed).images for seed in (1, 1, 2))
  np.testing.assert_array_equal(first, again)
  assert np.abs(first - other).max() > 1e-3


def test_an_image_depends_neither_on_their_number_nor_on_the_chunks(network, monkeypatch):
  few = passes.generate(*network, 3, 0)
  monkeypatch.setattr(passes, 'CHUNK', 2)
  many = passes.generate(*network, 5, 0)
  assert many.images.shape == (4, 5, *SHAPE)
  np.testing.assert_allclose(many.images[:, :3], few.images, rtol=1e-5)
  assert np.abs(many.images[-1, 0] - many.images[-1, 1]).max() > 1e-3


def test_the_last_step_alone_is_that_of_the_trace(network):
  whole = passes.generate(*network, 3, 0)
  last = passes.generate(*network, 3, 0, trace=False)
  assert last.images.shape == (1, 3, *SHAPE)
  np.testing.assert_allclose(last.images[0], whole.images[-1], rtol=1e-5)


def test_windows_of_reading_and_writing_are_kept(network, images):
  drawing = passes.reconstruct(*network, images, 0)
  assert drawing.kl.shape == (4, 5)
  assert {np.shape(a) for a in (*drawing.read, *drawing.write)} == {(4, 5)}
  generated = passes.generate(*network, 3, 0)
  assert generated.write.stride.shape == (4, 3)
  assert generated.read is None and generated.kl is None


def test_without_attention_there_are_no_windows(images):
  drawing = passes.reconstruct(*make(attention=False), images, 0)
  assert drawing.images.shape == (4, 5, *SHAPE)
  assert drawing.read is None and drawing.write is None


def test_binary_draws_have_the_means_they_are_drawn_from(network):
  num = 2 * passes.CHUNK
  mean = passes.generate(*network, num, 0, trace=False).images[0]
  drawn = passes.generate(*network, num, 0, trace=False, binary=True).images[0]
  assert set(np.unique(drawn)) == {0, 1}
  deviation = np.sqrt((mean * (1 - mean)).sum(0)) / num
  assert np.all(np.abs(drawn.mean(0) - mean.mean(0)) < 5 * deviation + 1e-6)


def test_interpolation_starts_and_ends_at_the_reconstructions(network, images):
  ways = passes.interpolate(*network, images[:2], images[2:4], 3, seed=0)
  assert ways.shape == (2, 3, *SHAPE)
  # Example i of both takes the noise of index i.
  start = passes.reconstruct(*network, images[:2], 0).images[-1]
  end = passes.reconstruct(*network, images[2:4], 0).images[-1]
  np.testing.assert_allclose(ways[:, 0], start, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(ways[:, -1], end, rtol=1e-4, atol=1e-6)
  assert np.abs(ways[:, 1] - ways[:, 0]).max() > 1e-4
  drawn = passes.interpolate(*network, images[:2], images[2:4], 3, seed=0, binary=True)
  assert set(np.unique(drawn)) == {0, 1}
  start = passes.reconstruct(*network, images[:2], 0, binary=True).images[-1]
  assert np.mean(drawn[:, 0] != start) < 0.01  # but for means that round differently
