"""The notebooks, from the first cell to the last, with small numbers, and as they ship.

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


@pytest.fixture
def script(monkeypatch):
  """The module launch/notebooks.py."""
  monkeypatch.syspath_prepend(PATHS['shipped_model'].parents[2] / 'launch')
  return importlib.import_module('notebooks')


def kinds(cell: dict) -> list[str]:
  """What a cell's outputs are, as `shown_by` calls it."""
  found = []
  for output in cell['outputs']:
    data = output.get('data', {})
    if output['output_type'] == 'display_data':
      found.append('figure')
    elif output['output_type'] == 'execute_result':
      found.append('png' if 'image/png' in data else 'html' if 'text/html' in data else 'text')
  return found


@pytest.mark.parametrize('name', PATHS)
def test_ships_with_what_it_shows(name, script):
  content = json.loads(PATHS[name].read_text('utf-8'))
  assert (content['nbformat'], content['nbformat_minor']) == (4, 5)
  assert len({cell['id'] for cell in content['cells']}) == len(content['cells'])
  cells = code_cells(name)
  message = f'its code was changed since it was run: bash launch/notebooks.sh {name}'
  assert content['metadata']['outputs_of'] == script.digest(cells), message
  assert [cell['execution_count'] for cell in cells] == list(range(1, len(cells) + 1))
  shown = [kind for cell in cells for kind in kinds(cell)]
  assert shown.count('png') >= 3 and 'html' in shown and 'figure' in shown
  assert PATHS[name].stat().st_size < 400_000


@pytest.mark.parametrize('name', PATHS)
def test_outputs_tell_nothing_of_the_machine(name):
  for cell in code_cells(name):
    for output in cell['outputs']:
      assert output['output_type'] != 'error' and output.get('name') != 'stderr'
      text = json.dumps(output)
      text = re.sub(r'data:image/\w+;base64,[\w+/=]+|"image/png": "[^"]*"', '', text)
      assert not re.search(r'0x[0-9a-f]{6}', text)
      # A path from the root, of any system; not the end of a tag of HTML.
      assert not re.search(r'(?<![\w<.*/])/(?:[\w.-]+/)+[\w.-]+|[A-Z]:\\\\\w', text), cell['id']
      assert str(pathlib.Path.home()) not in text


@pytest.mark.parametrize('name', PATHS)
def test_set_up_is_made_of_the_address_in_setup_cfg(name, script, tmp_path, monkeypatch):
  cells = json.loads(PATHS[name].read_text('utf-8'))['cells']
  found = [
    ''.join(cell['source']) for cell in cells if script.TAG in cell['metadata'].get('tags', ())
  ]
  assert found == list(script.set_up(name, script.address()))
  # Published, the link to Colab and what is installed are of that address.
  monkeypatch.setattr(script, 'ROOT', tmp_path)
  assert script.address() == ''
  (tmp_path / 'setup.cfg').write_text('[metadata]\nurl = https://github.com/who/what.git\n')
  words, code = script.set_up(name, script.address())
  notebook = f'who/what/blob/main/experiments/notebooks/{name}.ipynb'
  assert f'(https://colab.research.google.com/github/{notebook})' in words
  assert '"draw_jax[digits] @ git+https://github.com/who/what"' in code
  assert 'colab.research' not in script.set_up(name, 'https://host/what')[0]


def test_what_is_kept_of_a_run(script, tmp_path):
  """Pictures in few colors, no addresses in memory; what fails changes nothing."""
  for needed in ('nbclient', 'ipykernel'):
    reason = f"{needed} is not installed: pip install -e '.[notebooks]'"
    nbformat = pytest.importorskip(needed, reason=reason) and pytest.importorskip('nbformat')
  made = nbformat.v4.new_notebook()
  tagged = {'tags': [script.TAG]}
  made.cells = [
    nbformat.v4.new_markdown_cell('', metadata=tagged),
    nbformat.v4.new_code_cell('', metadata=tagged),
    nbformat.v4.new_code_cell('print(1)\nobject()'),
    nbformat.v4.new_code_cell('from PIL import Image\nImage.linear_gradient("L")'),
  ]
  path = tmp_path / 'made.ipynb'
  nbformat.write(made, path)
  script.refresh(path, '')
  kept = nbformat.read(path, as_version=4)
  assert ''.join(kept.cells[1].source) == script.set_up('made', '')[1]
  printed, value = kept.cells[2].outputs
  assert (printed.text, value.data['text/plain']) == ('1\n', '<object>')
  assert kept.cells[3].outputs[0].data.keys() == {'image/png', 'text/plain'}
  assert kept.metadata.outputs_of == script.digest(kept.cells)
  kept.cells[3].source = '1 / 0'
  nbformat.write(kept, path)
  before = path.read_bytes()
  with pytest.raises(Exception, match='ZeroDivisionError'):
    script.refresh(path, '')
  assert path.read_bytes() == before


@pytest.mark.parametrize('name', PATHS)
def test_installs_on_colab_where_the_package_is_missing(name, monkeypatch):
  code, commands = source(code_cells(name)[0]), []
  names = {'magic': commands.append}
  monkeypatch.setitem(sys.modules, 'google.colab', types.ModuleType('google.colab'))
  exec(code, names)
  assert not commands  # It is there.
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  exec(code, names)
  assert len(commands) == 1
  assert re.fullmatch(
    r'pip install --quiet "draw_jax\[digits\]( @ git\+https://\S+)?"', commands[0]
  )


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
  assert names.m.provenance['step'] == 7
  assert set(np.unique(names.samples)) == {0, 1}
  # Completions differ from each other, and only where pixels were hidden.
  completed = np.stack(names.completed)
  np.testing.assert_array_equal(completed[:, :, :14], np.stack([names.x[:, :14]] * 3))
  assert (completed[0, :, 14:] != completed[1, :, 14:]).any()
  # The same bounds, by the definition, from draws of its own.
  keys = jax.random.split(jax.random.key(1), 200)
  terms = jax.vmap(lambda key: names.m.model.apply({'params': names.m.params}, names.x, key))(keys)
  weights = -terms.reconstruction - terms.log_ratio.sum(1)
  expected = np.log(20) - scipy.special.logsumexp(weights.reshape(10, 20, 8), axis=1)
  assert abs(names.cost.mean() - expected.mean()) < 0.5
  loss = terms.reconstruction + terms.kl.sum(1)
  # 10 draws of each of 8 images; 4 standard deviations of their mean.
  assert abs(names.one.mean() - loss.mean()) < 4 * loss.std(0).mean() / 80**0.5
  assert (shown.count('png'), shown.count('html'), shown.count('figure')) == (6, 2, 1)


def test_attention_in_your_model(run):
  names, shown = run('attention_in_your_model', NUM_GLIMPSES=150, SIDE=40)
  assert names.losses[-20:].mean() < names.losses[:20].mean() - 0.3
  assert names.losses[-20:].mean() < names.still_losses[-20:].mean()
  # The window follows the digit, of which it was not told where it is.
  for axis in ('center_x', 'center_y'):
    found, place = getattr(names.found, axis), getattr(names.places, axis)
    assert np.corrcoef(found, place)[0, 1] > 0.5
  assert (shown.count('png'), shown.count('html'), shown.count('figure')) == (3, 1, 1)
