import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from jax.flatten_util import ravel_pytree
from model_support import (
  BOTH_KINDS,
  CASES,
  FAST,
  B,
  D,
  T,
  Z,
  build,
  compiled,
  decode,
  edit,
  infer,
  inputs,
  random_params,
)
from reference import TOLERANCE, assert_close, both_precisions

import draw_jax
from draw_jax import distributions
from draw_jax.models import layers
from draw_jax.models.draw import linear, lstm


def compare(actual: dict, expected: dict, dtype):
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    assert actual[name].dtype == dtype
    assert_close(actual[name], value, TOLERANCE[dtype])


@both_precisions
def test_lstm_agrees_with_the_equations(dtype):
  rng = np.random.default_rng(0)
  shapes = {'kernel': (7 + D, 4 * D), 'bias': 4 * D, 'h': (B, D), 'c': (B, D), 'inputs': (B, 7)}
  given = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
  states = jax.jit(lstm)(given, (given['h'], given['c']), given['inputs'])
  both = np.concatenate([given['inputs'], given['h']], -1)
  product = jax.jit(linear)(given, both)
  for n in range(B):
    assert_close(product[n], reference.linear(given, both[n]), TOLERANCE[dtype])
    expected = reference.lstm(given, given['h'][n], given['c'][n], given['inputs'][n])
    for state, value in zip(states, expected, strict=True):
      assert_close(state[n], value, TOLERANCE[dtype])


