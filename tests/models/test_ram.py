import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from jax.flatten_util import ravel_pytree
from reference import TOLERANCE, assert_close, both_precisions

from draw_jax.models import ram
from draw_jax.tasks.classification import ReinforcedClassification

B, T, K = 3, 3, 3
LEARNED_FROM_CLASSES = ('core', 'glimpse', 'head', 'what', 'where')
FAST = {'xla_backend_optimization_level': 0}


def build(param_dtype='float32', **more):
  # Its own number of steps is not the one that the tests run.
  sizes = {'image_shape': (6, 9, 2), 'read_size': 3, 'scales': 2} | more
  return ram.RAM(
    num_classes=K, glimpses=T - 1, hidden=5, features=4, location_std=0.3, param_dtype=param_dtype,
    **sizes
  )  # fmt: skip


def random_params(model, seed=0):
  """Parameters without a zero among them."""
  rng = np.random.default_rng(seed)
  shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *model.image_shape)))

  def draw(leaf):
    scale = leaf.shape[0] ** -0.5 if leaf.ndim == 2 else 0.5
    return (scale * rng.normal(size=leaf.shape)).astype(leaf.dtype)

  return jax.tree.map(draw, shapes['params'])


def inputs(model):
  rng = np.random.default_rng(1)
  x = rng.uniform(size=(B, *model.image_shape))
  return x.astype(model.param_dtype), rng.normal(size=(T, B, 2)).astype(model.param_dtype)


@functools.cache
def exploring(model):
  apply = functools.partial(model.apply, method='explore')
  return jax.jit(apply, compiler_options=FAST)


def sensor_one(x, location, size, scales):
  """The patches of one image, pixel by pixel."""
  height, width, channels = x.shape
  middle = [
    round((min(max(v, -1), 1) + 1) / 2 * n) for v, n in zip(location, (width, height), strict=True)
  ]
  seen = np.zeros((scales, size, size, channels))
  for s in range(scales):
    wide = 2**s
    left, top = (m - size * wide // 2 for m in middle)
    for j, i in np.ndindex(size, size):
      for b, a in np.ndindex(wide, wide):
        row, column = top + j * wide + b, left + i * wide + a
        if 0 <= row < height and 0 <= column < width:
          seen[s, j, i] += x[row, column] / wide**2
  return seen


@pytest.mark.parametrize('size,scales', [(3, 1), (2, 3), (4, 2), (1, 4)])
def test_sensor_agrees_with_loops(size, scales):
  """On oblong images of two channels, at corners, outside and anywhere."""
  rng = np.random.default_rng(0)
  x = rng.uniform(size=(12, 7, 10, 2)).astype(np.float32)
  location = rng.uniform(-1.1, 1.1, size=(12, 2)).astype(np.float32)
  location[:6] = [[-1, -1], [1, 1], [0, 0], [-1, 1], [3, -0.2], [-0.1, -9]]
  seen = jax.jit(ram.sensor, static_argnums=(2, 3))(x, location, size, scales)
  expected = [sensor_one(*pair, size, scales) for pair in zip(x, location, strict=True)]
  np.testing.assert_allclose(seen, expected, atol=1e-6)


def test_a_patch_is_a_part_of_the_image():
  """At the center of an image the smallest patch is cut out; the widest is all of it."""
  x = np.arange(64, dtype=np.float32).reshape(1, 8, 8, 1)
  small, whole = ram.sensor(x, np.zeros((1, 2), np.float32), 4, 2)[0, ..., 0]
  np.testing.assert_array_equal(small, x[0, 2:6, 2:6, 0])
  np.testing.assert_array_equal(whole, x.reshape(4, 2, 4, 2).mean((1, 3)))


def test_sensor_where_nearly_all_is_outside():
  """At points far away and at halves between two corners; patches wider than the image."""
  # Halves of a side of 4 or 8 pixels are whole in binary: how they round is not left to rounding.
  axis = [
    -np.inf,
    -1e30,
    -1,
    -1 + 1 / 4,
    -1 + 1 / 8,
    0,
    1 / 3,
    1 - 1 / 4,
    1 - 1 / 8,
    1,
    1e30,
    np.inf,
  ]
  location = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2).astype(np.float32)
  x = np.random.default_rng(0).integers(0, 256, (len(location), 4, 8, 3), np.uint8)
  seen = jax.jit(ram.sensor, static_argnums=(2, 3))(x, location, 3, 4)
  assert seen.dtype == np.float32
  expected = [sensor_one(*pair, 3, 4) for pair in zip(x.astype(float), location, strict=True)]
  np.testing.assert_allclose(seen, expected, atol=1e-6 * 255)


