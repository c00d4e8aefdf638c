"""A network that is told the classes of its images, in training, evaluation and all that draws."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training_support as support
from PIL import Image
from scipy.special import logsumexp

from draw_jax import config as config_lib
from draw_jax import data, trained
from draw_jax.compression import coding
from draw_jax.data.dataset import Dataset
from draw_jax.data.sources import MemorySource
from draw_jax.data.spec import Spec
from draw_jax.devices import sharding
from draw_jax.errors import UserError
from draw_jax.evaluation import evaluator, report
from draw_jax.figures import animation, gallery, grid, live, passes
from draw_jax.tasks import base
from draw_jax.tasks import registry as tasks
from draw_jax.training import loop, start

SHAPE = (6, 8, 1)
NUM, K = 96, 4
SIZES = {'glimpses': 2, 'hidden': 8, 'latent': 2, 'read_size': 2, 'write_size': 3}


def quarters(classes: int | None = K, order=slice(None), **unused) -> Dataset:
  """96 images of noise and a bright quarter, which is their class; labels in another order."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, K, NUM).astype(np.int32)
  images = rng.random((NUM, *SHAPE)) < 0.1
  for image, label in zip(images, labels, strict=True):
    row, column = divmod(int(label), 2)
    image[3 * row : 3 * row + 3, 4 * column : 4 * column + 4] = True
  images, labels = 255 * images.astype(np.uint8), labels if classes else None
  labels = labels if labels is None else labels[order]
  parts = {'train': slice(0, 64), 'valid': slice(64, NUM)}
  sources = {
    name: MemorySource(images[part], None if labels is None else labels[part])
    for name, part in parts.items()
  }
  spec = Spec(name='quarters', load=None, binarizations=('fixed',), num_classes=classes)
  return Dataset(spec, sources, 'fixed')


@pytest.fixture(autouse=True, scope='module')
def surroundings():
  """The images in place of a dataset on disk, and a cache: compiling takes most of the time."""
  old = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
  jax.config.update('jax_compilation_cache_dir', str(support.CACHE))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(data, 'open_dataset', quarters)
    yield
  jax.config.update('jax_compilation_cache_dir', old[0])
  jax.config.update('jax_persistent_cache_min_compile_time_secs', old[1])


def tiny_config(num_steps: int, name='class_conditional'):
  config = support.tiny_config('')
  config.data.update({'name': 'mnist', 'path': None})
  config.model = config_lib.model_section(name, **SIZES)
  config.train.num_steps = num_steps
  config.optimizer.update({'learning_rate': 2e-2, 'schedule': 'constant', 'ema_decay': 0.9})
  config.eval.every_epochs = 20.0
  return config.lock()


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs') / 'run'
  loop.train(tiny_config(160), str(folder))
  return trained.find(str(folder), None, 'latest')


def measure(model, dataset, **options):
  options = base.EvaluationOptions(split='valid', batch_size=32, **options)
  mesh, glimpses = sharding.make_mesh(), (model.glimpses,)
  found = evaluator.Evaluator(model.task, dataset, options, mesh, glimpses).measure(model.params)
  return options, found


def test_evaluation_gives_the_numbers_of_the_labels(run):
  """From their definition: all draws of all images at once, with the label of each."""
  _, measured = measure(run, run.dataset, importance_samples=(3,), seed=5)
  batch = next(run.dataset.eval_batches('valid', 32))
  fold, key = jax.random.fold_in, jax.random.key(5)
  noise = np.stack([
    jax.random.normal(fold(fold(key, i), j), (2, 2)) for i in range(32) for j in range(3)
  ], 1)  # fmt: skip
  x = np.repeat(batch['image'].astype(np.float32) / 255, 3, 0)
  label = np.repeat(batch['label'], 3)
  terms = run.model.apply({'params': run.params}, x, noise, label=label, method='infer')
  (row,) = measured.results
  assert row['bound']['mean'] == pytest.approx(float(terms.loss.mean()), rel=1e-6)
  log_w = -np.asarray(terms.reconstruction + terms.log_ratio.sum(0), np.float64).reshape(32, 3)
  weighted = np.log(3) - logsumexp(log_w, 1).mean()
  assert row['importance'][-1]['mean'] == pytest.approx(weighted, rel=1e-6)


def test_labels_of_other_images_give_a_worse_bound(run):
  shuffled = quarters(order=np.random.default_rng(1).permutation(NUM))
  right, wrong = (
    measure(run, dataset)[1].results[0]['bound']['mean'] for dataset in (run.dataset, shuffled)
  )
  assert right + 5 < wrong


def test_the_table_says_given_the_label(run):
  options, measured = measure(run, run.dataset)
  result = report.describe(run, run.dataset, options, measured, workdir='W', which='latest')
  assert result['title'] == 'class_conditional with attention, given the label'
  table = report.table(result, run.task)
  assert 'given the label y of each image: of p(x | y), not of p(x); 1.39 nats more' in table
  assert 'paper       not comparable: it has no figures for class_conditional' in table
  assert run.task.metric_label('fixed') == 'bound given the label (nats)'


