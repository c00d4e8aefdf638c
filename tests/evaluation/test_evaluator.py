import math
import os
import pathlib
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import training_support as support
from scipy.special import logsumexp

import draw_jax
from draw_jax import data, distributions
from draw_jax.data.dataset import Dataset
from draw_jax.data.sources import MemorySource
from draw_jax.data.spec import Spec
from draw_jax.devices import sharding
from draw_jax.distributions import bernoulli_log_prob
from draw_jax.errors import UserError
from draw_jax.evaluation import evaluator
from draw_jax.tasks import base, bounds, classification, generation

SHAPE = (2, 3, 1)
T = 2


@pytest.fixture(autouse=True)
def cache():
  """Most of the time of these tests is compilation."""
  old = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
  jax.config.update('jax_compilation_cache_dir', str(support.CACHE))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  yield
  jax.config.update('jax_compilation_cache_dir', old[0])
  jax.config.update('jax_persistent_cache_min_compile_time_secs', old[1])


def make_dataset(num=13, seed=0, kind=Dataset):
  rng = np.random.default_rng(seed)
  images = 255 * rng.integers(0, 2, size=(num, *SHAPE)).astype(np.uint8)
  source = MemorySource(images, rng.integers(0, 3, size=num).astype(np.int32))
  spec = Spec(name='tiny', load=None, binarizations=('fixed',), num_classes=3)
  return kind(spec, {'train': source, 'test': source}, 'fixed')


def make_draw(latent=1, attention=True, shape=SHAPE, **more):
  """A model whose latents matter and whose posterior is far from exact."""
  sizes = {'glimpses': T, 'hidden': 4, 'read_size': 2, 'write_size': 2}
  model = draw_jax.DRAW(shape, latent=latent, attention=attention, **sizes, **more)
  x, key = jnp.zeros((1, *shape)), jax.random.key(0)
  shapes = jax.eval_shape(model.init, key, x, key)['params']
  rng = np.random.default_rng(0)
  params = jax.tree.map(lambda a: rng.normal(size=a.shape).astype(a.dtype), shapes)
  # Importance weights have a finite variance only where the posterior is not too narrow.
  params['posterior']['kernel'][:, latent:] *= 0.1
  params['posterior']['bias'][latent:] = 0
  return generation.Generation(model), params


def measure(task, params, dataset, glimpses=(T,), **options):
  options = base.EvaluationOptions(**options)
  mesh = sharding.make_mesh()
  return evaluator.Evaluator(task, dataset, options, mesh, glimpses).measure(params)


def with_rows(task, rows):
  """The task on a device with room for so many draws."""

  class Small(type(task)):
    def rows_that_fit(self, options, glimpses):
      return rows

  return Small(task.model)


def with_evaluation(task, kind):
  """The task with another class of evaluation."""

  class Other(type(task)):
    def evaluation(self, options, glimpses, chunk, num_classes):
      return kind(self, options, glimpses, chunk)

  return Other(task.model)


def images(dataset):
  num = dataset.num_examples('test')
  return next(dataset.eval_batches('test', num))['image'].astype(np.float32) / 255


def quadrature(points):
  """Nodes [points**T, T] of a standard normal in T dimensions and their log-weights."""
  nodes, weights = np.polynomial.hermite_e.hermegauss(points)
  weights = weights / weights.sum()
  grid = np.stack(np.meshgrid(*[nodes] * T, indexing='ij'), -1).reshape(-1, T)
  log_weights = sum(np.meshgrid(*[np.log(weights)] * T, indexing='ij')).reshape(-1)
  return grid, log_weights