def test_sensor_is_as_exact_in_the_last_corner_of_a_large_image():
  """Sums over all that is above and to the left would be wrong in the fifth digit there."""
  x = np.full((1, 100, 100, 1), 0.1, np.float32)
  seen = np.asarray(ram.sensor(x, np.full((1, 2), 0.04, np.float32), 12, 4))
  np.testing.assert_array_equal(seen, np.float32(0.1))
  rng = np.random.default_rng(0)
  x = rng.uniform(size=(2, 100, 100, 1)).astype(np.float32)
  location = np.array([[0.9, 0.8], [0.04, -0.04]], np.float32)
  seen = ram.sensor(x, location, 12, 4)
  expected = [sensor_one(*pair, 12, 4) for pair in zip(x, location, strict=True)]
  np.testing.assert_allclose(seen, expected, atol=2e-7)


def test_gradient_of_the_sensor_by_the_image():
  """It is linear: its derivative by a pixel is what it sees of that pixel alone."""
  location = np.array([0.2, -1.0], np.float32)
  x = np.random.default_rng(0).uniform(size=(4, 5, 1)).astype(np.float32)
  by_x, by_location = jax.jacrev(ram.sensor, (0, 1))(x, location, 3, 2)
  assert (by_location == 0).all()
  for pixel in np.ndindex(x.shape):
    alone = np.zeros_like(x)
    alone[pixel] = 1
    np.testing.assert_array_equal(by_x[..., *pixel], sensor_one(alone, location, 3, 2))


def test_several_points_are_looked_at_with_the_same_tables():
  rng = np.random.default_rng(0)
  x = rng.uniform(size=(B, 7, 10, 2)).astype(np.float32)
  location = rng.uniform(-1.1, 1.1, size=(4, B, 2)).astype(np.float32)
  means = ram.tables(x, 3)
  seen = jax.vmap(lambda location: ram.look(means, location, 2))(location)
  np.testing.assert_array_equal(seen, [ram.sensor(x, points, 2, 3) for points in location])


def relu(values):
  return np.array([max(v, 0.0) for v in values])


def explore_one(model, params, x, noise):
  """Mnih et al. (2014), one image: logits, points, means, log-densities, baselines."""
  (h,) = reference.initial(params['core'], 'h')
  steps = []
  for noise_t in noise:
    (baseline,) = reference.linear(params['baseline'], h)
    mean = reference.linear(params['location'], h)
    point = mean + model.location_std * noise_t
    density = sum(
      reference.normal_log_density(v, m, model.location_std)
      for v, m in zip(point, mean, strict=True)
    )
    patches = sensor_one(np.array(x, np.float64), point, model.read_size, model.scales)
    what = relu(reference.linear(params['what'], patches.ravel()))
    where = relu(reference.linear(params['where'], np.clip(point, -1, 1)))
    glimpse = relu(reference.linear(params['glimpse'], [*what, *where]))
    h = relu(reference.linear(params['core'], [*glimpse, *h]))
    steps.append((point, mean, density, baseline))
  return reference.linear(params['head'], h), *map(np.array, zip(*steps, strict=True))


