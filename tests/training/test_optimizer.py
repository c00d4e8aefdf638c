import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import draw_jax
from draw_jax import config as config_lib
from draw_jax.errors import UserError
from draw_jax.models.differentiable_ram import DifferentiableRAM
from draw_jax.training import optimizer


@pytest.fixture
def config():
  section = config_lib.default().optimizer
  section.warmup_steps = 10
  return section


def test_schedule(config):
  rates = np.array([optimizer.schedule(config, 110)(step) for step in range(111)])
  np.testing.assert_allclose(rates[:10], 2e-3 * np.arange(1, 11) / 10, rtol=1e-5)
  angle = np.pi * np.arange(101) / 100
  expected = 2e-3 * (0.02 + 0.98 * (1 + np.cos(angle)) / 2)
  np.testing.assert_allclose(rates[10:], expected, rtol=1e-4)


def test_constant_schedule_and_no_warmup(config):
  config.schedule = 'constant'
  config.warmup_steps = 0
  rate = optimizer.schedule(config, 100)
  np.testing.assert_allclose([rate(0), rate(1), rate(99)], 2e-3, rtol=1e-6)


def test_trapezoid(config):
  config.schedule = 'trapezoid'
  rates = np.array([optimizer.schedule(config, 200)(step) for step in range(201)])
  np.testing.assert_allclose(rates[:10], 2e-3 * np.arange(1, 11) / 10, rtol=1e-5)
  np.testing.assert_allclose(rates[10:151], 2e-3, rtol=1e-5)
  expected = 2e-3 * (1 - 0.98 * np.arange(51) / 50)
  np.testing.assert_allclose(rates[150:], expected, rtol=1e-4)


def test_trapezoid_of_a_longer_run_begins_the_same(config):
  config.schedule = 'trapezoid'
  short, long = optimizer.schedule(config, 200), optimizer.schedule(config, 400)
  assert all(float(short(step)) == float(long(step)) for step in range(150))


@pytest.mark.parametrize('fraction', [0.0, 1.0])
def test_trapezoid_that_falls_never_or_always(config, fraction):
  config.update({'schedule': 'trapezoid', 'fall_fraction': fraction})
  rate = optimizer.schedule(config, 100)
  expected = [2e-3, 2e-3 * (1 - fraction * 0.98 * 0.5), 2e-3 * (1 - fraction * 0.98)]
  assert [float(rate(step)) for step in (9, 55, 100)] == pytest.approx(expected)


def test_run_shorter_than_its_warmup(config):
  assert float(optimizer.schedule(config, 3)(2)) == pytest.approx(2e-3)


def update(config, grads, params):
  transform = optimizer.create(config, lambda step: 0.1)
  return transform.update(grads, transform.init(params), params)[0]


def test_weight_decay_is_on_matrices_only(config):
  params = {'a': {'kernel': jnp.ones((2, 2)), 'bias': jnp.ones(2)}, 'canvas': jnp.ones((3, 3, 1))}
  zeros = jax.tree.map(jnp.zeros_like, params)
  config.arguments.weight_decay = 0.5
  updates = update(config, zeros, params)
  np.testing.assert_allclose(updates['a']['kernel'], -0.1 * 0.5, rtol=1e-6)
  assert not np.any(updates['a']['bias']) and not np.any(updates['canvas'])


def one_update(transform):
  params = {'kernel': jnp.array([[1.0, -2.0], [0.5, 3.0]])}
  state = transform.init(params)
  for _ in range(2):
    grads = jax.tree.map(lambda p: 0.3 * p - 0.1, params)
    updates, state = transform.update(grads, state, params)
    params = optax.apply_updates(params, updates)
  return params['kernel']


@pytest.mark.parametrize(
  'name,arguments,expected',
  [
    ('adamw', {}, optax.adamw(0.1, b1=0.9, b2=0.999, weight_decay=0.0)),
    ('adamw', {'weight_decay': 0.5}, optax.adamw(0.1, b1=0.9, b2=0.999, weight_decay=0.5)),
    ('lion', {}, optax.lion(0.1)),
    ('lion', {'weight_decay': 0.0}, optax.lion(0.1, weight_decay=0.0)),
    ('adam', {}, optax.adam(0.1)),
    ('novograd', {'b1': 0.9}, optax.novograd(0.1)),
    ('sgd', {}, optax.sgd(0.1)),
    ('sgd', {'momentum': 0.9}, optax.sgd(0.1, momentum=0.9)),
    ('sgd', {'momentum': 0.9, 'nesterov': True}, optax.sgd(0.1, momentum=0.9, nesterov=True)),
    ('sign_sgd', {}, optax.sign_sgd(0.1)),
  ],
)
def test_another_optimizer_has_its_own_defaults(config, name, arguments, expected):
  """Those that every config has can be given in one that is locked, as on a command line."""
  config.name = name
  if arguments.keys() <= set(config.arguments):
    config.lock()
  config.arguments.update(arguments)
  optimizer.check(config)
  found = optimizer.create(config, lambda step: 0.1)
  np.testing.assert_array_equal(one_update(found), one_update(expected))