@pytest.mark.parametrize('case', CASES)
@both_precisions
def test_forward_pass_agrees_with_the_equations(case, dtype):
  model = build(case, dtype)
  params, (x, noise) = random_params(model), inputs(model)
  expected = reference.batch(reference.infer_one, model, params, x, noise)
  actual = infer(model, params, x, noise)
  compare(actual, expected, dtype)
  for name in ('reconstruction', 'loss'):
    np.testing.assert_allclose(actual[name], expected[name], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize('case', CASES)
@both_precisions
def test_generation_agrees_with_the_equations(case, dtype):
  model = build(case, dtype)
  params, (_, latents) = random_params(model), inputs(model)
  expected = reference.batch(reference.decode_one, model, params, latents)
  compare(decode(model, params, latents), expected, dtype)


def directions(tree, rng):
  """[K, P]: for each leaf of P values in all, two random directions and three single entries."""
  rows, start = [], 0
  total = sum(leaf.size for leaf in jax.tree.leaves(tree))
  for leaf in jax.tree.leaves(tree):
    place = slice(start, start + leaf.size)
    start += leaf.size
    units = np.eye(leaf.size)[rng.integers(leaf.size, size=3)]
    for values in (*rng.normal(size=(2, leaf.size)) / leaf.size**0.5, *units):
      rows.append(np.zeros(total))
      rows[-1][place] = values
  return np.stack(rows)


def weighed(model, unravel, flat, weights):
  """A sum of all results, the losses first, of (params, x, noise) as one vector."""
  params, x, noise = unravel(flat)
  terms = model.apply({'params': params}, x, noise, method='infer', trace=True)
  return ravel_pytree((terms.loss, terms))[0] @ weights


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_gradients_agree_with_finite_differences(case):
  """Of the loss and of all results, by every parameter, the images and the noise."""
  with jax.enable_x64(True):
    model = build(case, 'float64')
    given = random_params(model), *inputs(model)
    flat, unravel = ravel_pytree(given)
    value = functools.partial(weighed, model, unravel)
    values = jax.jit(jax.vmap(value, (0, None)), compiler_options=FAST)
    gradient = jax.jit(jax.grad(value), compiler_options=FAST)
    rng, step = np.random.default_rng(2), 1e-5
    along = directions(given, rng)
    terms = compiled(model, 'infer', True)({'params': given[0]}, *given[1:])
    results = B + sum(leaf.size for leaf in jax.tree.leaves(terms))
    for weights in ((np.arange(results) < B) / B, rng.normal(size=results)):
      slopes = gradient(flat, weights)
      for leaf in jax.tree.leaves(unravel(slopes)):
        assert np.abs(leaf).max() > 1e-4, 'too small for the comparison to mean anything'
      after, before = (values(flat + sign * along, weights) for sign in (step, -step))
      np.testing.assert_allclose(along @ slopes, (after - before) / (2 * step), 1e-6, 1e-7)


def test_noise_reaches_each_step_once_and_only_later_ones():
  """Fails if noise were shared between steps or examples, or if a read looked at h_dec of t."""
  model = build()
  params, (x, noise) = random_params(model), inputs(model)
  base = infer(model, params, x, noise)
  for s in range(T):
    moved = noise.copy()
    moved[s, 0] += 1
    other = infer(model, params, x, moved)
    for name, lag in {'canvases': 0, 'write': 0, 'read': 1, 'kl_latents': 1}.items():
      change = np.abs(other[name] - base[name]).reshape(T, B, -1).max(-1)
      np.testing.assert_array_equal(change[:, 0] > 1e-5, np.arange(T) >= s + lag, name)
      np.testing.assert_array_equal(change[: s + lag], 0, name)
      np.testing.assert_allclose(change[:, 1:], 0, atol=1e-5, err_msg=name)


def test_noise_is_independent():
  """Over steps, examples, latents and keys: no two draws are the same, nor correlated."""
  model = build(latent=500)
  draw = functools.partial(model.apply, {'params': random_params(model)}, method='noise')
  noise = np.stack([draw(jax.random.key(seed), 3, 5) for seed in (0, 1)])
  assert noise.shape == (2, 5, 3, 500)
  correlations = np.corrcoef(noise.reshape(30, 500)) - np.eye(30)
  assert np.abs(correlations).max() < 0.25
  assert abs(noise.mean()) < 0.05
  assert abs(noise.std() - 1) < 0.05


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_parameters_do_not_depend_on_steps(case):
  few, many = (jax.tree.map(np.shape, random_params(build(case, glimpses=n))) for n in (1, 9))
  assert few == many


def forgetful(params, name):
  """Parameters whose LSTM `name` answers to its inputs alone, not to its own past."""
  forget = slice(D, 2 * D)
  kernel, bias = (params[name][leaf].copy() for leaf in ('kernel', 'bias'))
  kernel[-D:] = kernel[:, forget] = 0
  bias[forget] = -100
  return {**params, name: {**params[name], 'kernel': kernel, 'bias': bias}}


def mute(params):
  """Parameters that write nothing on the canvas."""
  return {**params, 'write': jax.tree.map(np.zeros_like, params['write'])}


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_the_weights_are_the_same_at_every_step(case):
  """Without a memory, equal inputs have equal effects at each step."""
  model = build(case)
  params = forgetful(forgetful(random_params(model), 'encoder'), 'decoder')
  x, noise = inputs(model)
  same = np.broadcast_to(noise[:1], noise.shape)
  first = np.broadcast_to(params['canvas'], x.shape)
  change = np.diff([first, *decode(model, params, same)['canvases']], axis=0)
  assert_close(change, np.broadcast_to(change[0], change.shape), 1e-5)
  # With a canvas and a decoder that stay as they are, the encoder sees the same at each step.
  still = edit(mute(params), 'decoder', 'kernel', to=np.zeros_like)
  out = infer(model, still, x, same)
  for name in sorted(out.keys() & {'kl_latents', 'log_ratio', 'read', 'write'}):
    later = out[name][1:]  # the first step sees the learned h_dec
    assert_close(later, np.broadcast_to(later[0], later.shape), 1e-5)


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_the_encoder_sees_the_decoder(case):
  """Fails if h_dec is dropped from the encoder: no window carries it here."""
  model = build(case)
  params, (x, noise) = random_params(model), inputs(model)
  if model.attention:
    params = edit(params, 'read_window', 'kernel', to=np.zeros_like)
  moved = edit(params, 'decoder', 'h', to=lambda h: h + 1)
  first, second = (infer(model, p, x, noise)['kl_latents'][0] for p in (params, moved))
  assert (np.abs(second - first).max(-1) > 1e-3).all()


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_kl_is_summed_over_latents_and_steps(case):
  """A posterior N(1, 1) costs half a nat a latent, N(0, e^2) costs (e^2 - 3) / 2."""
  model = build(case)
  params, (x, noise) = random_params(model), inputs(model)
  mean, log_std = np.array([1, 0, 1, 0]), np.array([0, 1, 0, 0])
  params = edit(params, 'posterior', 'kernel', to=np.zeros_like)
  bias = np.concatenate([mean, log_std]).astype('float32')
  params = edit(params, 'posterior', 'bias', to=lambda _: bias)
  terms = compiled(model, 'infer', True)({'params': params}, x, noise)
  latents = [0.5, (np.e**2 - 3) / 2, 0.5, 0]
  np.testing.assert_allclose(terms.kl_latents, np.broadcast_to(latents, (T, B, Z)), atol=1e-6)
  np.testing.assert_allclose(terms.kl, np.full((T, B), sum(latents)), rtol=1e-6)
  expected = terms.reconstruction + T * sum(latents)
  np.testing.assert_allclose(terms.loss, expected, rtol=1e-6)


OTHER = draw_jax.Initialization(
  read_stride=0.25,
  read_sigma=2,
  write_stride=1.5,
  write_sigma=3,
  forget_bias=2,
  kernel_scale=0.25,
  write_scale=3,
)


@functools.cache
def started(start):
  model = draw_jax.DRAW((20, 28, 1), hidden=D, latent=Z, initialization=start)
  given = jax.random.key(0), inputs(model)[0], jax.random.key(1)
  return jax.jit(model.init, compiler_options=FAST)(*given)['params']


@pytest.mark.parametrize(
  'start, read, write',
  [
    (draw_jax.PAPER, (1, 27), (1, 27 / 4)),
    (draw_jax.Initialization(), (16, 0.5 * 27), (6.25, 0.8 * 27 / 4)),
    (OTHER, (4, 0.25 * 27), (9, 1.5 * 27 / 4)),
  ],
)
def test_first_windows(start, read, write):
  """In the middle of the image, with the variance and the stride asked for."""
  model = draw_jax.DRAW((20, 28, 1), hidden=D, latent=Z)
  params = edit(started(start), 'write_window', 'kernel', to=np.zeros_like)
  out = infer(model, params, *inputs(model))
  for name, (variance, stride) in {'read': read, 'write': write}.items():
    expected = np.tile([14.5, 10.5, variance, stride, 1], (B, 1))
    np.testing.assert_allclose(out[name][0], expected, rtol=1e-5)


@pytest.mark.parametrize(
  'start, forget, scale, glimpse_fan_in, write',
  [
    (draw_jax.PAPER, 0, 1, 8 + 2 * D, 1),
    (draw_jax.Initialization(), 1, 1, 8, 4),
    (OTHER, 2, 0.25, 8, 3),
  ],
)
def test_first_parameters(start, forget, scale, glimpse_fan_in, write):
  params = started(start)
  for name in ('encoder', 'decoder'):
    bias = params[name]['bias'].reshape(4, D)
    np.testing.assert_array_equal(bias, np.repeat([[0], [forget], [0], [0]], D, 1))
  encoder = params['encoder']['kernel']
  glimpse = 2 * 2**2
  kernels = {
    'glimpse': (encoder[:glimpse], glimpse_fan_in, 1),
    'encoder': (encoder[glimpse:], len(encoder), 1),
    'decoder': (params['decoder']['kernel'], Z + D, 1),
    'posterior': (params['posterior']['kernel'], D, 1),
    'write': (params['write']['kernel'], D, write),
  }
  for name, (kernel, fan_in, factor) in kernels.items():
    expected = factor * (scale / fan_in) ** 0.5
    np.testing.assert_allclose(kernel.std(), expected, rtol=4 / kernel.size**0.5, err_msg=name)


def test_start_canvas_at_gives_the_mean_of_the_first_canvas():
  model = build('color')
  image = np.random.default_rng(0).uniform(0.02, 0.98, model.image_shape)
  image[0, 0], image[1, 1] = 0, 1
  params = mute(model.start_canvas_at(random_params(model), image))
  canvas = decode(model, params, inputs(model)[1])['canvas']
  assert np.isfinite(canvas).all()
  mean = model.apply({'params': params}, canvas, method='mean')
  np.testing.assert_allclose(mean, np.broadcast_to(image, mean.shape), atol=0.02)
  inside = (image > 0) & (image < 1)
  np.testing.assert_allclose(mean[0][inside], image[inside], rtol=1e-5)


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_latents_without_effect_come_and_go(case):
  """More of them, with whatever noise, change nothing; of fewer the useful ones stay."""
  small, large = build(case), build(case, latent=Z + 3)
  params, (x, noise) = random_params(small), inputs(small)
  expected = infer(small, params, x, noise)
  more = small.with_latents(params, Z + 3)
  # Useful ones need not be the first.
  order = np.random.default_rng(2).permutation(Z + 3)
  columns = np.concatenate([order, Z + 3 + order])
  rows = np.concatenate([order, np.arange(Z + 3, Z + 3 + D)])
  more['posterior'] = {name: a[..., columns] for name, a in more['posterior'].items()}
  more['decoder'] = {**more['decoder'], 'kernel': more['decoder']['kernel'][rows]}
  longer = np.random.default_rng(3).normal(size=(T, B, Z + 3)).astype(noise.dtype)
  places = np.argsort(order)[:Z]
  longer[..., places] = noise
  found = infer(large, more, x, longer)
  for name in ('reconstruction', 'kl', 'loss', 'canvases'):
    np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
  assert not np.delete(found['kl_latents'], places, -1).any()
  fewer = large.with_latents(more, Z)
  again = infer(small, fewer, x, longer[..., np.sort(places)])
  np.testing.assert_allclose(again['loss'], expected['loss'], rtol=1e-5)
  one = large.with_latents(more, 1)['posterior']['kernel'][:, 0]
  means = params['posterior']['kernel'][:, :Z]
  np.testing.assert_array_equal(one, means[:, np.linalg.norm(means, axis=0).argmax()])


@pytest.mark.parametrize('method', ['__call__', 'reconstruct', 'generate'])
def test_a_key_stands_for_its_noise(method):
  """Each method with a key does what its counterpart does with the noise of the key."""
  model = build()
  variables, (x, _) = {'params': random_params(model)}, inputs(model)
  first = B if method == 'generate' else x
  noise = model.apply(variables, jax.random.key(3), B, T, method='noise')

  def call(key, glimpses):
    return model.apply(variables, first, key, glimpses=glimpses, trace=True, method=method)

  terms = compiled(model, 'infer', True)(variables, x, noise)
  expected = {
    '__call__': terms,
    'reconstruct': (terms.canvas, terms.trace),
    'generate': compiled(model, 'decode', True)(variables, noise),
  }
  actual = jax.jit(call, static_argnums=1)(jax.random.key(3), T)
  jax.tree.map(functools.partial(assert_close, tolerance=1e-5), actual, expected[method])
  # Without a number of steps it is the model's own.
  *_, trace = jax.eval_shape(functools.partial(call, glimpses=None), jax.random.key(3))
  assert trace.canvas.shape == (model.glimpses, *x.shape)


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_a_trace_costs_nothing_unless_asked_for(case):
  model = build(case)
  params, (x, noise) = random_params(model), inputs(model)
  shape = ','.join(map(str, (T, *x.shape)))
  for method, given in {'infer': (x, noise), 'decode': (noise,)}.items():
    for trace in (False, True):
      apply = functools.partial(model.apply, method=method, trace=trace)
      program = str(jax.make_jaxpr(apply)({'params': params}, *given))
      assert (f'[{shape}]' in program) == trace


def test_images_of_a_canvas():
  model = build('color')
  canvas = jnp.linspace(-5, 5, B * 6 * 4 * 3).reshape(B, 6, 4, 3)
  apply = functools.partial(model.apply, {'params': random_params(model)}, canvas)
  np.testing.assert_allclose(apply(method='mean'), 1 / (1 + np.exp(-canvas)), rtol=1e-5)
  draw = apply(jax.random.key(0), method='sample')
  assert draw.shape == canvas.shape
  assert set(np.unique(draw)) == {0, 1}


MADE_BY_FLAX = ('parent', 'name')


class Shifted(draw_jax.DRAW):
  """With a prior that moves with the decoder."""

  def prior(self, h_dec):
    return distributions.Gaussian(0.5 + h_dec[..., :Z], -0.3 * jnp.ones((len(h_dec), Z)))


def test_another_prior_is_one_method():
  """Of the KL, the log ratio and of what is drawn without an image, step by step."""
  plain = build()
  fields = (field.name for field in dataclasses.fields(plain) if field.name not in MADE_BY_FLAX)
  model = Shifted(**{name: getattr(plain, name) for name in fields})
  params = random_params(model)
  x, noise = inputs(model)
  terms = model.apply({'params': params}, x, noise, method='infer')
  same = plain.apply({'params': params}, x, noise, method='infer')
  np.testing.assert_allclose(terms.canvas, same.canvas, rtol=1e-5)
  np.testing.assert_allclose(terms.latents, same.latents, rtol=1e-5)
  assert np.abs(terms.kl - same.kl).max() > 0.1
  # What is drawn: latents of the glimpses so far give the decoder, which gives the next prior.
  drawn, _ = model.apply({'params': params}, noise, method='draw')
  latents, layer = np.zeros((0, B, Z), np.float32), params['decoder']
  h, c = (np.broadcast_to(layer[name], (B, D)) for name in 'hc')
  for t in range(T):
    z = 0.5 + h[:, :Z] + np.exp(-0.3) * noise[t]
    h, c = layers.lstm(layer, (h, c), z)
    latents = np.concatenate([latents, z[None]])
  expected, _ = plain.apply({'params': params}, latents, method='decode')
  np.testing.assert_allclose(drawn, expected, rtol=1e-4, atol=1e-5)
  assert np.abs(drawn - plain.apply({'params': params}, noise, method='draw')[0]).max() > 0.1