@both_precisions
def test_a_pass_agrees_with_the_equations(dtype):
  model = build(dtype)
  params, (x, noise) = random_params(model), inputs(model)
  terms = exploring(model)({'params': params}, x, noise)
  for n in range(B):
    logits, *steps = explore_one(model, params, x[n], noise[:, n])
    assert_close(terms.logits[n], logits, TOLERANCE[dtype])
    for value, expected in zip(terms[1:], steps, strict=True):
      assert value.dtype == dtype
      assert_close(value[:, n], expected, TOLERANCE[dtype])


def test_bfloat16_multiplies_only():
  """Numbers are near those in float32; where it looks is not rounded."""
  exact, rounded = build(), build(dtype='bfloat16')
  params, (x, noise) = random_params(exact), inputs(exact)
  terms = exploring(exact)({'params': params}, x, noise)
  near = exploring(rounded)({'params': params}, x, noise)
  np.testing.assert_array_equal(near.location[0], terms.location[0])
  assert near.logits.dtype == np.float32
  assert (near.logits != terms.logits).any()
  np.testing.assert_allclose(near.logits, terms.logits, atol=0.1)


def test_without_noise_it_looks_where_the_means_are():
  model = build()
  params, (x, _) = random_params(model), inputs(model)
  look = functools.partial(model.apply, glimpses=T, trace=True)
  logits, trace = jax.jit(look, compiler_options=FAST)({'params': params}, x)
  terms = exploring(model)({'params': params}, x, np.zeros((T, B, 2), np.float32))
  np.testing.assert_array_equal(terms.location, terms.mean)
  assert_close(logits, terms.logits, 1e-6)
  # The frame is that of the smallest patch: a patch of 3 pixels in an image 9 wide, 6 high.
  for axis, length in enumerate((9, 6)):
    middle = np.round((np.clip(terms.mean[..., axis], -1, 1) + 1) / 2 * length)
    np.testing.assert_array_equal(trace.window[axis], middle)  # of pixels -1, 0 and 1 from there
  assert (trace.window.stride == 1).all()
  small, wide = np.split(trace.glimpse, 2, -2)
  for t, n in np.ndindex(T, B):
    expected = sensor_one(x[n], terms.mean[t, n], 3, 2)
    np.testing.assert_allclose([small[t, n], wide[t, n]], expected, atol=1e-6)


def batch_of(model, num=B):
  rng = np.random.default_rng(2)
  image = rng.integers(0, 256, (num, *model.image_shape), np.uint8)
  return {'image': image, 'label': rng.integers(0, K, num)}


def test_evaluation_has_no_noise_and_training_has():
  model = build()
  task, params, batch = ReinforcedClassification(model), random_params(model), batch_of(model)
  noises = [10 * task.noise(jax.random.key(seed), B, T) for seed in (0, 1)]

  @functools.partial(jax.jit, compiler_options=FAST)
  def run(noise):
    judged = task.predict(params, batch, noise), task.loss(params, batch, noise)[1]
    return judged, task.loss(params, batch, noise, 0)[1]

  (judged, trained), (judged_again, trained_again) = map(run, noises)
  jax.tree.map(np.testing.assert_array_equal, judged, judged_again)
  assert (trained['cross_entropy'] != trained_again['cross_entropy']).any()
  assert trained.keys() == {'error', 'cross_entropy', 'baseline_error'}


def test_each_network_learns_from_its_own_part_of_the_loss():
  """From classes all but the location network and the baseline; these from nothing else."""
  model = build()
  task, params, batch = ReinforcedClassification(model), random_params(model), batch_of(model)
  noise = task.noise(jax.random.key(0), B, T)

  def parts(params):
    loss, metrics = task.loss(params, batch, noise, 0)
    return jnp.stack([loss, metrics['cross_entropy'], metrics['baseline_error']]).sum(1)

  rows = jax.jit(jax.jacrev(parts), compiler_options=FAST)(params)
  for name, arrays in rows.items():
    gradient, by_class, by_reward = np.concatenate(
      [a.reshape(3, -1) for a in jax.tree.leaves(arrays)], 1
    )
    if name in LEARNED_FROM_CLASSES:
      assert_close(gradient, by_class, 1e-5)
    else:
      assert (by_class == 0).all()
      assert (gradient != 0).any()
    if name == 'baseline':
      assert_close(gradient, by_reward, 1e-5)
    else:
      assert (by_reward == 0).all()