def exact(task, params, x, points):
  """By numerical integration, for each of N images: -log p(x), Eq. 12, and Var[w] / p(x)^2."""
  model, variables = task.model, {'params': params}
  z, log_weights = quadrature(points)
  latents = jnp.asarray(z.T[..., None], jnp.float32)  # [T, points^2, 1]
  canvas, _ = model.apply(variables, latents, method='decode')
  log_prob = bernoulli_log_prob(canvas[None], x[:, None]).sum((-3, -2, -1))  # [N, points^2]
  nll = -logsumexp(np.asarray(log_prob, np.float64) + log_weights, axis=1)
  infer = jax.jit(lambda image: model.apply(
    variables, jnp.broadcast_to(image, (len(z), *SHAPE)), latents, method='infer'
  ))  # fmt: skip
  bound, variance = [], []
  for image, value in zip(x, nll, strict=True):
    terms = infer(image)
    bound.append(np.exp(log_weights) @ np.asarray(terms.loss, np.float64))
    log_w = -np.asarray(terms.reconstruction + terms.log_ratio.sum(0), np.float64)
    variance.append(np.exp(logsumexp(2 * (log_w + value) + log_weights)) - 1)
  return nll, np.array(bound), np.array(variance)


def test_bounds_against_numerical_integration():
  task, params = make_draw()
  dataset = make_dataset()
  x = images(dataset)
  nll, bound, variance = exact(task, params, x, points=48)
  finer = exact(task, params, x, points=64)
  # Far below the errors of the draws.
  np.testing.assert_allclose(finer[0], nll, atol=1e-3)
  np.testing.assert_allclose(finer[1], bound, atol=1e-3)
  gap = bound.mean() - nll.mean()
  assert gap > 0.3  # Otherwise the test could not tell the bounds apart.

  result = measure(task, params, dataset, importance_samples=(1, 10, 100, 1000), repeats=4)
  (row,) = result.results
  assert result.draws == 4000
  # The plain bound is above the likelihood by the KL gap.
  assert row['bound']['stderr_draws'] < gap / 20
  assert abs(row['bound']['mean'] - bound.mean()) < 4 * row['bound']['stderr_draws']
  parts = row['reconstruction']['mean'] + row['kl']['mean']
  assert parts == pytest.approx(row['bound']['mean'], rel=1e-12)
  # With one sample the importance-weighted bound is the plain one, with the KL drawn.
  one, *_, last = row['importance']
  assert abs(one['mean'] - bound.mean()) < 4 * one['stderr_draws']
  means = [each['mean'] for each in row['importance']]
  assert means == sorted(means, reverse=True)
  # With K samples it is above by Var[w] / (2 K p^2) to first order, and converges.
  bias = variance.mean() / (2 * last['samples'])
  assert bias < gap / 20
  assert abs(last['mean'] - nll.mean() - bias) < 4 * last['stderr_draws'] + bias / 2


def numbers(measured):
  """All figures of a measurement in one flat list."""
  return [float(leaf) for leaf in jax.tree.leaves(measured.results)]


@pytest.fixture(scope='module')
def reference():
  task, params = make_draw(latent=3, attention=False)
  options = {'importance_samples': (10, 64), 'latents': True, 'seed': 5}
  return task, params, options, measure(task, params, make_dataset(), batch_size=13, **options)


def test_each_draw_is_that_of_its_example_and_number(reference):
  """The figures from their definition: all draws of all examples at once."""
  task, params, options, measured = reference
  x = images(make_dataset())
  key = jax.random.key(options['seed'])
  noise = np.stack([
    [
      jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, i), j), (T, 3))
      for j in range(64)
    ]
    for i in range(13)
  ])  # fmt: skip
  assert len(np.unique(noise.reshape(-1, 3), axis=0)) == 13 * 64 * T
  rows = jnp.asarray(np.moveaxis(noise.reshape(-1, T, 3), 0, 1))
  terms = task.model.apply({'params': params}, jnp.repeat(x, 64, 0), rows, method='infer')
  log_w = -np.asarray(terms.reconstruction + terms.log_ratio.sum(0)).reshape(13, 64)
  (row,) = measured.results
  assert row['bound']['mean'] == pytest.approx(float(terms.loss.mean()), rel=1e-6)
  unchunked = math.log(64) - logsumexp(log_w.astype(np.float64), 1).mean()
  assert row['importance'][-1]['mean'] == pytest.approx(unchunked, rel=1e-6)
  kl_latents = np.asarray(terms.kl_latents).mean(1)
  np.testing.assert_allclose(row['kl_latents'], kl_latents, rtol=1e-5)
  np.testing.assert_allclose(row['kl_glimpses'], kl_latents.sum(-1), rtol=1e-5)


