"""The loop and the step, in this process."""

import dataclasses
import json
import pathlib
import signal
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training_support as support

from draw_jax import config as config_lib
from draw_jax import data
from draw_jax import trained as trained_lib
from draw_jax.devices import sharding
from draw_jax.errors import UserError
from draw_jax.evaluation.evaluator import Evaluator
from draw_jax.tasks import generation
from draw_jax.tasks import registry as tasks
from draw_jax.training import loop, optimizer, run_log, setup, start


@pytest.fixture(scope='module', autouse=True)
def compilation_cache():
  values = {
    'jax_compilation_cache_dir': str(support.CACHE),
    'jax_persistent_cache_min_compile_time_secs': 0,
  }
  before = {name: getattr(jax.config, name) for name in values}
  for name, value in values.items():
    jax.config.update(name, value)
  yield
  for name, value in before.items():
    jax.config.update(name, value)


@pytest.fixture
def config(tmp_path):
  return support.tiny_config(support.write_images(tmp_path))


def test_golden_first_step(config):
  """The first loss and gradient norm of a seed; they change only when the model does."""
  dataset = data.open_dataset(**config.data)
  config.train.kl_warmup_steps = 0
  mesh = sharding.make_mesh(jax.devices()[:1])
  prepared = setup.make(config, dataset.image_shape, num_steps=60, mesh=mesh)
  state, train_step = prepared.init()(dataset.mean_image()), prepared.train_step()
  before = jax.device_get(state.params)
  batch = sharding.put(mesh, next(dataset.train_batches(8, seed=0)))
  state, numbers = train_step(state, batch)
  found = [float(numbers[name]) for name in ('bound', 'grad_norm')]
  np.testing.assert_allclose(found, [33.946484, 1.880340], rtol=1e-5)
  np.testing.assert_allclose(numbers['reconstruction'] + numbers['kl'], numbers['bound'], rtol=1e-6)
  # The average moves nine tenths of the way at the first step, and no array stays behind.
  for old, new, average in zip(
    *map(jax.tree.leaves, (before, state.params, state.ema)), strict=True
  ):
    np.testing.assert_allclose(average, 0.1 * old + 0.9 * new, rtol=1e-5, atol=1e-7)
    assert np.any(old != np.asarray(new))
  assert int(state.step) == 1


def test_the_kl_counts_more_and_more_at_first(config):
  shape = (6, 6, 1)
  task = tasks.create(config.model, shape, kl_warmup=10)
  params = task.init(jax.random.key(0), np.full(shape, 0.3, np.float32))
  batch = {'image': np.full((2, *shape), 255, np.uint8)}
  noise = task.noise(jax.random.key(1), 2, 3)
  for done, weight in ((0, 0), (4, 0.4), (10, 1), (99, 1), (None, 1)):
    loss, numbers = task.loss(params, batch, noise, done)
    np.testing.assert_allclose(
      loss, numbers['reconstruction'] + weight * numbers['kl'], rtol=1e-6, err_msg=f'{done=}'
    )
    np.testing.assert_allclose(
      numbers['bound'], numbers['reconstruction'] + numbers['kl'], rtol=1e-6
    )


class Poisoned(generation.Generation):
  """DRAW whose KL is not finite where the data say so."""

  def loss(self, params, batch, noise, step=None):
    loss, numbers = super().loss(params, batch, noise, step)
    factor = 1 + batch.get('poison', jnp.zeros(()))
    return loss * factor, numbers | {name: numbers[name] * factor for name in ('bound', 'kl')}


@dataclasses.dataclass
class PoisonedData:
  """A dataset that poisons one step for some seeds."""

  dataset: data.Dataset
  at: int
  seeds: range

  def __getattr__(self, name):
    return getattr(self.dataset, name)

  def train_batches(self, batch_size, *, seed, start_step, **processes):
    batches = self.dataset.train_batches(batch_size, seed=seed, start_step=start_step, **processes)
    for number, batch in enumerate(batches, start_step + 1):
      bad = number == self.at and seed in self.seeds
      yield batch | {'poison': np.full(batch_size, np.nan if bad else 0.0, np.float32)}


@pytest.fixture
def poison(monkeypatch):
  """Makes step 20 fail for seeds in a range."""

  def install(seeds: range):
    create, open_dataset = tasks.create, data.open_dataset
    monkeypatch.setattr(tasks, 'create', lambda *args: Poisoned(create(*args).model))
    monkeypatch.setattr(
      data, 'open_dataset', lambda **kwargs: PoisonedData(open_dataset(**kwargs), 20, seeds)
    )

  return install


def test_a_loss_that_is_not_finite_stops_the_run(config, tmp_path, poison):
  poison(range(1))
  with pytest.raises(UserError) as caught:
    loop.train(config, tmp_path / 'run')
  message = str(caught.value)
  assert message.startswith('step 20: kl not finite, gradient norm nan')
  assert 'since the checkpoint of step 18' in message
  assert '--config.on_nan=rollback' in message
  loaded = trained_lib.from_workdir(tmp_path / 'run', 'latest', ema=False)
  assert loaded.step == 18
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(loaded.params))