def test_gradients_of_the_classes_agree_with_finite_differences():
  """With points that depend on nothing that is moved."""
  with jax.enable_x64(True):
    model = build('float64')
    params, (x, noise) = random_params(model), inputs(model)
    params['location']['kernel'][:] = 0
    moving = {name: params[name] for name in LEARNED_FROM_CLASSES}
    flat, unravel = ravel_pytree(moving)
    weights = np.random.default_rng(3).normal(size=(B, K))

    def score(flat):
      given = {'params': params | unravel(flat)}
      return (weights * model.apply(given, x, noise, method='explore').logits).sum()

    slopes = jax.jit(jax.grad(score), compiler_options=FAST)(flat)
    forward = jax.jit(score, compiler_options=FAST)
    rng, step = np.random.default_rng(4), 1e-6
    for _ in range(10):
      along = rng.normal(size=flat.size)
      difference = (forward(flat + step * along) - forward(flat - step * along)) / (2 * step)
      np.testing.assert_allclose(slopes @ along, difference, rtol=1e-5)


def test_reinforce_is_the_gradient_of_the_expected_reward():
  """Against the sum over a grid of all points that two glimpses may be at.

  For Gaussians the sum over a grid as fine as their standard deviation is that of
  the integral to 7 digits, so also the baseline's part must vanish.
  """
  with jax.enable_x64(True):
    model = build('float64', image_shape=(6, 8, 1), read_size=2)
    task, params = ReinforcedClassification(model), random_params(model, seed=5)
    axis = np.arange(-5.0, 6.0)
    noise = np.stack(np.meshgrid(*[axis] * 4, indexing='ij'), -1).reshape(-1, 2, 2)
    noise = np.moveaxis(noise, 1, 0)  # [2, 11^4, 2]
    chance = np.exp(-0.5 * np.square(noise).sum((0, -1))) / (2 * np.pi) ** 2
    assert abs(chance.sum() - 1) < 1e-6
    image = np.repeat(batch_of(model, 1)['image'], len(chance), 0)
    x = image / 255
    base = exploring(model)({'params': params}, x, noise)
    # No class is the likeliest at all points.
    params['head']['bias'] -= chance @ base.logits
    chosen = np.argmax(base.logits - chance @ base.logits, -1)
    chances = np.bincount(chosen, chance, K)
    label = np.abs(chances - 0.5).argmin()
    assert 0.1 < chances[label] < 0.9
    reward = chosen == label
    batch = {'image': image, 'label': np.full(len(chance), label)}

    def loss(location):
      return (chance * task.loss(params | {'location': location}, batch, noise, 0)[0]).sum()

    estimate, unravel = ravel_pytree(jax.jit(jax.grad(loss))(params['location']))

    def expected_reward(flat):
      """With another location network, which takes the same points with other chances."""
      given = {'params': params | {'location': unravel(flat)}}
      same = np.zeros_like(noise)
      for t in range(2):
        mean = exploring(model)(given, x, same).mean
        same[t] = (base.location[t] - mean[t]) / model.location_std
      return (np.exp(-0.5 * np.square(same).sum((0, -1))) / (2 * np.pi) ** 2 * reward).sum()

    flat, step = ravel_pytree(params['location'])[0], 1e-5
    assert len(flat) == 12
    for i, unit in enumerate(np.eye(len(flat))):
      after, before = expected_reward(flat + step * unit), expected_reward(flat - step * unit)
      np.testing.assert_allclose(-estimate[i], (after - before) / (2 * step), rtol=1e-4, atol=1e-6)