@pytest.mark.parametrize(
  ('batch_size', 'rows'), [(1, 1000), (4, 30), (5, 1), (20, 1000), (None, 30)]
)
def test_neither_batches_nor_chunks_change_a_figure(reference, batch_size, rows):
  task, params, options, expected = reference
  measured = measure(
    with_rows(task, rows), params, make_dataset(), batch_size=batch_size, **options
  )
  assert measured.examples == 13
  np.testing.assert_allclose(numbers(measured), numbers(expected), rtol=1e-6, atol=1e-7)


def test_padding_takes_no_part(reference):
  task, params, options, expected = reference

  class Dirty(Dataset):
    """Its padding is not the last example again, but something else."""

    def eval_batches(self, *args, **kwargs):
      for batch in super().eval_batches(*args, **kwargs):
        batch['image'][~batch['mask']] = 127
        yield batch

  measured = measure(task, params, make_dataset(kind=Dirty), batch_size=8, **options)
  np.testing.assert_allclose(numbers(measured), numbers(expected), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize('forget', ['a batch', 'an example'])
def test_an_example_left_out_is_noticed(reference, forget):
  task, params, options, _ = reference

  class Forgetful(Dataset):
    def eval_batches(self, *args, **kwargs):
      batches = list(super().eval_batches(*args, **kwargs))
      batches[0]['mask'][2] = forget == 'a batch'
      yield from batches[1:] if forget == 'a batch' else batches

  with pytest.raises(RuntimeError, match='not 64 draws for each of 13'):
    measure(task, params, make_dataset(kind=Forgetful), batch_size=4, **options)


def test_a_pass_with_more_steps_holds_those_with_fewer(reference):
  task, params, options, _ = reference
  together = measure(task, params, make_dataset(), glimpses=(1, 5, 2), **options)
  for glimpses, row in zip((1, 5, 2), together.results, strict=True):
    alone = measure(task, params, make_dataset(), glimpses=(glimpses,), **options)
    assert row['glimpses'] == glimpses == len(row['kl_glimpses']) == len(row['kl_latents'])
    np.testing.assert_allclose(jax.tree.leaves(row), numbers(alone), rtol=2e-6, atol=1e-7)
  assert len({row['bound']['mean'] for row in together.results}) == 3


def test_another_seed_gives_other_draws_within_the_standard_error(reference):
  task, params, options, expected = reference
  other = measure(task, params, make_dataset(), **{**options, 'seed': 6}).results[0]['bound']
  first = expected.results[0]['bound']
  assert 0 < abs(other['mean'] - first['mean']) < 4 * math.sqrt(2) * first['stderr_draws']


class Interrupted(generation.BoundEvaluation):
  """Ctrl-C after so many chunks."""

  chunks = 0

  def add(self, *args):
    if not self.chunks:
      raise KeyboardInterrupt
    self.chunks -= 1
    super().add(*args)


@pytest.mark.parametrize(('chunks', 'examples', 'draws'), [(2, 8, 16), (6, 13, 16)])
def test_what_there_is_when_stopped(reference, chunks, examples, draws):
  """Four batches of up to four examples, four chunks of 16 draws for each."""
  task, params, options, _ = reference
  stopped = with_evaluation(task, type('Stopped', (Interrupted,), {'chunks': chunks}))
  measured = measure(with_rows(stopped, 64), params, make_dataset(), batch_size=4, **options)
  assert measured.partial
  assert (measured.examples, measured.draws) == (examples, draws)
  (row,) = measured.results
  assert [one['samples'] for one in row['importance']] == [10]  # No group of 64 is whole yet.
  if chunks < 6:  # All have the same draws: the figures are those of a smaller evaluation.
    smaller = make_dataset()
    smaller._sources['test'] = smaller._sources['test'].take(np.arange(examples))
    options = {**options, 'importance_samples': (10, 16)}
    expected = measure(task, params, smaller, **options).results[0]
    for name in ('bound', 'reconstruction', 'kl', 'kl_glimpses', 'kl_latents'):
      np.testing.assert_allclose(
        jax.tree.leaves(row[name]), jax.tree.leaves(expected[name]), rtol=1e-6, atol=1e-7
      )


def make_intensities(shape=SHAPE):
  """Images of all intensities, black and white among them."""
  images = np.random.default_rng(3).integers(0, 256, size=(7, *shape)).astype(np.uint8)
  images[0], images[1] = 0, 255
  spec = Spec(name='tiny', load=None, binarizations=('none',))
  sources = dict.fromkeys(('train', 'test'), MemorySource(images))
  return Dataset(spec, sources, 'none'), images


def test_the_entropy_of_intensities(reference):
  task, params, *_ = reference
  dataset, images = make_intensities()
  row, other = measure(task, params, dataset, glimpses=(1, T), batch_size=4).results
  p = images.reshape(7, -1) / 255
  entropies = [sum(float(scipy.stats.bernoulli(v).entropy()) for v in image) for image in p]
  floor = row['entropy_floor']
  assert floor == other['entropy_floor']
  assert floor['mean'] == pytest.approx(np.mean(entropies), rel=1e-6)
  assert floor['stderr_images'] == pytest.approx(np.std(entropies, ddof=1) / 7**0.5, rel=1e-6)
  assert floor['stderr_draws'] is None
  assert row['reconstruction']['mean'] > floor['mean']
  assert 'entropy_floor' not in measure(task, params, make_dataset()).results[0]


def no_latents(model, params):
  """Parameters with which nothing is drawn over the first canvas, at no cost."""
  zeros = {name: jax.tree.map(np.zeros_like, params[name]) for name in ('posterior', 'write')}
  return {**params, **zeros}


def test_a_uniform_output_has_eight_bits(monkeypatch):
  def uniform(channels, components):
    output = distributions.bernoulli(channels)
    bits = lambda canvas, x: -8 * math.log(2) * jnp.ones(x.shape).sum((-3, -2, -1))  # noqa: E731
    return output._replace(log_prob=bits, values=256)

  monkeypatch.setitem(distributions.OUTPUTS, 'uniform', uniform)
  task, params = make_draw(shape=(4, 6, 3), output='uniform')
  dataset, _ = make_intensities((4, 6, 3))
  measured = measure(task, no_latents(task.model, params), dataset, importance_samples=(3,))
  for numbers in (measured.results[0]['bound'], *measured.results[0]['importance']):
    assert numbers['bits_per_dim'] == pytest.approx(8, rel=1e-7)
  assert 'entropy_floor' not in measured.results[0]


@pytest.mark.parametrize(('name', 'low', 'high'), [('mnist_5k', 1.5, 4.5), ('cifar10', 7.9, 8.3)])
def test_bits_of_real_images_around_their_mean(name, low, high):
  """The first canvas, with the mean image and a wide scale, against SciPy's logistic CDF."""
  folder = os.environ.get('DRAW_JAX_TEST_DATA_DIR') or os.environ.get('TFDS_DATA_DIR', '')
  if name == 'cifar10' and not (pathlib.Path(folder) / 'draw_cifar10').is_dir():
    pytest.skip('needs cifar10, prepared in the folder that TFDS_DATA_DIR names')
  dataset = data.open_dataset(name, data_dir=folder or None, binarization='none')
  dataset._sources['test'] = dataset._sources['test'].take(np.arange(200))
  task, params = make_draw(shape=dataset.image_shape, output='discretized_logistic')
  params = task.model.start_canvas_at(no_latents(task.model, params), dataset.mean_image())
  (row,) = measure(task, params, dataset).results
  channels = dataset.image_shape[-1]
  center, log_scale = np.split(np.asarray(params['canvas'], np.float64), [channels], -1)
  assert (log_scale[..., :channels] == -1).all()
  values = next(dataset.eval_batches('test', 200))['image'].astype(np.float64)
  ends = (2 * np.arange(257) - 256) / 255
  ends[0], ends[-1] = -np.inf, np.inf
  around = scipy.stats.logistic(center, np.exp(-1.0))
  values = values.astype(int)
  probabilities = around.cdf(ends[values + 1]) - around.cdf(ends[values])
  bits = -np.log2(probabilities).mean()
  assert row['bound']['bits_per_dim'] == pytest.approx(bits, rel=1e-5)
  assert low < bits < high


class Deleted:
  def __del__(self):
    signal.raise_signal(signal.SIGINT)


class LosesIt(generation.BoundEvaluation):
  """Ctrl-C in a destructor, where Python reports the exception and goes on."""

  def add(self, *args):
    Deleted()
    super().add(*args)


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_an_interrupt_in_a_destructor_is_not_lost(reference):
  task, params, options, _ = reference
  measured = measure(
    with_evaluation(task, LosesIt), params, make_dataset(), batch_size=4, **options
  )
  assert measured.partial
  assert measured.examples == 4
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_stopped_before_any_figure(reference):
  task, params, options, _ = reference
  task = with_evaluation(task, Interrupted)
  with pytest.raises(KeyboardInterrupt):
    measure(task, params, make_dataset(), **options)


class Guess(classification.GlimpseClassification):
  """A classifier that guesses from an image's first pixel, time and noise."""

  def noise(self, key, num, glimpses):
    return jax.random.uniform(key, (glimpses, num))

  def predict(self, params, batch, noise):
    lit = batch['image'][:, 0, 0, 0] > 0
    guess = jnp.where(lit, (3 * noise[-1]).astype(int), len(noise) % 3)
    return jax.nn.one_hot(guess, 3)


def test_classifiers():
  dataset = make_dataset(num=31)
  measured = measure(Guess(None), {}, dataset, glimpses=(2, 4), batch_size=8)
  assert measured.examples == 31
  batch = next(dataset.eval_batches('test', 31))
  two, four = measured.results
  dark = batch['image'][:, 0, 0, 0] == 0
  confusion = np.array(two['confusion'])
  np.testing.assert_array_equal(confusion.sum(1), np.bincount(batch['label'], minlength=3))
  assert np.all(confusion[:, 2] >= np.bincount(batch['label'][dark], minlength=3))
  assert two['glimpses'] == 2
  assert four['glimpses'] == 4
  again = measure(Guess(None), {}, dataset, glimpses=(2, 4), batch_size=5)
  assert again.results == measured.results
  with pytest.raises(UserError, match='classifier has no bounds'):
    measure(Guess(None), {}, dataset, importance_samples=(10,))
  with pytest.raises(UserError, match='classifier has no latents'):
    measure(Guess(None), {}, dataset, latents=True)


def test_a_bound_that_is_not_finite():
  task, params = make_draw()
  params = {**params, 'canvas': params['canvas'] * np.nan}
  with pytest.raises(UserError, match='bound of 13 images is not a finite number'):
    measure(task, params, make_dataset())


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'repeats': 0}, '--repeats=0'),
    ({'batch_size': -4}, '--batch_size=-4'),
    ({'memory': 0}, '--memory=0'),
    ({'seed': -1}, '--seed=-1'),
  ],
)
def test_options_out_of_range(options, message):
  with pytest.raises(UserError, match=message):
    base.EvaluationOptions(**options)


