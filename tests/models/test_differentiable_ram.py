import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
from jax.flatten_util import ravel_pytree
from reference import TOLERANCE, assert_close, both_precisions

from draw_jax.models.differentiable_ram import DifferentiableRAM, GlimpseInitialization

B, T, D, K = 3, 4, 5, 4

CASES = {
  'oblong': {'image_shape': (5, 7, 1), 'read_size': 3},
  'color': {'image_shape': (6, 4, 3), 'read_size': 2},
  'one filter': {'image_shape': (4, 4, 2), 'read_size': 1},
  'relative': {'image_shape': (7, 5, 2), 'read_size': 3, 'relative_variance': True},
}

# These programs run once: compiling them well takes longer than running them.
FAST = {'xla_backend_optimization_level': 0}


def build(case='oblong', param_dtype='float32', **more):
  # Its own number of steps is not the one that the tests run.
  sizes = {'window_limit': 0.0, 'glimpses': T - 1, 'hidden': D, 'num_classes': K} | CASES[case]
  return DifferentiableRAM(param_dtype=param_dtype, **(sizes | more))


def random_params(model):
  """Parameters without a zero among them, initial states and biases too."""
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *model.image_shape)))

  def draw(leaf):
    scale = leaf.shape[0] ** -0.5 if leaf.ndim == 2 else 0.5
    return (scale * rng.normal(size=leaf.shape)).astype(leaf.dtype)

  return jax.tree.map(draw, shapes['params'])


def images(model, num=B):
  rng = np.random.default_rng(1)
  return rng.uniform(size=(num, *model.image_shape)).astype(model.param_dtype)


def look(model, params, x, glimpses=T):
  apply = functools.partial(model.apply, glimpses=glimpses, trace=True)
  return jax.jit(apply, compiler_options=FAST)({'params': params}, x)


def classify_one(params, x, size, steps, relative=False):
  """Section 4.1 for one image, from the paper's equations: logits, windows and glimpses."""
  x = np.array(x, np.float64)
  h, c = reference.initial(params['core'], 'h', 'c')
  windows, glimpses = [], []
  for _ in range(steps):
    raw = reference.linear(params['window'], h)
    w = reference.window(raw, size, *x.shape[:2])
    if relative:
      w = w._replace(variance=np.exp(raw[2]) * w.delta**2)
    windows.append(w)
    glimpses.append(reference.read(x, w, size))
    h, c = reference.lstm(params['core'], h, c, glimpses[-1].ravel())
  return reference.linear(params['head'], h), np.array(windows), np.array(glimpses)


@pytest.mark.parametrize('case', CASES)
@both_precisions
def test_forward_pass_agrees_with_the_equations(case, dtype):
  model = build(case, dtype)
  params, x = random_params(model), images(model)
  logits, trace = look(model, params, x)
  # The paper counts pixels from 1.
  window = np.stack([trace.window.center_x + 1, trace.window.center_y + 1, *trace.window[2:]], -1)
  assert {logits.dtype, window.dtype, trace.glimpse.dtype} == {np.dtype(dtype)}
  for n in range(B):
    expected = classify_one(params, x[n], model.read_size, T, model.relative_variance)
    for value, right in zip((logits[n], window[:, n], trace.glimpse[:, n]), expected, strict=True):
      assert_close(value, right, TOLERANCE[dtype])


@pytest.mark.parametrize('case', ['oblong', 'color', 'relative'])
def test_gradients_agree_with_finite_differences(case):
  """Of the cross-entropy and of all results, by every parameter and the images."""
  with jax.enable_x64(True):
    model = build(case, 'float64')
    given = random_params(model), images(model)
    flat, unravel = ravel_pytree(given)
    rng, step = np.random.default_rng(2), 1e-5
    labels = np.arange(B) % K

    def results(flat):
      params, x = unravel(flat)
      logits, trace = model.apply({'params': params}, x, glimpses=T, trace=True)
      loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
      return ravel_pytree((loss, logits, trace))[0]

    count = jax.eval_shape(results, flat).size
    weights = np.stack([np.arange(count) < B, rng.normal(size=count)])
    weigh = lambda flat: weights @ results(flat)  # noqa: E731
    forward = jax.jit(weigh, compiler_options=FAST)
    slopes = jax.jit(jax.jacrev(weigh), compiler_options=FAST)(flat)
    start = 0
    for leaf in jax.tree.leaves(given):
      assert np.abs(slopes[:, start : start + leaf.size]).max() > 1e-4
      along = np.zeros((2, flat.size))
      along[0, start : start + leaf.size] = rng.normal(size=leaf.size) / leaf.size**0.5
      along[1, start + rng.integers(leaf.size)] = 1
      for direction in along:
        after, before = forward(flat + step * direction), forward(flat - step * direction)
        np.testing.assert_allclose(slopes @ direction, (after - before) / (2 * step), 1e-6, 1e-7)
      start += leaf.size


def test_each_glimpse_is_placed_by_the_step_before():
  """The first window knows nothing of the image; the others do."""
  model = build()
  params, x = random_params(model), images(model)
  _, trace = look(model, params, x)
  windows = np.stack(trace.window, -1)
  np.testing.assert_allclose(windows[0], np.broadcast_to(windows[0, :1], (B, 5)), rtol=1e-6)
  assert (np.abs(windows[1:, 1:] - windows[1:, :1]).max(-1) > 1e-4).all()


def test_fewer_glimpses_are_the_first_of_more():
  model = build()
  params, x = random_params(model), images(model)
  whole, part = (look(model, params, x, steps)[1] for steps in (T, 2))
  for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
    assert_close(a[:2], b, 1e-6)
  logits, trace = jax.jit(model.apply, compiler_options=FAST)({'params': params}, x)
  assert trace is None
  assert_close(logits, look(model, params, x, model.glimpses)[0], 1e-6)


