"""What users read is whole, and what it tells them to write works."""

import ast
import configparser
import inspect
import pathlib
import re
import types

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats
import yaml

import draw_jax
from draw_jax import config as config_lib
from draw_jax import data, distributions, sweeps
from draw_jax.data import registry
from draw_jax.errors import UserError
from draw_jax.figures import passes
from draw_jax.tasks import registry as models
from draw_jax.training import optimizer, setup

ROOT = pathlib.Path(__file__).parents[1]


def setup_cfg() -> configparser.ConfigParser:
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg')
  return config


def exported():
  """What users import: public names, and those of the modules among them."""
  for package in (draw_jax, data):
    for name in package.__all__:
      value = getattr(package, name)
      yield f'{package.__name__}.{name}', value
      if isinstance(value, types.ModuleType):
        for inner, function in inspect.getmembers(value, inspect.isfunction):
          if not inner.startswith('_') and function.__module__ == value.__name__:
            yield f'{value.__name__}.{inner}', function


EXPORTED = dict(exported())


@pytest.mark.parametrize('name', [n for n, v in EXPORTED.items() if inspect.isclass(v)])
def test_every_field_is_explained(name):
  """In the docstring's Attributes, or by a comment beside it; not by a generated docstring."""
  value = EXPORTED[name]
  source = inspect.getsource(value)
  (node,) = ast.parse(source).body
  assert ast.get_docstring(node)
  for field in node.body:
    if isinstance(field, ast.AnnAssign) and not field.target.id.startswith('_'):
      word, lines = field.target.id, source.splitlines()
      above, line = lines[field.lineno - 2 : field.lineno]
      commented = '  # ' in line or above.startswith('  # ')
      assert commented or re.search(rf'^ +{word}: \S', value.__doc__, re.M), word


@pytest.mark.parametrize('name', [n for n, v in EXPORTED.items() if inspect.isfunction(v)])
def test_arguments_that_are_listed_are_all_listed(name):
  function = EXPORTED[name]
  assert function.__doc__
  section = re.search(r'\n *Args:\n(.*?)(\n *\n|\Z)', function.__doc__, re.S)
  if section:
    listed = re.findall(r'^ *\*{0,2}(\w+): ', section[1], re.M)
    assert set(inspect.signature(function).parameters) <= set(listed)


def test_the_reference_is_of_something():
  kinds = [sum(map(kind, EXPORTED.values())) for kind in (inspect.isclass, inspect.isfunction)]
  assert min(kinds) > 2
  assert 'draw_jax.attention.read' in EXPORTED


def example(containing: str) -> dict:
  """Runs the Python example of CONTRIBUTING.md that has these words; the names it leaves."""
  text = (ROOT / 'CONTRIBUTING.md').read_text()
  blocks = re.findall(r'^```python\n(.*?)^```$', text, re.M | re.S)
  (block,) = [block for block in blocks if containing in block]
  names = {'__name__': 'contributing'}
  exec(compile(block, 'CONTRIBUTING.md', 'exec'), names)
  return names


def test_contributing_a_model(monkeypatch):
  """DRAW with another prior: config, checks, training, evaluation and images."""
  monkeypatch.setattr(models, 'MODELS', dict(models.MODELS))
  example('class MovingPrior')
  config = config_lib.default()
  config.model = config_lib.model_section('draw_moving_prior', glimpses=2, hidden=4, latent=2)
  config_lib.validate(config)
  config.train.batch_size, config.train.kl_warmup_steps, config.model.gain = 2, 0, 1.0
  prepared = setup.make(config, (6, 6, 1))
  state = prepared.init()(np.full((6, 6, 1), 0.3, np.float32))
  assert state.params['prior']['kernel'].shape == (4, 4)
  before = np.asarray(state.params['prior']['kernel'])
  batch = {'image': np.full((2, 6, 6, 1), 255, np.uint8)}
  state, numbers = prepared.train_step()(state, batch)
  assert np.isfinite(float(numbers['bound']))
  assert np.abs(before - state.params['prior']['kernel']).max() > 0
  drawn = passes.generate(prepared.task.model, state.params, 3, seed=0)
  assert drawn.images.shape == (2, 3, 6, 6, 1)
  config.model.gain = -1.0
  with pytest.raises(UserError, match=r'model\.gain=-1\.0 must be a number at least 0'):
    config_lib.validate(config)


