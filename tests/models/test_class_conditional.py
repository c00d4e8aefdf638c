"""DRAW given the class, against loops over the equations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from model_support import CASES, FAST, D, T, Z, build, compiled, inputs, random_params
from reference import TOLERANCE, assert_close, both_precisions

from draw_jax.errors import UserError
from draw_jax.models.class_conditional import ClassConditional

K = 3
LABELS = np.array([2, 0, 2])


def make(case='oblong', param_dtype='float32', **more):
  sizes = {'glimpses': T, 'hidden': D, 'latent': Z, 'num_classes': K} | CASES[case]
  return ClassConditional(param_dtype=param_dtype, **(sizes | more))


def told(params, name) -> dict:
  """The LSTM with a column of weights for each class, which takes [inputs, y, h]."""
  layer, columns = params[name], np.asarray(params[f'label_{name}'], np.float64)
  inputs = len(layer['kernel']) - D
  kernel = np.concatenate([layer['kernel'][:inputs], columns, layer['kernel'][inputs:]])
  return {**layer, 'kernel': kernel}


def one_hot(label) -> list[float]:
  return [float(k == label) for k in range(K)]


def draw_step(model, params, state, z, y):
  """Eqs. 7-8 with [z, y] for the decoder."""
  return reference.draw_step(
    model, {**params, 'decoder': told(params, 'decoder')}, *state, [*z, *y]
  )[:3]


def draw_one(model, params, latents, y) -> np.ndarray:
  state = *reference.initial(params, 'canvas'), *reference.initial(params['decoder'], 'h', 'c')
  for z in latents:
    state = draw_step(model, params, state, z, y)
  return state[0]


def infer_one(model, params, x, label, noise) -> dict:
  x = np.array(x, np.float64)
  (canvas,) = reference.initial(params, 'canvas')
  h_enc, c_enc = reference.initial(params['encoder'], 'h', 'c')
  state = canvas, *reference.initial(params['decoder'], 'h', 'c')
  kl, log_ratio, latents = [], [], []
  for noise_t in noise:
    canvas, h_dec, _ = state
    error = x - 1 / (1 + np.exp(-canvas))
    glimpse, _ = reference.read_step(model, params, x, error, h_dec)
    heard = [*glimpse, *h_dec, *one_hot(label)]
    h_enc, c_enc = reference.lstm(told(params, 'encoder'), h_enc, c_enc, heard)
    z, kl_t, log_ratio_t = reference.latent_step(params, h_enc, noise_t)
    state = draw_step(model, params, state, z, one_hot(label))
    kl.append(sum(kl_t))
    log_ratio.append(sum(log_ratio_t))
    latents.append(z)
  loss = sum(kl) - reference.bernoulli_log_prob(state[0], x)
  return {'kl': kl, 'log_ratio': log_ratio, 'latents': latents, 'canvas': state[0], 'loss': loss}


@functools.cache
def program(model):
  return jax.jit(functools.partial(model.apply, method='infer'), compiler_options=FAST)


def infer(model, params, x, noise, label):
  return program(model)({'params': params}, x, noise, label=label)


@pytest.mark.parametrize('case', ['oblong', 'color', 'whole color'])
@both_precisions
def test_forward_pass_agrees_with_the_equations(case, dtype):
  model = make(case, dtype)
  params, (x, noise) = random_params(model, label=0), inputs(model)
  terms = infer(model, params, x, noise, LABELS)
  expected = reference.batch(infer_one, model, params, x, LABELS, noise)
  for name, value in expected.items():
    assert_close(getattr(terms, name), value, 3 * TOLERANCE[dtype])


def test_what_is_drawn_is_of_the_class():
  model = make()
  params, (_, noise) = random_params(model, label=0), inputs(model)
  drawn, _ = model.apply({'params': params}, noise, label=LABELS, method='draw')
  decoded, _ = model.apply({'params': params}, noise, label=LABELS, method='decode')
  for n, label in enumerate(LABELS):
    expected = draw_one(model, params, noise[:, n], one_hot(label))
    assert_close(drawn[n], expected, 1e-5)
    assert_close(decoded[n], expected, 1e-5)


@pytest.mark.parametrize('case', ['oblong', 'whole color'])
def test_half_glimpses_are_those_of_a_whole_pass(case):
  model = make(case)
  params, (x, noise) = random_params(model, label=0), inputs(model)
  variables, terms = {'params': params}, infer(model, params, x, noise, LABELS)
  state = model.apply(variables, len(x), method='first')
  for t in range(2):
    state, posterior = model.apply(variables, x, state, label=LABELS, method='observe')
    z = posterior.mean + jnp.exp(posterior.log_std) * noise[t]
    assert_close(z, terms.latents[t], 1e-4)
    state = model.apply(variables, state, z, label=LABELS, method='advance')


@pytest.mark.parametrize('name', ClassConditional.neutral)
@pytest.mark.parametrize('case', ['oblong', 'whole color'])
def test_both_networks_hear_their_own_class(case, name):
  """A weight of one class moves what is said of its images, and of no others."""
  model = make(case)
  params, (x, noise) = random_params(model, label=0), inputs(model)
  moved = {**params, name: params[name] + np.eye(K)[:, [0]].astype(np.float32)}
  before, after = (infer(model, p, x, noise, LABELS) for p in (params, moved))
  np.testing.assert_array_equal(before.canvas[LABELS != 0], after.canvas[LABELS != 0])
  assert np.abs(before.canvas - after.canvas)[LABELS == 0].max() > 1e-2
  # The encoder is told before the first posterior, the decoder after it.
  same = np.array_equal(before.latents[0], after.latents[0])
  assert same == (name == 'label_decoder')


def test_it_begins_as_draw():
  """With the weights of DRAW in place of its own, it does the same, whatever the label."""
  model, plain = make(), build(glimpses=T)
  (x, noise), key = inputs(model), jax.random.key(0)
  init = jax.jit(functools.partial(model.init, label=LABELS), compiler_options=FAST)
  params = init(key, x, key)['params']
  before = random_params(plain)
  assert set(params) - set(before) == set(model.neutral)
  assert not any(np.any(params[name]) for name in model.neutral)
  same = compiled(plain, 'infer', False)({'params': before}, x, noise)
  terms = infer(model, {**params, **before}, x, noise, LABELS)
  for name in ('kl', 'log_ratio', 'latents', 'canvas'):
    np.testing.assert_allclose(getattr(terms, name), getattr(same, name), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(('case', 'remat'), [('oblong', 'products'), ('whole color', 'segments')])
def test_gradients_agree_with_finite_differences(case, remat):
  with jax.enable_x64(True):
    model = make(case, 'float64', remat=remat)
    params, (x, noise) = random_params(model, label=0), inputs(model)
    rng = np.random.default_rng(3)
    # One direction for all weights, and one for those of the labels alone.
    ways = [jax.tree.map(lambda a: rng.normal(size=a.shape), params)]
    ways.append(jax.tree.map(np.zeros_like, params) | {n: ways[0][n] for n in model.neutral})

    @jax.jit
    def loss(size, way):
      moved = jax.tree.map(lambda a, b: a + size * b, params, way)
      return model.apply({'params': moved}, x, noise, label=LABELS, method='infer').loss.mean()

    for way in ways:
      slope = jax.grad(loss)(0.0, way)
      high, low = loss(1e-4, way), loss(-1e-4, way)
      assert abs(slope) > 1e-2
      np.testing.assert_allclose(slope, (high - low) / 2e-4, rtol=1e-5)


def test_a_class_may_be_one_for_all_or_weights():
  model = make()
  params, noise = random_params(model, label=0), inputs(model)[1][:2]

  def draw(label):
    return model.apply({'params': params}, noise, label=label, method='draw')[0]

  ones = draw(np.full(3, 1))
  for label in (1, [1, 1, 1], np.tile(one_hot(1), (3, 1))):
    np.testing.assert_allclose(draw(label), ones, rtol=1e-5, atol=1e-6)
  weights = np.array([[0.25, 0.75, 0.0], [0.6, 0.0, 0.4], [0.2, 0.3, 0.5]])
  between = draw(weights)
  for n, y in enumerate(weights):
    assert_close(between[n], draw_one(model, params, noise[:, n], y), 1e-5)


@pytest.mark.parametrize(
  ('label', 'words'),
  [
    (None, 'told the class of its images: give label='),
    (3, 'label=3 must be from 0 to 2'),
    ([0, -1, 0], 'label=-1 must be from 0 to 2'),
    ([0, 1], 'label is 2 of int64: give one class as a whole number, or 3 of them'),
    (1.5, 'of float64: give one class as a whole number'),
    (np.zeros((3, 4)), 'label is 3 x 4 of float64: weights of the classes are 3 x 3'),
  ],
)
def test_labels_that_cannot_be_are_refused(label, words):
  model = make()
  _, noise = inputs(model)
  with pytest.raises(UserError, match=words):
    model.apply({'params': random_params(model, label=0)}, noise, label=label, method='draw')


def test_a_number_of_latents_is_chosen_as_in_draw():
  """More latents, which nothing hears, change nothing; the labels stay."""
  model, more = make(), make(latent=Z + 2)
  params, (x, noise) = random_params(model, label=0), inputs(model)
  before = infer(model, params, x, noise, LABELS)
  noise = np.concatenate([noise, noise[..., :2]], -1)
  after = infer(more, model.with_latents(params, Z + 2), x, noise, LABELS)
  np.testing.assert_allclose(before.loss, after.loss, rtol=1e-5)
