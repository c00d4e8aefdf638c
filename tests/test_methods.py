"""What a trained model does with arrays, against the evaluator, the network and enumeration."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_trained
from scipy.special import logsumexp

from draw_jax import completion, data, distributions, methods
from draw_jax.data.sources import MemorySource
from draw_jax.data.spec import Spec
from draw_jax.devices import sharding
from draw_jax.errors import UserError
from draw_jax.evaluation import evaluator
from draw_jax.figures import passes
from draw_jax.tasks import base

N, T, SHAPE = 5, test_trained.T, (8, 8, 1)


@pytest.fixture(autouse=True)
def small_pool(monkeypatch):
  monkeypatch.setattr(completion, '_POOL', 64)


@pytest.fixture(scope='module')
def m():
  return test_trained.make_trained(binarization='threshold')


@pytest.fixture(scope='module')
def x():
  return np.random.default_rng(0).integers(0, 2, (N, *SHAPE)).astype(np.float32)


def message(function, *args, **kwargs) -> str:
  with pytest.raises(UserError) as caught:
    function(*args, **kwargs)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def evaluate(m, x, samples):
  """What the evaluator measures of a split of these images, in batches of another size."""
  source = MemorySource((255 * x).astype(np.uint8), None)
  spec = Spec(name='tiny', load=None, binarizations=('threshold',))
  dataset = data.Dataset(spec, {'train': source, 'test': source}, 'threshold')
  importance = (samples,) if samples > 1 else ()
  options = base.EvaluationOptions(importance_samples=importance, batch_size=2, seed=3)
  mesh = sharding.make_mesh(jax.devices()[:1])
  return evaluator.Evaluator(m.task, dataset, options, mesh, (T,)).measure(m.params).results[0]


def test_samples_are_those_of_the_seed(m):
  images = m.sample(3, seed=1)
  assert isinstance(images, np.ndarray) and images.shape == (3, *SHAPE)
  np.testing.assert_array_equal(images, passes.generate(m.model, m.params, 3, 1).images[-1])
  assert np.abs(images - m.sample(3, seed=2)).max() > 1e-3
  assert set(np.unique(m.sample(3, binary=True))) == {0, 1}
  drawing = m.sample(3, seed=1, trace=True)
  np.testing.assert_array_equal(drawing.images[-1], images)
  assert drawing.write.stride.shape == (T, 3) and drawing.read is None


@pytest.mark.parametrize('samples', [1, 6])
def test_bounds_are_those_of_the_evaluator(m, x, samples):
  bounds = m.bound(x, samples=samples, seed=3)
  assert bounds.shape == (N,) and bounds.dtype == np.float64 and bounds.std() > 0
  result = evaluate(m, x, samples)
  expected = result['importance'][0] if samples > 1 else result['bound']
  np.testing.assert_allclose(bounds.mean(), expected['mean'], rtol=1e-6)
  np.testing.assert_allclose(bounds.std(ddof=1) / N**0.5, expected['stderr_images'], rtol=1e-5)


def test_an_images_bound_is_its_own(m, x, monkeypatch):
  """Whatever is beside it, and however the draws are cut."""
  bounds = m.bound(x, samples=5)
  np.testing.assert_allclose(m.bound(jnp.asarray(x[:2]), samples=5), bounds[:2], rtol=1e-5)
  monkeypatch.setattr(type(m.task), 'rows_that_fit', lambda *_: 2)
  np.testing.assert_allclose(m.bound(x, samples=5), bounds, rtol=1e-5)


def test_reconstructions_are_those_of_the_bound(m, x):
  drawing = m.reconstruct(x, seed=3, trace=True)
  np.testing.assert_allclose(m.reconstruct(x, seed=3), drawing.images[-1], rtol=1e-5)
  mean = drawing.images[-1].astype(np.float64)
  cost = -np.log(np.where(x > 0.5, mean, 1 - mean)).sum((1, 2, 3)) + drawing.kl.sum(0)
  np.testing.assert_allclose(cost, m.bound(x, seed=3), rtol=1e-5)
  assert drawing.read.stride.shape == drawing.write.stride.shape == drawing.kl.shape == (T, N)


def test_interpolations_end_at_reconstructions(m, x):
  a, b = x[:2], x[2:4]
  images = m.interpolate(a, b, num=3, seed=1)
  assert images.shape == (2, 3, *SHAPE)
  np.testing.assert_allclose(images[:, 0], m.reconstruct(a, seed=1), rtol=1e-5)
  np.testing.assert_allclose(images[:, 2], m.reconstruct(b, seed=1), rtol=1e-5)


def test_completions_keep_what_is_visible(m, x):
  mask = np.indices(SHAPE[:2])[0] >= 4
  unknown = np.where(mask[..., None], np.nan, x)
  sizes = {'particles': 3, 'rounds': 2}
  images = m.complete(unknown, mask, seed=1, **sizes)
  np.testing.assert_array_equal(images[:, :4], x[:, :4])
  assert ((images[:, 4:] > 0) & (images[:, 4:] < 1)).all()
  # What hidden pixels hold does not matter, nor what images are beside.
  np.testing.assert_array_equal(m.complete(x, mask, seed=1, **sizes), images)
  few = m.complete(x[:2], np.broadcast_to(mask, (2, *mask.shape))[..., None], seed=1, **sizes)
  np.testing.assert_allclose(few, images[:2], rtol=1e-5)
  assert set(np.unique(m.complete(x, mask, binary=True, **sizes))) == {0, 1}
  drawing = m.complete(x, mask, seed=1, trace=True, **sizes)
  np.testing.assert_allclose(drawing.images[-1][:, 4:], images[:, 4:], rtol=1e-5)
  assert drawing.write.stride.shape == (T, N)
  found, other = (
    completion.posterior(m.model, m.params, images, hidden, 1, **sizes).canvas
    for hidden in [np.broadcast_to(mask, x.shape[:3])]
    for images in (x, np.where(hidden[..., None], 1 - x, x))
  )
  np.testing.assert_array_equal(found, other)
  again = m.complete(np.repeat(x[:1], 2, 0), mask, **sizes)
  assert np.abs(again[0] - again[1]).max() > 1e-3


def test_completions_tend_to_the_posterior(m):
  """Against draws from the prior alone, which are enough for few glimpses and pixels to match."""
  # Larger weights, so that latents matter, and a posterior that importance weights can do with.
  params = jax.tree.map(lambda a: 4 * a, m.params)
  params['posterior'] = jax.tree.map(lambda a: a / 2, m.params['posterior'])
  m = dataclasses.replace(m, params=params)
  rng = np.random.default_rng(1)
  visible = np.indices(SHAPE[:2]).sum(0) < 4  # ten pixels
  x = rng.integers(0, 2, (2, *SHAPE)).astype(np.float32)
  hidden = np.broadcast_to(~visible, (2, *visible.shape))
  canvas, _ = m.model.apply({'params': m.params}, 20_000, jax.random.key(5), method='generate')
  each = distributions.bernoulli_log_prob(canvas[None, ..., 0], x[:, None, ..., 0])
  fit = np.where(visible, each, 0).sum((-2, -1), dtype=np.float64)
  exact = logsumexp(fit, 1) - np.log(20_000)
  weights = np.exp(fit - logsumexp(fit, 1, keepdims=True))
  mean = np.einsum('np,phw->nhw', weights, jax.nn.sigmoid(canvas[..., 0]))
  found = completion.posterior(m.model, m.params, x, hidden, 0, particles=4000, rounds=2)
  bound = logsumexp(found.log_weights, 1) - np.log(4000)
  np.testing.assert_allclose(bound, exact, atol=0.05)
  ours = np.asarray(m.model.mean(found.canvas)).mean(1)[..., 0]
  far = np.abs(ours - mean)[hidden]
  unconditional = np.abs(np.asarray(jax.nn.sigmoid(canvas)).mean(0)[..., 0] - mean)[hidden]
  assert far.mean() < 0.01 and unconditional.mean() > 3 * far.mean()


def test_completion_of_color_by_a_mixture(x):
  """Pixels are whole ones: their likelihood is given, and adds up to that of images."""
  from draw_jax import DRAW

  model = DRAW(
    (6, 5, 3), glimpses=2, hidden=4, latent=2, read_size=2, write_size=2,
    output='discretized_logistic', components=2,
  )  # fmt: skip
  key, images = jax.random.key(0), np.random.default_rng(0).random((2, 6, 5, 3), np.float32)
  images = np.round(images * 255) / np.float32(255)
  params = jax.jit(model.init)(key, images, key)['params']
  channels = model.distribution.canvas_channels
  canvas = np.random.default_rng(1).normal(size=(2, 6, 5, channels)).astype(np.float32)
  pixels = model.distribution.pixel_log_probs(canvas, images)
  assert pixels.shape == (2, 6, 5)
  np.testing.assert_allclose(
    pixels.sum((1, 2)), model.distribution.log_prob(canvas, images), rtol=1e-5
  )
  hidden = np.zeros((2, 6, 5), bool)
  hidden[:, :, 2:] = True
  found = completion.posterior(model, params, images, hidden, 0, particles=2, rounds=1)
  assert found.latents.shape == (2, 2, 2, 2) and np.isfinite(found.canvas).all()


def test_nothing_is_compiled_twice(m, x):
  mask = np.ones(SHAPE[:2], bool)
  sizes = {'particles': 2, 'rounds': 1}

  def all_of_them(seed):
    m.sample(N, seed)
    m.reconstruct(x, seed)
    m.bound(x, 2, seed)
    m.interpolate(x, x, 2, seed)
    m.complete(x, mask, seed, **sizes)

  all_of_them(0)
  compiled = []
  jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name))
  all_of_them(1)
  assert not [name for name in compiled if 'backend_compile' in name]
  jax.jit(lambda a: 3 * a + 0.125)(1.0)
  assert [name for name in compiled if 'backend_compile' in name]  # It would have been noticed.


@pytest.mark.parametrize(
  'call,words',
  [
    (lambda m, x: m.sample(0), 'num=0 must be'),
    (lambda m, x: m.sample(2.5), 'num=2.5 must be a whole number'),
    (lambda m, x: m.sample(2, seed=-1), 'seed=-1 must be'),
    (lambda m, x: m.sample(10**12), 'num=1000000000000 takes at least'),
    (lambda m, x: m.reconstruct(x[0]), 'goes in as x[None]'),
    (lambda m, x: m.reconstruct(255 * x), 'divide bytes by 255'),
    (lambda m, x: m.reconstruct(x[:0]), 'x holds no images'),
    (lambda m, x: m.bound(x, samples=0), 'samples=0 must be'),
    (lambda m, x: m.bound(x / 2), 'binarize them'),
    (lambda m, x: m.interpolate(x, x[:2]), 'a holds 5 images and b 2'),
    (lambda m, x: m.interpolate(x, x[0]), 'goes in as b[None]'),
    (lambda m, x: m.complete(x, x[0, :4, :, 0]), 'the mask is 4 x 8: it must be 8 x 8'),
    (lambda m, x: m.complete(x, x[0, ..., 0] / 2), 'other values than True and False'),
    (lambda m, x: m.complete(x, 0 * x[0, ..., 0]), 'hides no pixel'),
    (lambda m, x: m.complete(x[0], x[0, ..., 0]), 'goes in as x[None]'),
    (lambda m, x: m.complete(x, x[0, ..., 0], particles=0), 'particles=0 must be'),
    (lambda m, x: m.classify(x), "a model 'draw' classifies nothing"),
  ],
)
def test_wrong_arguments(m, x, call, words):
  assert words in message(call, m, x)


def test_intensities_have_a_cross_entropy_where_the_model_saw_some(x):
  m = test_trained.make_trained(binarization='none')
  assert np.isfinite(m.bound(x / 2)).all()


def test_an_output_without_pixels_does_not_complete(m, x, monkeypatch):
  whole = distributions.bernoulli(1)._replace(pixel_log_probs=None)
  monkeypatch.setitem(distributions.OUTPUTS, 'bernoulli', lambda *_: whole)
  said = message(
    completion.posterior, m.model, m.params, x, x[..., 0] > 0, 0, particles=1, rounds=1
  )
  assert 'has no pixel_log_probs' in said


def test_a_classifier_classifies(x):
  m = test_trained.make_trained('differentiable_ram')
  scores = m.classify(x)
  assert scores.shape == (N, 10)
  logits, _ = m.model.apply({'params': m.params}, x)
  np.testing.assert_allclose(scores, jax.nn.softmax(logits), rtol=1e-5)
  again, looked = m.classify(x, trace=True)
  np.testing.assert_array_equal(again, scores)
  assert looked.window.stride.shape == (T, N)
  for call in (lambda: m.sample(2), lambda: m.bound(x), lambda: m.complete(x, x[0, ..., 0])):
    assert 'draws no images; it classifies them' in message(call)


def test_a_trained_model_has_them_all():
  own = {name for name in vars(methods.Methods) if name[0] != '_'}
  assert own >= {'sample', 'reconstruct', 'bound', 'interpolate', 'complete', 'classify'}
  assert issubclass(test_trained.trained.TrainedModel, methods.Methods)
  fields = {field.name for field in dataclasses.fields(test_trained.trained.TrainedModel)}
  assert not own & fields


def test_a_model_that_is_told_classes(x):
  m = test_trained.make_trained('class_conditional', binarization='threshold')
  labels = np.arange(N) % 10
  # Of all classes in turns, or of one.
  np.testing.assert_allclose(m.sample(N), m.sample(N, label=labels), rtol=1e-5)
  assert np.abs(m.sample(N, label=7) - m.sample(N)).max() > 1e-3
  bounds = m.bound(x, samples=3, label=labels)
  np.testing.assert_allclose(bounds[1], m.bound(x, samples=3, label=1)[1], rtol=1e-5)
  assert abs(bounds[1] - m.bound(x, samples=3, label=2)[1]) > 1e-3
  ends = m.interpolate(x, x[::-1], num=2, label=np.stack([labels, labels[::-1]]))
  np.testing.assert_allclose(ends[:, 0], m.reconstruct(x, label=labels), rtol=1e-5)
  same = m.interpolate(x, x[::-1], num=2, label=labels)
  np.testing.assert_allclose(same[:, 0], ends[:, 0], rtol=1e-5)
  assert np.abs(same[:, 1] - ends[:, 1]).max() > 1e-3
  for call, words in (
    (lambda: m.bound(x), 'told the class'),
    (lambda: m.bound(x, label=10), 'label=10 must be from 0 to 9'),
    (lambda: m.reconstruct(x, label=np.zeros((N, 10))), 'one class for all images, or one for'),
    (lambda: m.complete(x, np.ones((8, 8))), 'completes no images'),
    (lambda: test_trained.make_trained().bound(x, label=1), 'told of no classes'),
  ):
    assert words in message(call)
