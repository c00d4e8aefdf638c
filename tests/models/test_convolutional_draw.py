"""Convolutional DRAW against loops over the equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from model_support import compiled, random_params
from reference import TOLERANCE, assert_close, both_precisions

from draw_jax import discretized_logistic
from draw_jax.errors import UserError
from draw_jax.figures import weights
from draw_jax.models.convolutional_draw import (
  ConvolutionalDraw,
  ConvolutionalDrawConfig,
  convolution,
)

B, T = 2, 3
CASES = {
  'oblong': {'image_shape': (4, 6, 1), 'scale': 2},
  'color': {'image_shape': (6, 2, 3), 'scale': 2, 'output': 'discretized_logistic'},
  'wide filters': {'image_shape': (3, 4, 2), 'scale': 1, 'kernel_size': 5},
}


def make(case='oblong', param_dtype='float32', **more):
  sizes = {'glimpses': T, 'features': 2, 'latent_channels': 2, 'kernel_size': 3} | CASES[case]
  return ConvolutionalDraw(param_dtype=param_dtype, **(sizes | more))


def inputs(model):
  rng = np.random.default_rng(1)
  x = rng.integers(0, 256, (B, *model.image_shape)) / 255
  noise = rng.normal(size=(T, B, model.latent))
  return x.astype(model.param_dtype), noise.astype(model.param_dtype)


def convolved(k, kernel, bias, maps) -> np.ndarray:
  """W * maps + b, [P, Q, I] to [P, Q, O]: a sum over the places around each place."""
  P, Q, num = maps.shape
  kernel = np.array(kernel, np.float64).reshape(k, k, num, -1)
  out = np.zeros((P, Q, kernel.shape[-1])) + bias
  for p, q, y, x in np.ndindex(P, Q, k, k):
    from_p, from_q = p + y - k // 2, q + x - k // 2
    if 0 <= from_p < P and 0 <= from_q < Q:
      for i in range(num):
        out[p, q] += maps[from_p, from_q, i] * kernel[y, x, i]
  return out


def squares(image, s) -> np.ndarray:
  """S(image)."""
  H, W, C = image.shape
  out = np.zeros((H // s, W // s, s * s * C))
  for y, x, c in np.ndindex(H, W, C):
    out[y // s, x // s, ((y % s) * s + x % s) * C + c] = image[y, x, c]
  return out


def whole(maps, s) -> np.ndarray:
  """The inverse of S."""
  P, Q, size = maps.shape
  C = size // (s * s)
  out = np.zeros((P * s, Q * s, C))
  for y, x, c in np.ndindex(out.shape):
    out[y, x, c] = maps[y // s, x // s, ((y % s) * s + x % s) * C + c]
  return out


def lstm(model, params, h, c, *heard):
  gates = np.concatenate([*heard, h], -1)
  gates = convolved(model.kernel_size, params['kernel'], params['bias'], gates)
  D, h_next, c_next = h.shape[-1], np.zeros(h.shape), np.zeros(h.shape)
  for p, q, d in np.ndindex(h.shape):
    put, forget, candidate, show = (gates[p, q, n * D + d] for n in range(4))
    c_next[p, q, d] = reference.sigmoid(forget) * c[p, q, d]
    c_next[p, q, d] += reference.sigmoid(put) * np.tanh(candidate)
    h_next[p, q, d] = reference.sigmoid(show) * np.tanh(c_next[p, q, d])
  return h_next, c_next


def statistics(model, layer, h):
  """Mean and standard deviation, [Z] each."""
  both = convolved(model.kernel_size, layer['kernel'], layer['bias'], h)
  mean, log_std = both[..., : model.latent_channels], both[..., model.latent_channels :]
  return mean.reshape(-1), np.exp(log_std.reshape(-1))


def draw_step(model, params, canvas, h_dec, c_dec, z):
  z = z.reshape(*h_dec.shape[:2], -1)
  h_dec, c_dec = lstm(model, params['decoder'], h_dec, c_dec, z, squares(canvas, model.scale))
  write = params['write']
  change = convolved(model.kernel_size, write['kernel'], write['bias'], h_dec)
  return canvas + whole(change, model.scale), h_dec, c_dec


def mean_image(model, canvas) -> np.ndarray:
  if model.output == 'bernoulli':
    return 1 / (1 + np.exp(-canvas))
  # Tested on its own.
  mixture = discretized_logistic.mixture(jnp.asarray(canvas), model.image_shape[-1], 1)
  return np.array(discretized_logistic.mean(mixture), np.float64)


def log_prob(model, canvas, x) -> float:
  if model.output == 'bernoulli':
    return reference.bernoulli_log_prob(canvas, x)
  mixture = discretized_logistic.mixture(jnp.asarray(canvas), model.image_shape[-1], 1)
  return float(discretized_logistic.log_prob(mixture, jnp.asarray(x)).sum())


def infer_one(model, params, x, noise) -> dict:
  x = np.array(x, np.float64)
  (canvas,) = reference.initial(params, 'canvas')
  h_enc, c_enc = reference.initial(params['encoder'], 'h', 'c')
  h_dec, c_dec = reference.initial(params['decoder'], 'h', 'c')
  found = {'kl_latents': [], 'log_ratio': [], 'latents': []}
  for noise_t in noise:
    seen = [squares(a, model.scale) for a in (x, x - mean_image(model, canvas))]
    h_enc, c_enc = lstm(model, params['encoder'], h_enc, c_enc, *seen, h_dec)
    p_mean, p_std = statistics(model, params['prior'], h_dec)
    q_mean, q_std = statistics(model, params['posterior'], h_enc)
    z = np.array([m + s * n for m, s, n in zip(q_mean, q_std, noise_t, strict=True)])
    kl, log_ratio = [], 0.0
    for m, s, a, b, value in zip(q_mean, q_std, p_mean, p_std, z, strict=True):
      kl.append(np.log(b / s) + (s**2 + (m - a) ** 2) / (2 * b**2) - 0.5)
      log_ratio += reference.normal_log_density(value, m, s)
      log_ratio -= reference.normal_log_density(value, a, b)
    for name, value in (('kl_latents', kl), ('log_ratio', log_ratio), ('latents', z)):
      found[name].append(value)
    canvas, h_dec, c_dec = draw_step(model, params, canvas, h_dec, c_dec, z)
  loss = np.sum(found['kl_latents']) - log_prob(model, canvas, x)
  return found | {'canvas': canvas, 'loss': loss}


@pytest.mark.parametrize('case', CASES)
@both_precisions
def test_forward_pass_agrees_with_the_equations(case, dtype):
  model = make(case, dtype)
  params, (x, noise) = random_params(model), inputs(model)
  terms = compiled(model, 'infer', True)({'params': params}, x, noise)
  for name, value in reference.batch(infer_one, model, params, x, noise).items():
    assert_close(getattr(terms, name), value, 3 * TOLERANCE[dtype])
  np.testing.assert_array_equal(terms.trace.canvas[-1], terms.canvas)
  assert terms.trace.canvas.shape[:2] == (T, B) and terms.trace.write is None


def test_what_is_drawn_is_from_the_prior():
  """Latents drawn step by step from p, decoded."""
  model = make('color')
  params, (_, noise) = random_params(model), inputs(model)
  drawn, _ = compiled(model, 'draw', False)({'params': params}, noise)
  for n in range(B):
    (canvas,) = reference.initial(params, 'canvas')
    h_dec, c_dec = reference.initial(params['decoder'], 'h', 'c')
    for noise_t in noise[:, n]:
      mean, std = statistics(model, params['prior'], h_dec)
      z = mean + std * noise_t
      canvas, h_dec, c_dec = draw_step(model, params, canvas, h_dec, c_dec, z)
    assert_close(drawn[n], canvas, 1e-5)


def test_the_first_prior_is_the_standard_normal():
  model, key = make(), jax.random.key(0)
  params = model.init(key, inputs(model)[0], key)['params']
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(params['prior']))


@pytest.mark.parametrize('case', CASES)
def test_gradients_agree_with_finite_differences(case):
  with jax.enable_x64(True):
    model = make(case, 'float64')
    params, (x, noise) = random_params(model), inputs(model)
    rng = np.random.default_rng(3)
    way = jax.tree.map(lambda a: rng.normal(size=a.shape), params)

    @jax.jit
    def loss(size):
      moved = jax.tree.map(lambda a, b: a + size * b, params, way)
      return model.apply({'params': moved}, x, noise, method='infer').loss.mean()

    # Not along the way alone: reverse mode goes through the gradients of convolutions.
    at = lambda p: model.apply({'params': p}, x, noise, method='infer').loss.mean()  # noqa: E731
    gradients = jax.jit(jax.grad(at))(params)
    slope = sum(np.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (gradients, way)), strict=True))
    high, low = loss(1e-5), loss(-1e-5)
    np.testing.assert_allclose(slope, (high - low) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize('remat', ['step', 'segments'])
def test_rematerialization_changes_nothing(remat):
  with jax.enable_x64(True):
    model = make(param_dtype='float64')
    params, (x, noise) = random_params(model), inputs(model)

    def gradients(model):
      loss = lambda p: model.apply({'params': p}, x, noise, method='infer').loss.mean()  # noqa: E731
      return jax.tree.leaves(jax.jit(jax.grad(loss))(params))

    for one, other in zip(gradients(model), gradients(model.clone(remat=remat)), strict=True):
      assert_close(one, other, 1e-10)


@pytest.mark.parametrize('size', [1, 3, 5])
def test_convolutions_agree_with_xla(size):
  rng = np.random.default_rng(0)
  x, change = rng.normal(size=(2, 4, 6, 3)), rng.normal(size=(2, 4, 6, 5))
  kernel, bias = rng.normal(size=(size, size, 3, 5)), rng.normal(size=5)

  def by_xla(x, kernel):
    names = ('NHWC', 'HWIO', 'NHWC')
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), 'SAME', dimension_numbers=names) + bias

  def ours(dtype, x, kernel):
    layer = {'kernel': kernel.reshape(-1, 5), 'bias': bias}
    return convolution(layer, x, dtype)

  with jax.enable_x64(True):
    expected, back = jax.vjp(by_xla, x, kernel)
    for dtype, tolerance in ((None, 1e-12), ('bfloat16', 2e-2)):
      y, our_back = jax.vjp(lambda x, k, d=dtype: ours(d, x, k), x, kernel)
      assert y.dtype == np.float64
      assert_close(y, expected, tolerance)
      for one, other in zip(our_back(change), back(change), strict=True):
        assert one.dtype == np.float64
        assert_close(one, other, tolerance)


def test_all_products_are_in_the_type_that_is_asked_for():
  model = make(dtype='bfloat16')
  params, (x, noise) = random_params(model), inputs(model)
  loss = lambda p: model.apply({'params': p}, x, noise, method='infer').loss.mean()  # noqa: E731
  program = jax.jit(jax.grad(loss)).lower(params).as_text()
  products = [line for line in program.splitlines() if 'stablehlo.dot_general' in line]
  # 5 layers and the product with x: forward, and the gradients of matrices and of inputs.
  assert len(products) >= 16
  for line in products:
    left, right = line.split(' : (')[1].split(') -> ')[0].split(', ')
    assert left.endswith('bf16>') and right.endswith('bf16>')
    assert line.endswith('f32>')


def test_images_that_do_not_fit_are_refused():
  with pytest.raises(UserError, match=r'scale=4 does not divide .* 54 x 50: try 1, 2\.'):
    make(image_shape=(54, 50, 3), scale=4)
  with pytest.raises(UserError, match='kernel_size=4 must be odd'):
    make(kernel_size=4)
  with pytest.raises(UserError, match=r'model\.components=2 is for a mixture'):
    ConvolutionalDrawConfig(components=2).check_image(28, 28, 'model.')
  model = make()
  params, (x, noise) = random_params(model), inputs(model)
  with pytest.raises(UserError, match='x is 2 x 6 x 4 x 1, and the network takes'):
    model.apply({'params': params}, x.swapaxes(1, 2), noise, method='infer')
  with pytest.raises(UserError, match='noise is 3 x 2 x 11: it must be glimpses x 2 x 12'):
    model.apply({'params': params}, x, noise[..., 1:], method='infer')


def test_latents_are_not_taken_apart_and_no_page_runs_it():
  model = make()
  params = random_params(model)
  with pytest.raises(UserError, match='--latents=2'):
    model.with_latents(params, 2)
  with pytest.raises(UserError, match='not known to the web page: prior'):
    weights.check(model, params)