def test_rollback_goes_on_with_other_data_and_smaller_steps(config, tmp_path, poison, capfd):
  poison(range(1))
  config.on_nan = 'rollback'
  result = loop.train(config, tmp_path / 'run')
  assert result.step == 60
  assert 'Back to the checkpoint of step 18' in capfd.readouterr().err
  rows = [row for row in run_log.read(tmp_path / 'run') if row['split'] == 'train']
  assert [row['step'] for row in rows] == list(range(5, 61, 5))
  schedule = optimizer.schedule(config.optimizer, 60)
  expected = [np.mean([schedule(s - 1 - i) for i in range(5)]) for s in (15, 30)]
  rates = {row['step']: row['learning_rate'] for row in rows}
  np.testing.assert_allclose([rates[15], rates[30]], [expected[0], expected[1] / 2], rtol=1e-5)


def test_rollbacks_are_counted(config, tmp_path, poison, capfd):
  poison(range(10**9))
  config.on_nan = 'rollback'
  config.max_rollbacks = 2
  with pytest.raises(UserError, match=r'step 20: kl not finite.*max_rollbacks=2 are used'):
    loop.train(config, tmp_path / 'run')
  assert capfd.readouterr().err.count('Back to') == 2


def test_curriculum(config, tmp_path):
  """Fewer glimpses first; whatever the bound then, the best is one with all of them."""
  config.train.curriculum = ((1, 2),)
  result = loop.train(config, tmp_path / 'run')
  assert result.step == 60
  rows = run_log.read(tmp_path / 'run')
  judged = {r['step']: r['glimpses'] for r in rows if r['split'] == 'valid'}
  assert judged == {18: 1, 36: 3, 54: 3, 60: 3}
  # Every five steps, and at the change.
  assert [r['glimpses'] for r in rows if r['split'] == 'train'] == [1] * 4 + [3] * 9
  loaded = trained_lib.from_workdir(tmp_path / 'run', 'best')
  assert loaded.glimpses == 3
  bounds = {r['step']: r['bound'] for r in rows if r['split'] == 'valid' and r['glimpses'] == 3}
  assert loaded.metrics['bound'] == result.best['value'] == min(bounds.values())
  assert bounds[loaded.step] == loaded.metrics['bound']


def test_numbers_are_read_one_step_behind(config, tmp_path, monkeypatch):
  events = []
  make, get = setup.Setup.train_step, jax.device_get

  def logged(self, *args):
    function = make(self, *args)

    def lower(*args):
      compiled = function.lower(*args).compile()

      def step(*args):
        events.append('step')
        return compiled(*args)

      return types.SimpleNamespace(compile=lambda: step)

    return types.SimpleNamespace(lower=lower)

  def read(tree):
    if isinstance(tree, dict) and 'grad_norm' in tree:
      events.append('read')
    return get(tree)

  monkeypatch.setattr(setup.Setup, 'train_step', logged)
  monkeypatch.setattr(jax, 'device_get', read)
  loop.train(config, tmp_path / 'run')
  assert events[:6] == ['step', 'step', 'read', 'step', 'read', 'step']


def test_images_and_record_for_tensorboard(config, tmp_path):
  loop.train(config, tmp_path / 'run')
  written = b''.join(p.read_bytes() for p in (tmp_path / 'run' / 'tensorboard').iterdir())
  for name in (b'samples', b'reconstructions', b'valid/bound', b'train/kl'):
    assert name in written
  last = json.loads((tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()[-1])
  assert last['split'] == 'valid' and last['examples'] == 8
  # The same command on a finished run trains no more.
  assert loop.train(config, tmp_path / 'run').step == 60


def test_a_signal_in_the_last_evaluation_finds_a_run_that_is_done(config, tmp_path, monkeypatch):
  config.train.num_steps = 4
  evaluate = Evaluator.metrics

  def interrupted(self, *args):
    signal.raise_signal(signal.SIGTERM)
    return evaluate(self, *args)

  monkeypatch.setattr(Evaluator, 'metrics', interrupted)
  result = loop.train(config, tmp_path)
  assert (result.step, result.signal) == (4, None)


def test_a_terminal_that_is_closed_saves(config, tmp_path, monkeypatch):
  evaluate = Evaluator.metrics

  def hung_up(self, *args):
    signal.raise_signal(signal.SIGHUP)
    return evaluate(self, *args)

  monkeypatch.setattr(Evaluator, 'metrics', hung_up)
  before = signal.getsignal(signal.SIGHUP)
  result = loop.train(config, tmp_path)
  assert (result.step, result.signal) == (19, signal.SIGHUP)
  assert trained_lib.from_workdir(tmp_path, 'latest').step == 19
  assert signal.getsignal(signal.SIGHUP) is before


def test_the_best_of_equals_is_the_one_that_is_kept(config, tmp_path, monkeypatch):
  monkeypatch.setattr(Evaluator, 'metrics', lambda *_: {'bound': 5.0})
  config.train.num_steps = 40
  assert loop.train(config, tmp_path).best['step'] == trained_lib.from_workdir(tmp_path).step


@pytest.fixture
def trained(config, tmp_path):
  """A model of the config in a file."""
  config.train.num_steps = 3
  loop.train(config, tmp_path / 'before')
  path = tmp_path / 'trained.safetensors'
  trained_lib.save(path, trained_lib.from_workdir(tmp_path / 'before'))
  return str(path)


def test_training_starts_from_a_trained_model(config, tmp_path, trained, capfd):
  config.train.start_from = trained
  config.train.seed = 1
  config.optimizer.learning_rate = 1e-9
  loop.train(config, tmp_path / 'after')
  out = capfd.readouterr().out
  assert f'the weights of {trained}, after 3 steps' in out and 'note' not in out
  for ema in (False, True):
    after = trained_lib.from_workdir(tmp_path / 'after', 'latest', ema=ema).params
    for old, new in zip(
      *map(jax.tree.leaves, (trained_lib.load(trained).params, after)), strict=True
    ):
      np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-7)
  # A run that goes on no longer looks at it: it may be gone by now.
  pathlib.Path(trained).unlink()
  config.train.num_steps = 4
  assert loop.train(config, tmp_path / 'after').step == 4
  config.train.start_from = None
  with pytest.raises(UserError, match=r'train\.start_from: .*safetensors there, None now'):
    loop.train(config, tmp_path / 'after')


