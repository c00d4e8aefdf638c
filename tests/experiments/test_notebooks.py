"""The notebooks, from the first cell to the last, with small numbers.

Every cell runs as plain Python in one module, so that no kernel is needed. What a notebook would
show is what the last line of a cell gives, and the figures of pyplot.
"""

import ast
import functools
import importlib.util
import json
import pathlib
import re
import sys
import types

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.special

from draw_jax import config as config_lib
from draw_jax import trained
from draw_jax.tasks import registry as tasks

PATHS = {
  path.stem: path
  for path in sorted(pathlib.Path(__file__).parents[2].glob('experiments/notebooks/*.ipynb'))
}


def code_cells(name: str) -> list[dict]:
  cells = json.loads(PATHS[name].read_text('utf-8'))['cells']
  return [cell for cell in cells if cell['cell_type'] == 'code']


def source(cell: dict) -> str:
  """A cell's code as plain Python: a command of IPython becomes a call of `magic`."""

  def call(match) -> str:
    indent, command = match.groups()
    return f'{indent}magic({command!r}.format(**globals()))'

  return re.sub(r'^( *)%(.*)$', call, ''.join(cell['source']), flags=re.M)


def run_cell(code: str, names: dict):
  """Runs a cell and returns what its last line gives, or None if that is no expression."""
  tree = ast.parse(code)
  last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
  exec(compile(tree, 'cell', 'exec'), names)
  return last and eval(compile(ast.Expression(last.value), 'cell', 'eval'), names)


def shown_by(value) -> str | None:
  """How a notebook shows a value: 'png', 'html', 'text' or, for None, not at all."""
  if png := getattr(value, '_repr_png_', None):
    assert png().startswith(b'\x89PNG')
    return 'png'
  if html := getattr(value, '_repr_html_', None):
    assert html().startswith(('<img', '<iframe'))
    return 'html'
  return None if value is None else 'text'


@pytest.fixture
def run(tmp_path, monkeypatch):
  """The function (name of a notebook, other settings) -> its names, and what it showed."""
  monkeypatch.chdir(tmp_path)
  plt.switch_backend('Agg')
  monkeypatch.setitem(sys.modules, 'ipywidgets', None)  # Where it is installed too.
  # With small numbers most of the time goes into compiling.
  fast = {'xla_backend_optimization_level': 0}
  monkeypatch.setattr(jax, 'jit', functools.partial(jax.jit, compiler_options=fast))

  def run_all(name: str, **settings):
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)  # Flax looks for the module of a class.
    names, shown = module.__dict__, []
    names['magic'] = pytest.fail
    for cell in code_cells(name):
      shown.append(shown_by(run_cell(source(cell), names)))
      if 'parameters' in cell['metadata'].get('tags', ()):
        assert settings.keys() <= names.keys()
        names.update(settings)
      shown += ['figure'] * len(plt.get_fignums())
      plt.close('all')
    assert not list(tmp_path.iterdir())
    return types.SimpleNamespace(**names), [kind for kind in shown if kind]

  return run_all


@pytest.fixture
def tiny_model(tmp_path_factory):
  """The file of a network that was never trained, for images of 28 x 28."""
  config = config_lib.default()
  config.model.update(glimpses=3, hidden=8, latent=4)
  task = tasks.create(config.model, (28, 28, 1), None)
  params = jax.jit(task.init)(jax.random.key(0), np.full((28, 28, 1), 0.2, np.float32))
  about = {'image_shape': (28, 28, 1), 'num_classes': None, 'binarization': 'fixed'}
  path = tmp_path_factory.mktemp('model') / 'tiny.safetensors'
  trained.save(path, trained.TrainedModel('tiny', config, params, 7, 3, True, None, **about))
  return path


@pytest.mark.parametrize('name', PATHS)
def test_is_committed_without_outputs(name):
  content = json.loads(PATHS[name].read_text('utf-8'))
  assert (content['nbformat'], content['nbformat_minor']) == (4, 5)
  assert len({cell['id'] for cell in content['cells']}) == len(content['cells'])
  for cell in code_cells(name):
    assert cell['outputs'] == []
    assert cell['execution_count'] is None


@pytest.mark.parametrize('name', PATHS)
def test_installs_on_colab_where_the_package_is_missing(name, monkeypatch):
  code, commands = source(code_cells(name)[0]), []
  names = {'magic': commands.append}
  monkeypatch.setitem(sys.modules, 'google.colab', types.ModuleType('google.colab'))
  exec(code, names)
  assert not commands  # It is there.
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match='REPOSITORY'):
    exec(code, names)
  exec(code.replace("REPOSITORY = ''", "REPOSITORY = 'https://host/repository'"), names)
  assert commands == ['pip install --quiet "draw_jax[digits] @ git+https://host/repository"']


def test_draw_from_the_equations(run):
  names, shown = run('draw_from_the_equations', GLIMPSES=4, HIDDEN=32, LATENT=8, EPOCHS=3)
  assert len(names.losses) == 4
  assert names.losses[-1] < names.losses[0] - 5
  # The gradient alone leads a window from an empty corner to the ink.
  assert names.ink(names.way[-1]) > 3 * names.ink(names.way[0])
  assert names.drawing.images.shape == (4, 24, 28, 28, 1)
  assert (shown.count('png'), shown.count('html'), shown.count('figure')) == (7, 4, 2)


def test_shipped_model(run, tiny_model):
  names, shown = run('shipped_model', MODEL=tiny_model, DIGITS=8, SAMPLES=20)
  assert names.loaded.provenance['step'] == 7
  assert set(np.unique(names.samples)) == {0, 1}
  # Both bounds again, by the definition, from the draws of one chunk after the other.
  weights, losses = [], []
  for keys in jax.random.split(jax.random.key(1), (2, 10)):
    terms = names.draw(keys)
    weights.append(-terms.reconstruction - terms.log_ratio.sum(0))
    losses.append(terms.reconstruction + terms.kl.sum(0))
  expected = np.log(20) - scipy.special.logsumexp(np.concatenate(weights, -1), axis=-1)
  np.testing.assert_allclose(names.cost, expected, rtol=1e-5)
  np.testing.assert_allclose(names.kept.bound.mean, np.concatenate(losses, -1).mean(-1), rtol=1e-5)
  assert [one.samples for one in names.kept.importance] == [10, 20]
  assert (shown.count('png'), shown.count('html'), shown.count('figure')) == (5, 2, 1)


def test_attention_in_your_model(run):
  names, shown = run('attention_in_your_model', NUM_GLIMPSES=150, SIDE=40)
  assert names.losses[-20:].mean() < names.losses[:20].mean() - 0.3
  assert names.losses[-20:].mean() < names.still_losses[-20:].mean()
  # The window follows the digit, of which it was not told where it is.
  for axis in ('center_x', 'center_y'):
    found, place = getattr(names.found, axis), getattr(names.places, axis)
    assert np.corrcoef(found, place)[0, 1] > 0.5
  assert (shown.count('png'), shown.count('html'), shown.count('figure')) == (3, 1, 1)