def test_chosen_classes_are_drawn(run, tmp_path):
  """Each column of the grid is a class; with a flag all is of one."""
  command = [sys.executable, '-m', 'draw_jax.sample', f'--workdir={run.workdir}', '--npz']
  command += ['--checkpoint=latest', f'--compilation_cache={support.CACHE}']
  jobs = {
    label: subprocess.Popen([*command, f'--output={tmp_path / str(label)}', *more])
    for label, more in ((None, []), (2, ['--label=2']))
  }
  images = {}
  for label, job in jobs.items():
    assert job.wait() == 0
    with np.load(tmp_path / str(label) / 'samples.npz') as arrays:
      images[label] = arrays['images']
  scale = animation.default_scale(K * SHAPE[1])
  with Image.open(tmp_path / 'None' / 'samples.png') as image:
    tiled = grid.tile(images[None], K, scale=scale).astype(int)
    assert np.abs(np.asarray(image) - tiled).max() <= 1
  assert len(images[None]) == 8 * K and len(images[2]) == 64
  for label, shown in images.items():
    bright = shown.reshape(-1, 2, 3, 2, 4).mean((2, 4)).reshape(-1, K).argmax(-1)
    expected = np.arange(len(shown)) % K if label is None else np.full(64, label)
    assert (bright == expected).mean() > 0.9
  np.testing.assert_allclose(images[None][2], images[2][2], rtol=1e-5)  # The same noise and class.
  for label, words in ((K, 'label=4 must be from 0 to 3'), (-1, 'label=-1 must be')):
    with pytest.raises(UserError, match=words):
      run.task.chosen(3, label)
  plain = tasks.create(config_lib.model_section('draw', **SIZES), SHAPE)
  with pytest.raises(UserError, match="--label=3: a model 'draw' is told of no classes"):
    plain.chosen(5, 3)


def test_figures_are_told_the_classes(run, tmp_path):
  options = gallery.FigureOptions(tmp_path, num=3, npz=True)
  for name in ('samples', 'reconstructions', 'interpolation'):
    gallery.FIGURES[name](run, options)
  targets, given = run.held_out(6, 0)
  labels = np.asarray(given['label']).argmax(-1)
  with np.load(tmp_path / 'interpolation.npz') as arrays:
    np.testing.assert_array_equal(arrays['first'], targets[:3])
    ends = arrays['ways'][:, 0], arrays['ways'][:, -1]
  # The ends are what the latents of each image lead to, given its own label.
  noise = passes._noise(run.model, jax.random.key(0), jnp.arange(3), 2, draw=0)
  for end, part in zip(ends, (slice(0, 3), slice(3, 6)), strict=True):
    variables, more = {'params': run.params}, {'label': labels[part], 'method': 'infer'}
    terms = run.model.apply(variables, targets[part], noise, **more)
    np.testing.assert_allclose(end, run.model.mean(terms.canvas), rtol=1e-4, atol=1e-6)
  with np.load(tmp_path / 'reconstructions.npz') as arrays:
    drawn, kl = arrays['images'], arrays['kl']
  terms = run.model.apply(variables, targets[:3], noise, label=labels[:3], method='infer')
  np.testing.assert_allclose(drawn[-1], run.model.mean(terms.canvas), rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(kl, terms.kl, rtol=1e-3, atol=1e-5)


def test_it_can_be_exported_and_start_from_draw(run, tmp_path):
  path = tmp_path / 'mine.safetensors'
  trained.save(path, run)
  loaded = trained.load(path)
  jax.tree.map(np.testing.assert_array_equal, loaded.params, run.params)
  assert (loaded.num_classes, loaded.model) == (K, run.model)
  config = tiny_config(1, 'draw')
  task = tasks.create(config.model, SHAPE)
  params = task.init(jax.random.key(0), np.full(SHAPE, 0.3, np.float32))
  plain = dataclasses.replace(run, config=config, params=params)
  trained.save(tmp_path / 'plain.safetensors', plain)
  config = tiny_config(2)
  with config.unlocked():
    config.train.start_from = str(tmp_path / 'plain.safetensors')
  found = start.load(config, run.dataset, run.params, run.task.neutral)
  begun = dataclasses.replace(run, params={
    **found.params, **{name: jnp.zeros_like(run.params[name]) for name in run.task.neutral}
  })  # fmt: skip
  bounds = [measure(m, run.dataset)[1].results[0]['bound']['mean'] for m in (plain, begun)]
  assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)
  assert loop.train(config, str(tmp_path / 'after')).step == 2


def test_what_cannot_be_is_refused(run):
  with pytest.raises(UserError, match='not known to the web page: label_decoder, label_encoder'):
    live.check(run)
  with pytest.raises(UserError, match='codes no images'):
    coding.Coder(run)
  with pytest.raises(UserError, match="'class_conditional' takes labels, and these data have none"):
    tasks.create(config_lib.model_section('class_conditional'), SHAPE)
  for classes, words in ((None, 'no'), (K + 1, '5')):
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(data, 'open_dataset', lambda classes=classes, **unused: quarters(classes))
      match = f'quarters has {words} classes, and the model was trained on 4'
      with pytest.raises(UserError, match=match):
        _ = dataclasses.replace(run).dataset