def test_the_kl_of_a_trained_model_counts_in_full(config, tmp_path, trained, monkeypatch):
  config.train.start_from = trained
  seen = []
  create = tasks.create

  def created(*args):
    seen.append(args[-1])
    return create(*args)

  monkeypatch.setattr(tasks, 'create', created)
  loop.train(config, tmp_path / 'after')
  config.train.start_from = None
  loop.train(config, tmp_path / 'other')
  assert seen[0] == 0 and seen[-1] == config.train.kl_warmup_steps > 0


def test_a_trained_model_of_another_network_is_refused(config, tmp_path, trained, capfd):
  config.train.start_from = trained
  config.model.hidden = 9
  with pytest.raises(UserError, match=r'give --config\.model\.hidden=8, or: --start_from='):
    loop.train(config, tmp_path / 'after')
  assert 'parameters' not in capfd.readouterr().out  # before any work
  config.train.start_from = 'mnst'
  with pytest.raises(UserError, match="did you mean 'mnist'"):
    loop.train(config, tmp_path / 'after')


def test_the_model_of_a_file_by_one_flag(config, tmp_path, trained):
  """And the run goes on without the file."""
  before = config.model.to_dict()
  config.model = config_lib.model_section('draw')
  start.take_model(config, trained, tmp_path / 'after', {})
  assert config.model.to_dict() == before
  config.train.num_steps = 1
  loop.train(config, tmp_path / 'after')
  pathlib.Path(trained).unlink()
  again = config_lib.default()
  start.take_model(again, trained, tmp_path / 'after', {})
  assert again.model.to_dict() == before and again.train.start_from == trained


def test_a_trained_model_that_saw_held_out_images(config, tmp_path, trained, capfd):
  """Of the same data with another number of images it is refused, of other data noted."""
  config.train.start_from = trained
  images = np.load(config.data.path)
  np.save(config.data.path, images[:-20])
  with pytest.raises(UserError, match='trained on 72 images, and images has 54 now'):
    loop.train(config, tmp_path / 'after')
  np.save(config.data.path, images)
  other = trained_lib.load(trained)
  with other.config.unlocked():
    other.config.data.update({'name': 'mnist', 'path': None})
  pathlib.Path(trained).unlink()
  trained_lib.save(pathlib.Path(trained), other)
  loop.train(config, tmp_path / 'after')
  assert 'was trained on mnist: some of it may be held out here' in capfd.readouterr().out


def test_a_trained_model_may_go_on_with_other_images(config, tmp_path, trained, capfd):
  before, config.data.path = config.data.path, str(tmp_path / 'others.npy')
  np.save(config.data.path, np.load(before)[:40])
  config.train.start_from = trained
  assert loop.train(config, tmp_path / 'after').step == 3
  assert f'was trained on {before}: some of it' in capfd.readouterr().out


def test_the_batch_size_stays(config, tmp_path):
  """Epochs and the place in the data are counted by it."""
  config.train.num_steps = 2
  loop.train(config, tmp_path)
  config.train.batch_size = 16
  with pytest.raises(UserError, match=r'train\.batch_size: 8 there, 16 now'):
    loop.train(config, tmp_path)


def test_a_speed_that_is_not_known_is_not_told(config, tmp_path, capfd):
  config.train.num_steps = 1
  loop.train(config, tmp_path)
  assert 'images/s' not in capfd.readouterr().err
  assert all('images_per_second' not in row for row in run_log.read(tmp_path))