def gradients(model, params, x):
  def loss(params):
    return jnp.square(model.apply({'params': params}, x, glimpses=T)[0]).sum()

  return ravel_pytree(jax.jit(jax.grad(loss), compiler_options=FAST)(params))[0]


def test_rematerialization_changes_nothing():
  with jax.enable_x64(True):
    model = build(param_dtype='float64', remat='none')
    params, x = random_params(model), images(model)
    expected = gradients(model, params, x)
    assert_close(gradients(model.clone(remat='products'), params, x), expected, 1e-10)
    with pytest.raises(ValueError, match='remat'):
      gradients(model.clone(remat='nothing'), params, x)


def test_the_gradient_of_a_window_is_limited():
  model = build()
  params, x = random_params(model), images(model)

  def bias(limit):
    logits = lambda p: model.clone(window_limit=limit).apply({'params': p}, x)[0]  # noqa: E731
    return np.linalg.norm(jax.grad(lambda p: jnp.square(logits(p)).sum())(params)['window']['bias'])

  assert 0 < bias(1e-3) <= 1e-3 * len(x) * model.glimpses < 0.1 * bias(0.0)


def test_bfloat16_is_near_float32():
  model = build(dtype='bfloat16')
  params, x = random_params(model), images(model)
  rough, fine = (look(m, params, x)[0] for m in (model, build()))
  assert rough.dtype == np.float32
  np.testing.assert_allclose(rough, fine, atol=0.05)
  assert (rough != fine).all()


@pytest.mark.parametrize(
  'start',
  [
    GlimpseInitialization(),
    GlimpseInitialization(stride=0.5, sigma=2, forget_bias=3, kernel_scale=0.25),
  ],
)
@pytest.mark.parametrize('relative', [False, True])
def test_initial_values(start, relative):
  model = DifferentiableRAM(
    (20, 28, 1), hidden=D, read_size=4, initialization=start, relative_variance=relative
  )
  x = images(model, 1)
  params = jax.jit(model.init, compiler_options=FAST)(jax.random.key(0), x)['params']
  window = np.stack(look(model, params, x, 1)[1].window, -1)[0, 0]
  # In the middle, with the variance and the stride asked for.
  expected = [13.5, 9.5, start.sigma**2, start.stride * 27 / 3, 1]
  np.testing.assert_allclose(window, expected, rtol=1e-5)
  bias = params['core']['bias'].reshape(4, D)
  np.testing.assert_array_equal(bias, np.repeat([[0], [start.forget_bias], [0], [0]], D, 1))
  kernel = params['core']['kernel']
  assert kernel.shape == (16 + D, 4 * D)
  expected = (start.kernel_scale / len(kernel)) ** 0.5
  np.testing.assert_allclose(kernel.std(), expected, rtol=4 / kernel.size**0.5)


SIDE, SQUARE = 20, 8


def squares(key, num):
  """A dim square at a random place, one half of it bright: image, which half, middle."""
  half_key, place_key = jax.random.split(key)
  half = jax.random.randint(half_key, (num,), 0, 4)
  low, high = SQUARE / 2 - 0.5, SIDE - SQUARE / 2 - 0.5
  middle = jax.random.uniform(place_key, (num, 2), minval=low, maxval=high)
  y, x = jnp.arange(SIDE) - middle[:, :1], jnp.arange(SIDE) - middle[:, 1:]
  y, x = jnp.broadcast_arrays(y[:, :, None], x[:, None, :])
  inside = jnp.maximum(jnp.abs(y), jnp.abs(x)) < SQUARE / 2
  bright = jnp.stack([y, -y, x, -x])[half, jnp.arange(num)] > 0
  return jnp.where(inside, jnp.where(bright, 1.0, 0.3), 0.0)[..., None], half, middle


def test_the_window_finds_what_it_is_to_name():
  """Trained on the class alone, the second glimpse goes to the square and is narrower."""
  model = DifferentiableRAM(
    (SIDE, SIDE, 1),
    num_classes=4,
    glimpses=2,
    hidden=32,
    read_size=6,
    initialization=GlimpseInitialization(sigma=2.0),
  )
  schedule = optax.cosine_decay_schedule(4e-3, 800)
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))

  def step(state, key):
    params, memory = state
    x, half, _ = squares(key, 32)

    def loss(params):
      logits, _ = model.apply({'params': params}, x)
      return optax.softmax_cross_entropy_with_integer_labels(logits, half).mean()

    updates, memory = optimizer.update(jax.grad(loss)(params), memory)
    return (optax.apply_updates(params, updates), memory), None

  x, half, middle = squares(jax.random.key(2), 300)
  params = model.init(jax.random.key(0), x)['params']
  keys = jax.random.split(jax.random.key(1), 800)
  (params, _), _ = jax.jit(lambda *args: jax.lax.scan(step, *args))(
    (params, optimizer.init(params)), keys
  )
  logits, trace = look(model, params, x, 2)
  assert (logits.argmax(-1) != half).mean() < 0.05
  first, second = np.stack([trace.window.center_y, trace.window.center_x], -1)
  far, near = (np.hypot(*(place - middle).T) for place in (first, second))
  assert near.mean() < 0.7 * far.mean()
  for axis in (0, 1):
    assert np.corrcoef(second[:, axis], middle[:, axis])[0, 1] > 0.8
  assert trace.window.stride[1].mean() < 0.7 * trace.window.stride[0].mean()
