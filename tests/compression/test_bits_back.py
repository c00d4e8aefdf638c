"""Images to the stack and back, with tiny networks of random parameters."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_support import CASES, D, Z, build, random_params

from draw_jax.compression import bits_back
from draw_jax.compression.bins import NotCodedHereError
from draw_jax.models.convolutional_draw import ConvolutionalDraw
from draw_jax.models.dependent_latents import DependentLatents

T, BATCH = 3, 4


def dependent():
  return DependentLatents(glimpses=T, hidden=D, latent=Z, **CASES['oblong'])


def maps():
  return ConvolutionalDraw(image_shape=(4, 6, 1), glimpses=T, scale=2, features=2)


MODELS = {
  'oblong': functools.partial(build, 'oblong'),
  'whole color': functools.partial(build, 'whole color'),
  'dependent': dependent,
  'maps': maps,
  'bytes': functools.partial(build, 'color', output='discretized_logistic', components=2),
}


def random_images(model, num, seed=0):
  rng = np.random.default_rng(seed)
  values = model.distribution.values
  return (255 // (values - 1) * rng.integers(0, values, (num, *model.image_shape))).astype(np.uint8)


def codec_of(model, params, latent_bits=10, batch_size=BATCH):
  network = bits_back.Network(model, params, T)
  return bits_back.Codec(network, latent_bits, batch_size)


@pytest.mark.parametrize('name', MODELS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_round_trip(name, data):
  model = MODELS[name]()
  seed = data.draw(st.integers(0, 2**32 - 1))
  # Of a prior that is learned large weights make no numbers.
  scale = data.draw(st.sampled_from([0.0, 0.3, 1.0] + [5.0] * (name not in ('dependent', 'maps'))))
  bits = data.draw(st.integers(1, 15))
  num = data.draw(st.integers(1, 11))
  rng = np.random.default_rng(seed)
  params = jax.tree.map(
    lambda a: (scale * rng.normal(size=a.shape)).astype(a.dtype), random_params(model)
  )
  codec, images = codec_of(model, params, bits), random_images(model, num, seed)
  coded = codec.encode(images)
  assert sum(coded.batches) == num
  np.testing.assert_array_equal(codec.decode(coded), images)


def test_the_rate_is_the_bound():
  """Bits on the stack, against draws of -log p(x, z) + log q(z) of the whole model."""
  model = build('oblong', glimpses=T)
  params, images = random_params(model), random_images(model, 96)
  coded = codec_of(model, params, 14).encode(images)
  stack = bits_back.Stack(coded.words)
  bits = stack.bits() - 32 * coded.borrowed

  @jax.jit
  def draw(key):
    terms = model.apply({'params': params}, images / 255, key)
    return (terms.reconstruction + terms.log_ratio.sum(0)) / np.log(2)

  draws = np.stack([draw(key) for key in jax.random.split(jax.random.key(0), 50)])
  spread = np.sqrt(draws.var(0).sum())
  expected = draws.mean(0).sum()
  assert spread < 0.03 * expected
  assert abs(bits - expected) < 4 * spread


def test_batches_grow_with_the_stack():
  model = build('oblong')
  params = random_params(model)
  codec = codec_of(model, params)
  coded = codec.encode(random_images(model, 40))
  assert coded.batches[0] == 1
  assert max(coded.batches) == BATCH
  # Little more is borrowed than the first image needs, and not what a batch would.
  first = codec.encode(random_images(model, 1))
  assert coded.borrowed <= 2 * first.borrowed


def test_what_was_not_coded_here_is_noticed():
  model = build('oblong')
  params = random_params(model)
  images = random_images(model, 9)
  codec = codec_of(model, params)
  coded = codec.encode(images)
  other = codec_of(model, jax.tree.map(lambda a: a * 1.01, params))
  assert other.fingerprint(coded.batches) != codec.fingerprint(coded.batches)
  with pytest.raises(NotCodedHereError):
    other.decode(coded)


def test_latents_that_say_nothing_cost_nothing():
  model = build('oblong')
  params = random_params(model)
  more = model.clone(latent=Z + 50)
  images = random_images(model, 5)
  alone = codec_of(model, params).encode(images)
  among = codec_of(more, model.with_latents(params, Z + 50)).encode(images)
  np.testing.assert_array_equal(alone.words, among.words)
  # One that says nothing, but that the decoder hears, stays.
  heard = model.with_latents(params, Z + 50)
  kernel = heard['decoder']['kernel'].at[Z + 7].set(0.1)
  heard['decoder']['kernel'] = kernel
  assert more.latents_in_use(heard) == Z + 50
