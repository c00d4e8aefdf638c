"""Classifiers in the training loop, in evaluation and in figures."""

import json

import jax
import numpy as np
import pytest
import training_support as support

from draw_jax import config as config_lib
from draw_jax import data, trained
from draw_jax.attention import Window
from draw_jax.data.dataset import Dataset
from draw_jax.data.sources import MemorySource
from draw_jax.data.spec import Spec
from draw_jax.devices import sharding
from draw_jax.errors import UserError
from draw_jax.evaluation import evaluator
from draw_jax.figures import gallery
from draw_jax.tasks import base
from draw_jax.tasks import registry as tasks
from draw_jax.tasks.classification import framed, scores
from draw_jax.training import loop

SHAPE = (10, 14, 3)
SECTIONS = {
  'differentiable_ram': {'glimpses': 2, 'hidden': 8, 'read_size': 3},
  'ram': {'glimpses': 2, 'hidden': 8, 'features': 6, 'read_size': 3, 'scales': 2},
  'convolutional': {'filter_size': 4, 'stride': 3, 'hidden': 8},
}


def labeled(**unused) -> Dataset:
  """80 images of four classes: which quarter is bright."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 4, 80).astype(np.int32)
  images = rng.integers(0, 100, (80, *SHAPE), np.uint8)
  for image, label in zip(images, labels, strict=True):
    row, column = divmod(int(label), 2)
    image[5 * row : 5 * row + 5, 7 * column : 7 * column + 7] += 120
  sources = {
    'train': MemorySource(images[:56], labels[:56]),
    'valid': MemorySource(images[56:], labels[56:]),
  }
  spec = Spec(name='quarters', load=None, binarizations=('none',), num_classes=4)
  return Dataset(spec, sources, 'none')


def tiny_config(name: str, num_steps: int):
  config = support.tiny_config('')
  config.data.update({'name': 'cluttered_mnist', 'path': None})
  config.model = config_lib.model_section(name)
  config.model.update(SECTIONS[name])
  config.train.num_steps = num_steps
  config.optimizer.update({'learning_rate': 1e-2, 'schedule': 'constant', 'ema_decay': 0.5})
  config.eval.update({'every_epochs': 1.0, 'batch_size': 10})
  return config.lock()


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
  """The images in place of a dataset on disk, and a cache: compiling takes most of the time."""
  monkeypatch.setattr(data, 'open_dataset', labeled)
  old = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
  jax.config.update('jax_compilation_cache_dir', str(support.CACHE))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  yield
  jax.config.update('jax_compilation_cache_dir', old[0])
  jax.config.update('jax_persistent_cache_min_compile_time_secs', old[1])


@pytest.mark.parametrize('name', SECTIONS)
def test_from_training_to_figures(name, tmp_path):
  """A run goes on where it ended, and is judged alike everywhere."""
  workdir = tmp_path / 'run'
  loop.train(tiny_config(name, 9), str(workdir))
  loop.train(tiny_config(name, 21), str(workdir))
  loaded = trained.find(str(workdir), None, 'latest')
  assert loaded.step == 21
  if name == 'ram':  # As if it had not ended before, its noise too.
    loop.train(tiny_config(name, 21), str(tmp_path / 'whole'))
    whole = trained.from_workdir(tmp_path / 'whole', 'latest')
    jax.tree.map(np.testing.assert_array_equal, loaded.params, whole.params)

  rows = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
  last = [row for row in rows if row['split'] == 'valid'][-1]
  assert last['step'] == 21 and last['examples'] == 24
  options = base.EvaluationOptions(split='valid', batch_size=7)
  task, dataset, mesh = loaded.task, loaded.dataset, sharding.make_mesh()
  measured = evaluator.Evaluator(task, dataset, options, mesh, (loaded.glimpses,)).measure(
    loaded.params
  )
  names = {'error', 'cross_entropy'} | ({'baseline_error'} if name == 'ram' else set())
  assert measured.metrics == pytest.approx({k: last[k] for k in names})
  error = measured.results[0]['error']
  assert error['examples'] == 24
  assert 100 * error['rate'] == pytest.approx(last['error'], abs=1e-4)

  figures = gallery.FigureOptions(tmp_path / 'out', num=2, npz=True)
  if name == 'convolutional':
    with pytest.raises(UserError, match='takes no glimpses'):
      gallery.make_glimpses(loaded, figures)
    with pytest.raises(UserError, match='leave out --glimpses'):
      evaluator.Evaluator(task, dataset, options, mesh, (1, 4))
    return
  gallery.make_glimpses(loaded, figures)
  with np.load(tmp_path / 'out' / 'glimpses.npz') as arrays:
    assert arrays['images'].shape == (2, *SHAPE)
    assert arrays['read_stride'].shape == (2, 2)
    assert arrays['glimpses'].shape == (2, 2, 3, 3 if name == 'differentiable_ram' else 6, 3)
    _, trace = loaded.model.apply({'params': loaded.params}, arrays['images'], trace=True)
    np.testing.assert_allclose(arrays['read_center_x'], trace.window.center_x, rtol=1e-4)
  assert {path.name for path in (tmp_path / 'out').iterdir()} == {
    'glimpses.png', 'glimpses.pdf', 'glimpses.npz',
  }  # fmt: skip
  for make in (gallery.make_sequences, gallery.make_reconstructions, gallery.make_interpolation):
    with pytest.raises(UserError, match='draws no images'):
      make(loaded, figures)


def test_draw_takes_no_glimpses_to_classify():
  task = tasks.create(config_lib.default().model, SHAPE)
  with pytest.raises(UserError, match='DRAW classifies nothing'):
    task.check_looks()


@pytest.mark.parametrize('name', SECTIONS)
def test_a_task_has_all_that_is_asked_of_it(name):
  config = tiny_config(name, 1)
  task = tasks.create(config.model, SHAPE, 4)
  assert task.model == task.model.clone(num_classes=4, **SECTIONS[name])
  batch = next(labeled().eval_batches('valid', 3))
  glimpses = config.model.glimpses

  def everything():
    params = task.init(jax.random.key(0), np.zeros(SHAPE))
    noise = task.noise(jax.random.key(1), 3, glimpses)
    assert all(a.shape[:2] == (glimpses, 3) for a in jax.tree.leaves(noise))
    trained, evaluated = task.loss(params, batch, noise, 0), task.loss(params, batch, noise)
    right = scores(task.predict(params, batch, noise), batch['label'])
    return trained, evaluated, right, task.images(params, batch, jax.random.key(0), glimpses)

  compiled = jax.jit(everything, compiler_options={'xla_backend_optimization_level': 0})
  (loss, metrics), (_, evaluated), right, images = compiled()
  assert loss.shape == (3,)
  assert evaluated.keys() == metrics.keys()
  assert all(value.shape == (3,) for value in metrics.values())
  for key, value in right.items():
    np.testing.assert_allclose(evaluated[key], value, rtol=1e-5)
  if name != 'convolutional':
    assert images['windows'].shape == (3 * glimpses, 10, 14, 3)
    assert images['glimpses'].shape[:2] == (3 * glimpses, 3)


def test_scores_from_their_definition():
  logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
  found = scores(logits + np.array([[3.0], [-7.0]]), np.array([0, 1]))
  np.testing.assert_array_equal(found['error'], [0, 100])
  np.testing.assert_allclose(found['cross_entropy'], [np.log(2), np.log(5)], rtol=1e-5)


def test_frames_are_where_the_outermost_filters_are():
  """A grid of 3 x 3 with a stride of 2 around row 4, column 3; and one larger than the image."""
  window = Window(*(np.array(a) for a in ([3.0, 3.0], [4.0, 4.0], [1, 1], [2.0, 99.0], [1, 1])))
  one, other = jax.jit(framed, static_argnums=2)(np.full((2, 9, 8, 1), 0.25), window, 3)
  frame = np.zeros((9, 8), bool)
  frame[2:7, 1:6] = True
  frame[3:6, 2:5] = False
  np.testing.assert_array_equal((one != 0.25).any(-1), frame)
  assert (one[frame][:, 1] > one[frame][:, 0]).all()  # green
  edge = np.ones((9, 8), bool)  # where filters outside the image act
  edge[1:-1, 1:-1] = False
  np.testing.assert_array_equal((other != 0.25).any(-1), edge)


@pytest.mark.parametrize('name', SECTIONS)
def test_images_without_labels_are_refused(name):
  with pytest.raises(UserError, match=f"model.name='{name}' takes labels, and .* none"):
    tasks.create(config_lib.model_section(name), SHAPE)
