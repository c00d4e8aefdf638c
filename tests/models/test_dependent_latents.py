"""DRAW with a learned prior and posteriors with covariances, against loops over the equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from model_support import CASES, D, T, Z, build, compiled, inputs, random_params
from reference import TOLERANCE, assert_close, both_precisions

from draw_jax.errors import UserError
from draw_jax.models.dependent_latents import DependentLatents, DependentLatentsConfig


def make(case='oblong', param_dtype='float32', **more):
  sizes = {'glimpses': T, 'hidden': D, 'latent': Z} | CASES[case]
  return DependentLatents(param_dtype=param_dtype, **(sizes | more))


def log_density(z, mean, covariance) -> float:
  away = z - mean
  _, log_det = np.linalg.slogdet(covariance)
  distance = away @ np.linalg.solve(covariance, away)
  return -0.5 * (distance + log_det + len(z) * np.log(2 * np.pi))


def statistics(model, params, h_dec, h_enc):
  """Means and covariances of p and of q."""
  prior_mean, prior_log_std = np.zeros(Z), np.zeros(Z)
  if model.learned_prior:
    both = reference.linear(params['prior_statistics'], h_dec)
    prior_mean, prior_log_std = both[:Z], both[Z:]
  both = reference.linear(params['posterior'], h_enc)
  factor = np.diag(np.exp(both[Z:]))
  if model.full_covariance:
    numbers = iter(reference.linear(params['mixing'], h_enc))
    for row in range(Z):
      for column in range(row):
        factor[row, column] = next(numbers)
  return (prior_mean, np.diag(np.exp(2 * prior_log_std))), (both[:Z], factor)


def infer_one(model, params, x, noise) -> dict:
  x = np.array(x, np.float64)
  (canvas,) = reference.initial(params, 'canvas')
  h_enc, c_enc = reference.initial(params['encoder'], 'h', 'c')
  h_dec, c_dec = reference.initial(params['decoder'], 'h', 'c')
  kl, log_ratio, latents = [], [], []
  for noise_t in noise:
    error = x - 1 / (1 + np.exp(-canvas))
    glimpse, _ = reference.read_step(model, params, x, error, h_dec)
    h_enc, c_enc = reference.lstm(params['encoder'], h_enc, c_enc, [*glimpse, *h_dec])
    (p_mean, p_cov), (q_mean, factor) = statistics(model, params, h_dec, h_enc)
    q_cov = factor @ factor.T
    z = q_mean + factor @ noise_t
    kl.append(
      0.5
      * (
        np.trace(np.linalg.solve(p_cov, q_cov))
        + (q_mean - p_mean) @ np.linalg.solve(p_cov, q_mean - p_mean)
        - Z
        + np.linalg.slogdet(p_cov)[1]
        - np.linalg.slogdet(q_cov)[1]
      )
    )
    log_ratio.append(log_density(z, q_mean, q_cov) - log_density(z, p_mean, p_cov))
    latents.append(z)
    canvas, h_dec, c_dec, _ = reference.draw_step(model, params, canvas, h_dec, c_dec, z)
  loss = sum(kl) - reference.bernoulli_log_prob(canvas, x)
  return {'kl': kl, 'log_ratio': log_ratio, 'latents': latents, 'canvas': canvas, 'loss': loss}


KINDS = [(True, True), (True, False), (False, True)]


@pytest.mark.parametrize('learned_prior,full_covariance', KINDS)
@pytest.mark.parametrize('case', ['oblong', 'whole color'])
@both_precisions
def test_forward_pass_agrees_with_the_equations(case, learned_prior, full_covariance, dtype):
  model = make(case, dtype, learned_prior=learned_prior, full_covariance=full_covariance)
  params, (x, noise) = random_params(model), inputs(model)
  terms = compiled(model, 'infer', False)({'params': params}, x, noise)
  expected = reference.batch(infer_one, model, params, x, noise)
  for name, value in expected.items():
    assert_close(getattr(terms, name), value, 3 * TOLERANCE[dtype])
  assert_close(terms.kl_latents.sum(-1), expected['kl'], 3 * TOLERANCE[dtype])


def test_what_is_drawn_is_from_the_prior():
  """Latents drawn step by step from p, decoded."""
  model = make()
  params, (_, noise) = random_params(model), inputs(model)
  drawn, _ = compiled(model, 'draw', False)({'params': params}, noise)
  for n in range(noise.shape[1]):
    (canvas,) = reference.initial(params, 'canvas')
    h_dec, c_dec = reference.initial(params['decoder'], 'h', 'c')
    for noise_t in noise[:, n]:
      (mean, covariance), _ = statistics(model, params, h_dec, np.zeros(D))
      z = mean + np.sqrt(np.diag(covariance)) * noise_t
      canvas, h_dec, c_dec, _ = reference.draw_step(model, params, canvas, h_dec, c_dec, z)
    assert_close(drawn[n], canvas, 1e-5)


def test_it_begins_as_draw():
  """With the weights of DRAW in place of its own, it does the same."""
  model, plain = make(), build(glimpses=T)
  (x, noise), key = inputs(model), jax.random.key(0)
  params = model.init(key, x, key)['params']
  before = random_params(plain)
  assert set(params) - set(before) == set(model.neutral)
  assert not any(np.any(leaf) for n in model.neutral for leaf in jax.tree.leaves(params[n]))
  terms = compiled(model, 'infer', False)({'params': {**params, **before}}, x, noise)
  same = compiled(plain, 'infer', False)({'params': before}, x, noise)
  for name in ('kl', 'log_ratio', 'latents', 'canvas'):
    np.testing.assert_allclose(getattr(terms, name), getattr(same, name), rtol=1e-5, atol=1e-6)


def test_gradients_agree_with_finite_differences():
  with jax.enable_x64(True):
    model = make(param_dtype='float64')
    params, (x, noise) = random_params(model), inputs(model)
    rng = np.random.default_rng(3)
    way = jax.tree.map(lambda a: rng.normal(size=a.shape), params)

    @jax.jit
    def loss(size):
      moved = jax.tree.map(lambda a, b: a + size * b, params, way)
      return model.apply({'params': moved}, x, noise, method='infer').loss.mean()

    slope = jax.grad(loss)(0.0)
    steps = np.array([1e-4, -1e-4])
    high, low = map(loss, steps)
    np.testing.assert_allclose(slope, (high - low) / 2e-4, rtol=1e-5)


def test_log_ratio_averages_to_kl():
  model = make(glimpses=1)
  params, (x, _) = random_params(model), inputs(model)
  noise = jax.random.normal(jax.random.key(1), (1, 40_000, Z))
  x = jnp.broadcast_to(x[:1], (40_000, *x.shape[1:]))
  terms = compiled(model, 'infer', False)({'params': params}, x, noise)
  error = terms.log_ratio.std() / np.sqrt(40_000)
  assert abs(terms.log_ratio.mean() - terms.kl[0, 0]) < 4 * error


def test_covariances_of_many_latents_are_refused():
  config = DependentLatentsConfig(latent=100)
  with pytest.raises(UserError, match=r'at most 32 latents, and model\.latent=100'):
    config.check_image(28, 28, 'model.')
  DependentLatentsConfig(latent=100, full_covariance=False).check_image(28, 28)


def test_latents_are_not_taken_apart():
  model = make()
  with pytest.raises(UserError, match='--latents=2'):
    model.with_latents(random_params(model), 2)
