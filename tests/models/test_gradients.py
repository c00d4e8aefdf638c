import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from model_support import BOTH_KINDS, FAST, build, infer, inputs, random_params
from reference import assert_close

from draw_jax.models import gradients
from draw_jax.models.recurrence import REMAT


def loss_and_gradients(model, params, x, noise, loop=False):
  def loss(params, x, noise):
    return model.apply({'params': params}, x, noise, method='infer').loss.mean()

  def flat(params, x, noise):
    return ravel_pytree(jax.value_and_grad(loss)(params, x, noise))[0]

  if loop:  # JAX unrolls a scan where it may not compile
    with jax.disable_jit():
      program = jax.make_jaxpr(flat)(params, x, noise)
    assert 'scan' not in str(program)
    unrolled = jax.jit(jaxpr_as_fun(program), compiler_options=FAST)
    return unrolled(*jax.tree.leaves((params, x, noise)))[0]
  return jax.jit(flat, compiler_options=FAST)(params, x, noise)


@functools.cache
def kept(case):
  """The model that keeps all values for its gradients, arguments and what they give."""
  model = build(case, 'float64', remat='none')
  given = random_params(model), *inputs(model)
  return model, given, loss_and_gradients(model, *given)


@pytest.mark.parametrize('remat', sorted({*REMAT} - {'none'}))
@pytest.mark.parametrize('case', BOTH_KINDS)
def test_rematerialization_changes_nothing(case, remat):
  with jax.enable_x64(True):
    model, given, expected = kept(case)
    assert_close(loss_and_gradients(model.clone(remat=remat), *given), expected, 1e-10)


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_a_python_loop_gives_the_same(case):
  with jax.enable_x64(True):
    model, given, expected = kept(case)
    assert_close(loss_and_gradients(model, *given, loop=True), expected, 1e-10)


@pytest.mark.parametrize('case', BOTH_KINDS)
def test_bfloat16_is_near_float32(case):
  """Only products are rounded: gradients and results are float32, as parameters are."""
  model = build(case, dtype='bfloat16')
  given = random_params(model), *inputs(model)
  rough, fine = (infer(m, *given) for m in (model, build(case)))
  np.testing.assert_allclose(rough['loss'], fine['loss'], rtol=0.02)
  assert (rough['loss'] != fine['loss']).all()
  rounded, exact = (loss_and_gradients(m, *given) for m in (model, build(case)))
  assert 0 < np.linalg.norm(rounded - exact) < 0.03 * np.linalg.norm(exact)
  for leaf in (*jax.tree.leaves(given[0]), *rough.values(), rounded):
    assert leaf.dtype == np.float32
    assert np.isfinite(leaf).all()


def test_gradients_of_windows_are_limited():
  model = build()
  params, (x, noise) = random_params(model), inputs(model)

  def biases(limit):
    def loss(params):
      limited = model.clone(window_limit=limit)
      return limited.apply({'params': params}, x, noise, method='infer').loss.sum()

    grads = jax.jit(jax.grad(loss), compiler_options=FAST)(params)
    return [np.linalg.norm(grads[name]['bias']) for name in ('read_window', 'write_window')]

  for limited, free in zip(biases(1e-4), biases(0.0), strict=True):
    assert 0 < limited <= 1.001e-4 * noise.shape[0] * noise.shape[1] < 0.1 * free


@pytest.mark.parametrize('limit', [0.5, 2.0, 0.0])
def test_limited_gradients(limit):
  """The value passes; of its gradient every row is as long as the limit at most."""
  x = np.array([[[3.0, -4.0]], [[0.3, 0.4]], [[0.0, 0.0]]])  # norms 5, 0.5, 0
  value, back = jax.vjp(lambda x: gradients.limit(x, limit), jnp.asarray(x))
  np.testing.assert_array_equal(value, x.astype(np.float32))
  factors = np.minimum(1, (limit or np.inf) / np.array([5, 0.5, 1]))
  np.testing.assert_allclose(back(jnp.asarray(x))[0], x * factors[:, None, None], rtol=1e-6)
  if limit:
    for scale in (1e30, 1e-30):  # whose squares float32 has not
      (row,) = back(jnp.full((3, 1, 2), scale / 2, jnp.float32))
      np.testing.assert_allclose(row, min(limit / np.sqrt(2), scale / 2), rtol=1e-5)