@pytest.mark.parametrize(
  'name,argument,takes',
  [
    ('adam', 'weight_decay', 'b1, b2, eps, '),
    ('sgd', 'b1', 'momentum, nesterov, accumulator_dtype.'),
    ('sign_sgd', 'b2', 'only a learning rate.'),
  ],
)
def test_an_argument_that_the_optimizer_lacks(config, name, argument, takes):
  config.name = name
  config.arguments[argument] = 0.5
  with pytest.raises(UserError, match=f'optax.{name} takes no {argument!r}.* It takes {takes}'):
    optimizer.check(config)


def test_an_error_of_optax_is_told_in_one_line(config, monkeypatch):
  def adam(*_, **__):
    raise ValueError('first\nsecond')

  config.name = 'adam'
  monkeypatch.setattr(optax, 'adam', adam)
  with pytest.raises(UserError, match=r'optimizer\.arguments: first$'):
    optimizer.check(config)


@pytest.mark.parametrize(
  'model,slow',
  [
    (draw_jax.DRAW((6, 6, 1), hidden=3, latent=2), {'read_window', 'write_window'}),
    (DifferentiableRAM((6, 6, 1), hidden=3, read_size=2), {'window'}),
  ],
)
def test_layers_that_place_windows_are_slower(config, model, slow):
  noise = (jax.random.key(0),) if isinstance(model, draw_jax.DRAW) else ()
  params = model.init(jax.random.key(0), jnp.zeros((1, 6, 6, 1)), *noise, glimpses=1)['params']
  grads = jax.tree.map(jnp.ones_like, params)
  plain = update(config, grads, params)
  config.window_rate = 0.25
  slower = update(config, grads, params)
  assert slow < params.keys()
  for name in params:
    expected = jax.tree.map(lambda u, f=0.25 if name in slow else 1: f * u, plain[name])
    jax.tree.map(np.testing.assert_array_equal, slower[name], expected)


def test_clipping(config):
  """Adam forgets the scale of a constant gradient: look at its moments."""
  params = {'kernel': jnp.zeros(4)}
  grads = {'kernel': jnp.full(4, 50.0)}
  for clip, expected in ((10.0, 5.0), (0.0, 50.0), (1000.0, 50.0)):
    config.clip_norm = clip
    transform = optimizer.create(config, lambda step: 0.1)
    _, state = transform.update(grads, transform.init(params), params)
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (4,)]
    np.testing.assert_allclose(moments[0], 0.1 * expected, rtol=1e-5)


def test_state_does_not_depend_on_the_values(config):
  params = {'kernel': jnp.zeros(4)}
  plain = optimizer.create(config, lambda step: 0.1).init(params)
  config.arguments.weight_decay = 0.1
  config.update({'clip_norm': 0.0, 'schedule': 'constant'})
  other = optimizer.create(config, optimizer.schedule(config, 10)).init(params)
  assert jax.tree.structure(plain) == jax.tree.structure(other)


def test_average_forgets_its_start():
  """A plain average with 0.999 would still be at 0.63 of the start after 1,000 steps."""
  ema = {'w': jnp.ones(())}
  for step in range(100):
    ema = optimizer.average(ema, {'w': jnp.zeros(())}, jnp.int32(step), 0.999)
  assert float(ema['w']) < 1e-6
  late = optimizer.average({'w': jnp.ones(())}, {'w': jnp.zeros(())}, jnp.int32(10**6), 0.999)
  assert float(late['w']) == pytest.approx(0.999, abs=1e-6)


def test_no_average():
  new = {'w': jnp.float32(0.3)}
  kept = optimizer.average({'w': jnp.ones(())}, new, jnp.int32(7), 0.0)
  assert kept['w'] == new['w']