def test_a_split_that_is_not_there():
  with pytest.raises(UserError, match="no split 'extra': it has train, test"):
    measure(*make_draw(), make_dataset(), split='extra')


@pytest.mark.parametrize(
  ('draws', 'rows', 'devices', 'expected'),
  [
    (1, 500, 1, (100, 1)),
    (100, 500, 1, (100, 5)),
    (100, 800, 1, (100, 8)),
    (5000, 10, 1, (10, 1)),
    (100, 500, 8, (104, 34)),  # 13 images on each; three chunks of 34 rather than 38, 38 and 24
    (1, 3, 4, (12, 1)),
  ],
)
def test_plan(draws, rows, devices, expected):
  options = base.EvaluationOptions(repeats=draws)
  assert evaluator.plan(options, 10_000, rows, devices) == expected


def test_a_batch_that_does_not_divide():
  with pytest.raises(UserError, match='--batch_size=10 is no multiple of 4 devices'):
    evaluator.plan(base.EvaluationOptions(batch_size=10), 100, 50, 4)


def test_default_importance_bound_is_none():
  measured = measure(*make_draw(), make_dataset(), importance_samples=bounds.ladder(1))
  assert measured.results[0]['importance'] == []
  assert measured.results[0]['bound']['stderr_draws'] is None