def test_contributing_an_optimizer():
  config = example("'lion'")['get_config']()
  config_lib.validate(config)
  transform = optimizer.create(config.optimizer, lambda step: 0.1)
  params = {'kernel': np.ones((2, 2), np.float32)}
  updates, _ = transform.update({'kernel': params['kernel'] * 3}, transform.init(params), params)
  np.testing.assert_allclose(updates['kernel'], -0.1, rtol=1e-6)


def test_contributing_a_dataset(monkeypatch):
  spec = example('SPEC')['SPEC']
  monkeypatch.setitem(registry._SPECS, spec.name, spec)
  dataset = data.open_dataset('checkers', binarization='none')
  assert (dataset.image_shape, dataset.num_classes) == ((8, 8, 1), 4)
  batch = next(dataset.train_batches(20, seed=0))
  for image, size in zip(batch['image'][..., 0], batch['label'] + 1, strict=True):
    assert image[0, 0] == image[size - 1, 0] == image[size, size] == 0
    assert image[0, size] == image[size, 0] == 255
  # Its option is a field of every config, and a flag.
  few = data.open_dataset('checkers', largest=2)
  assert set(next(few.train_batches(50, seed=0))['label']) == {0, 1}
  config = config_lib.default()
  config.data.largest = 9
  with pytest.raises(UserError, match=r'data\.largest=9 must be a number at least 1 and at most 4'):
    config_lib.validate(config)
  assert registry.takers('largest') == ['checkers']


def test_contributing_an_experiment():
  names = example('get_sweep')
  config = names['get_config']('no_attention')
  config_lib.validate(config)
  assert not config.model.attention
  assert sweeps.names(names['get_sweep']())[1] == 'learning_rate=0.001,hidden=128'
  config_names = config_lib.field_names(config)
  assert all(field in config_names for run in names['get_sweep']() for field in run)


def test_contributing_an_output_distribution(monkeypatch):
  monkeypatch.setitem(distributions.OUTPUTS, 'gaussian', None)  # so that it is taken out again
  example("OUTPUTS['gaussian']")
  output = distributions.OUTPUTS['gaussian'](2, 1)
  rng = np.random.default_rng(0)
  x, canvas = rng.random((3, 6, 6, 2)), rng.normal(size=(3, 6, 6, 4))
  expected = scipy.stats.norm.logpdf(
    x, scipy.special.expit(canvas[..., :2]), np.exp(canvas[..., 2:])
  )
  np.testing.assert_allclose(output.log_prob(canvas, x), expected.sum((1, 2, 3)), rtol=1e-4)
  np.testing.assert_allclose(output.mean(output.from_mean(x)), x.clip(0.01, 0.99), atol=1e-5)
  assert not distributions.is_mixture('gaussian')
  model = draw_jax.DRAW(image_shape=(6, 6, 2), glimpses=2, hidden=4, latent=2, output='gaussian')
  key = jax.random.key(0)

  @jax.jit
  def loss(x):
    params = model.init(key, x, key)['params']
    terms = model.apply({'params': params}, x, key)
    return terms.loss, model.apply({'params': params}, terms.canvas, key, method='sample')

  bound, drawn = loss(x.astype(np.float32))
  assert np.isfinite(bound).all() and drawn.shape == x.shape


def test_citation():
  citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
  assert {'cff-version', 'message', 'title', 'authors'} <= citation.keys()
  assert citation['license'] == setup_cfg()['metadata']['license']
  (paper,) = citation['references']
  assert [author['family-names'] for author in paper['authors']] == [
    'Gregor', 'Danihelka', 'Graves', 'Rezende', 'Wierstra',
  ]  # fmt: skip


def test_the_newest_changes_are_those_of_this_version():
  versions = re.findall(r'^## (\S+?),? ', (ROOT / 'CHANGELOG.md').read_text(), re.M)
  assert versions[0] == setup_cfg()['metadata']['version']
