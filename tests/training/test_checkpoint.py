import errno
import json
import os
import resource
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training_support as support

from draw_jax import files, trained
from draw_jax.errors import UserError
from draw_jax.training import checkpoint
from draw_jax.training import workdir as workdir_lib
from draw_jax.training.step import TrainState

HERE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


def make_state(step: int) -> TrainState:
  params = {'layer': {'kernel': jnp.arange(600.0).reshape(20, 30) / 7 + step, 'bias': jnp.ones(3)}}
  return TrainState(
    step=jnp.int32(step),
    params=params,
    ema=jax.tree.map(lambda a: a / 2, params),
    optimizer=(jax.tree.map(jnp.zeros_like, params), jnp.int32(step)),
    key=jax.random.key(5),
    rollbacks=jnp.int32(0),
  )


def progress(**more) -> dict:
  return {
    'glimpses': 3,
    'image_shape': (8, 8, 1),
    'num_classes': None,
    'binarization': 'none',
    'num_train': 90,
    'best': None,
    **more,
  }


def assert_same(a: TrainState, b: TrainState) -> None:
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
      x, y = jax.random.key_data(x), jax.random.key_data(y)
    np.testing.assert_array_equal(x, y)


@pytest.fixture(scope='module')
def original(tmp_path_factory):
  """Five checkpoints, three of them judged, of which orbax was to keep three."""
  workdir = tmp_path_factory.mktemp('run')
  workdir_lib.claim(workdir, support.tiny_config('images.npy'))
  checkpoints = checkpoint.Checkpoints(workdir, keep_latest=2, keep_best=1)
  for step, rank in ((1, (0, 9.0)), (2, (0, 5.0)), (3, None), (4, (0, 7.0)), (5, None)):
    judged = {'bound': rank[1]} if rank else None
    checkpoints.save(make_state(step), progress(window=[step]), judged, rank)
  checkpoints.close()
  return workdir


@pytest.fixture
def workdir(original, tmp_path):
  shutil.copytree(original, tmp_path / 'run')
  return tmp_path / 'run'


def restore(workdir, image_shape=(8, 8, 1), num_train=90):
  checkpoints = checkpoint.Checkpoints(workdir, keep_latest=2, keep_best=1)
  try:
    return checkpoints.restore(make_state(0), HERE, image_shape, num_train)
  finally:
    checkpoints.close()


def test_keeps_the_latest_and_the_best(original):
  assert workdir_lib.saved_steps(original) == [2, 4, 5]


def test_restores_all_of_it(workdir):
  state, restored = restore(workdir)
  assert_same(state, make_state(5))
  assert restored['window'] == [5]


def test_nothing_to_restore(tmp_path):
  assert restore(tmp_path) is None


def test_a_later_phase_is_better_whatever_its_bound(tmp_path):
  workdir_lib.claim(tmp_path, support.tiny_config('images.npy'))
  checkpoints = checkpoint.Checkpoints(tmp_path, keep_latest=1, keep_best=1)
  for step, rank in ((1, (1, 3.0)), (2, (0, 8.0)), (3, (0, 9.0))):
    checkpoints.save(make_state(step), progress(), {'bound': rank[1]}, rank)
  checkpoints.close()
  assert checkpoint.load(tmp_path, 'best').step == 2


@pytest.mark.parametrize('which,step', [('best', 2), ('latest', 5), (4, 4), ('4', 4)])
def test_load(original, which, step):
  loaded = checkpoint.load(original, which)
  assert loaded.step == step
  assert (loaded.progress['glimpses'], loaded.progress['image_shape']) == (3, [8, 8, 1])
  np.testing.assert_array_equal(
    loaded.params['layer']['kernel'], make_state(step).ema['layer']['kernel']
  )
  assert loaded.config.model.hidden == 8
  assert loaded.metrics == {2: {'bound': 5.0}, 4: {'bound': 7.0}}.get(step)


def test_without_an_average_none_is_named(workdir):
  config = support.tiny_config('images.npy')
  config.optimizer.ema_decay = 0.0
  workdir_lib.claim(workdir, config)
  assert not trained.from_workdir(workdir).ema


def test_load_without_average(original):
  loaded = checkpoint.load(original, ema=False)
  np.testing.assert_array_equal(
    loaded.params['layer']['bias'], make_state(2).params['layer']['bias']
  )


def data_files(folder):
  return [p for p in folder.rglob('*') if p.is_file() and p.parent.name == 'd']


def flip(folder):
  """Changes one byte of the largest file: orbax reads it without complaint."""
  path = max(data_files(folder / 'params'), key=lambda p: p.stat().st_size)
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def truncate(folder):
  for path in data_files(folder):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lose_metadata(folder):
  (folder / '_CHECKPOINT_METADATA').unlink()


def lose_part(folder):
  shutil.rmtree(folder / 'rest')


def empty(folder):
  shutil.rmtree(folder)
  folder.mkdir()


@pytest.mark.parametrize('damage', [flip, truncate, lose_metadata, lose_part, empty])
def test_a_damaged_one_is_passed_over(workdir, damage, caplog):
  damage(workdir / 'checkpoints' / '5')
  state, restored = restore(workdir)
  assert_same(state, make_state(4))
  assert restored['window'] == [4]
  assert f'{workdir / "checkpoints" / "5"} cannot be read and is passed over' in caplog.text
  # It no longer stands in the way of saving the same step again.
  checkpoints = checkpoint.Checkpoints(workdir, keep_latest=2, keep_best=1)
  checkpoints.save(make_state(5), progress())
  checkpoints.close()
  assert_same(restore(workdir)[0], make_state(5))
  assert (workdir / 'damaged' / '5').exists()


def test_one_with_a_damaged_evaluation_is_passed_over(workdir, caplog):
  (workdir / 'checkpoints' / '4' / 'metrics' / 'metrics').write_text('')
  assert checkpoint.load(workdir).step == 2
  assert 'checkpoints/4 cannot be read and is passed over' in caplog.text
  with pytest.raises(UserError, match=r'checkpoints/4 cannot be read .*choose another of 2, 5'):
    checkpoint.load(workdir, 4)
  caplog.clear()
  assert_same(restore(workdir)[0], make_state(5))
  assert f'{workdir / "checkpoints" / "4"} cannot be read and is passed over' in caplog.text
  assert (workdir / 'damaged' / '4').exists()
  assert checkpoint.load(workdir).step == 2


@pytest.mark.parametrize('text', ['', '{"model": {}}', '[1]'])
def test_a_damaged_config_is_one_message(workdir, text):
  (workdir / 'config.json').write_text(text)
  for read in (
    lambda: checkpoint.load(workdir),
    lambda: workdir_lib.claim(workdir, support.tiny_config('images.npy')),
  ):
    with pytest.raises(UserError, match=r'config\.json cannot be read .* remove it'):
      read()
  assert (workdir / 'config.json').read_text() == text


@pytest.mark.parametrize(
  'section, words',
  [('', "no field 'wings'"), ('initialization', "no field 'initialization.wings'")],
)
def test_a_model_field_that_is_not_known_is_named(workdir, section, words):
  path = workdir / 'config.json'
  config = json.loads(path.read_text())
  del config['checksum']
  model = config['model']
  (model[section] if section else model)['wings'] = 2
  path.write_text(json.dumps(config))
  with pytest.raises(UserError, match=f'no model of this version .*{words}') as caught:
    trained.from_workdir(workdir)
  assert '\n' not in str(caught.value)


def test_an_unfinished_one_is_no_checkpoint(workdir):
  folder = workdir / 'checkpoints'
  (folder / '5').rename(folder / '5.orbax-checkpoint-tmp')
  assert checkpoint.load(workdir, 'latest').step == 4
  assert_same(restore(workdir)[0], make_state(4))


def test_all_damaged(workdir):
  for folder in (workdir / 'checkpoints').iterdir():
    if folder.is_dir():
      empty(folder)
  with pytest.raises(UserError, match='none of the checkpoints'):
    restore(workdir)
  # What seems damaged may only be out of reach: nothing is moved.
  assert not (workdir / 'damaged').exists()


def test_images_of_another_size_are_refused(workdir):
  with pytest.raises(UserError, match=r'holds a run with images of 8 x 8 x 1, and .* 9 x 8 x 1'):
    restore(workdir, (9, 8, 1))
  with pytest.raises(UserError, match=r'a run with 90 training images, and now there are 91'):
    restore(workdir, num_train=91)
  assert_same(restore(workdir)[0], make_state(5))


def test_another_network_is_not_called_damaged(workdir):
  state = make_state(0)
  state.params['layer']['bias'] = jnp.ones(4)
  checkpoints = checkpoint.Checkpoints(workdir, keep_latest=2, keep_best=1)
  with pytest.raises(UserError, match=r'another network than .*: layer/bias is float32 4, not'):
    checkpoints.restore(state, HERE, (8, 8, 1), 90)
  checkpoints.close()
  assert not (workdir / 'damaged').exists()


@pytest.mark.parametrize('damage', [flip, truncate, lose_metadata, empty])
def test_load_passes_over_a_damaged_one(workdir, damage, caplog):
  damage(workdir / 'checkpoints' / '5')
  assert checkpoint.load(workdir, 'latest', ema=False).step == 4
  assert 'checkpoints/5 cannot be read and is passed over' in caplog.text
  # One that was asked for is not replaced by another, and no damaged one is offered.
  with pytest.raises(UserError, match=r'checkpoints/5 cannot be read .*choose another of 2, 4\.'):
    checkpoint.load(workdir, 5, ema=False)
  damage(workdir / 'checkpoints' / '2')
  assert checkpoint.load(workdir, ema=False).step == 4


def change_metadata(workdir, step, change):
  path = workdir / 'checkpoints' / str(step) / '_CHECKPOINT_METADATA'
  text = change(path.read_text())
  assert text != path.read_text()
  path.write_text(text)


CHANGES = {
  'a number': lambda text: text.replace('"glimpses": 3', '"glimpses": 2'),
  'a word': lambda text: text.replace('"none"', '"nona"'),
  'a name': lambda text: text.replace('"progress"', '"progrest"'),
  'a checksum': lambda text: text.replace('"ema": ', '"ema": 1'),
  'the name of a checksum': lambda text: text.replace('"metadata": ', '"netadata": '),
  'no JSON': lambda text: text.replace('{"', '{', 1),
  'no text': lambda text: text[:-9],
  'a time': lambda text: text.replace(
    '"commit_timestamp_nsecs": ', '"commit_timestamp_nsecs": 99999'
  ),
}


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
def test_one_with_damaged_metadata_is_passed_over(workdir, change, caplog):
  change_metadata(workdir, 5, change)
  assert checkpoint.load(workdir, 'latest').step == 4
  state, _ = restore(workdir)
  assert_same(state, make_state(4))
  assert caplog.text.count('checkpoints/5 cannot be read and is passed over') == 2


def test_a_changed_evaluation_is_noticed(workdir, caplog):
  path = workdir / 'checkpoints' / '4' / 'metrics' / 'metrics'
  path.write_text(path.read_text().replace('7.0', '1.0'))
  assert checkpoint.load(workdir).step == 2
  assert 'checkpoints/4 cannot be read' in caplog.text


def without_checksum(text: str) -> str:
  """What was written before metadata had one."""
  about = json.loads(text)
  del about['custom_metadata']['checksums']['metadata']
  return json.dumps(about)


def test_checkpoints_of_before_the_checksum_of_metadata(workdir):
  for step in (2, 4, 5):
    change_metadata(workdir, step, without_checksum)
  assert (checkpoint.load(workdir).step, checkpoint.load(workdir, 'latest').step) == (2, 5)
  assert_same(restore(workdir)[0], make_state(5))


@pytest.mark.parametrize(
  'which,message',
  [
    (3, r'no checkpoint 3 in .*: choose best, latest or one of 2, 4, 5'),
    ('bset', r"no checkpoint 'bset' in"),
    ('-1', r"no checkpoint '-1' in"),
  ],
)
def test_load_of_what_is_not_there(original, which, message):
  with pytest.raises(UserError, match=message):
    checkpoint.load(original, which)


def test_load_of_a_wrong_workdir(tmp_path):
  with pytest.raises(UserError, match='does not exist'):
    checkpoint.load(tmp_path / 'nowhere')
  with pytest.raises(UserError, match='holds no training run'):
    checkpoint.load(tmp_path)
  workdir_lib.claim(tmp_path, support.tiny_config('images.npy'))
  with pytest.raises(UserError, match='no checkpoint yet'):
    checkpoint.load(tmp_path)


def test_none_is_the_best_before_an_evaluation(workdir):
  for step in (2, 4):
    shutil.rmtree(workdir / 'checkpoints' / str(step))
  with pytest.raises(UserError, match='has been evaluated yet: choose latest, or one of 5'):
    checkpoint.load(workdir)


def test_another_model_is_refused_with_the_fields_that_differ(workdir):
  config = support.tiny_config('images.npy')
  config.model.hidden = 16
  config.data.binarization = 'threshold'
  with pytest.raises(UserError) as caught:
    workdir_lib.claim(workdir, config)
  assert 'data.binarization: None there, threshold now' in str(caught.value)
  assert 'model.hidden: 8 there, 16 now' in str(caught.value)
  assert checkpoint.load(workdir).config.model.hidden == 8


def test_other_changes_are_reported(workdir):
  config = support.tiny_config('images.npy')
  config.optimizer.learning_rate = 0.5
  config.train.curriculum = ((1, 2),)
  config.model.dtype = 'bfloat16'
  config.model.remat = 'segments'
  config.model.initialization.write_scale = 3.0
  config.model.window_limit = 30.0
  assert workdir_lib.claim(workdir, config) == {
    'model.dtype': (None, 'bfloat16'),
    'model.remat': ('products', 'segments'),
    'model.initialization.write_scale': (2.0, 3.0),
    'model.window_limit': (0.0, 30.0),
    'optimizer.learning_rate': (2e-3, 0.5),
    'train.curriculum': ((), ((1, 2),)),
  }
  assert workdir_lib.claim(workdir, config) == {}


FULL = """
import resource, sys
sys.path.insert(0, sys.argv[2])
import test_checkpoint as t
from draw_jax.training import checkpoint
from draw_jax.cli import streams
from draw_jax.errors import UserError
streams.quiet_libraries()
checkpoints = checkpoint.Checkpoints(sys.argv[1], keep_latest=2, keep_best=1)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
try:
  checkpoints.save(t.make_state(6), t.progress())
  checkpoints.wait()
except UserError as error:
  print('UserError', error)
"""


def test_room_is_looked_for_before_saving(tmp_path, monkeypatch):
  """A limit on the size of files stands for a full disk."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
  try:
    files.check_room(tmp_path, 5000)
    with pytest.raises(OSError, match='File too large') as caught:
      files.check_room(tmp_path, 5001)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert files.is_full(caught.value)
  assert list(tmp_path.iterdir()) == []

  def refuse(*_):
    raise OSError(errno.EOPNOTSUPP, 'x')  # As some file systems do.

  monkeypatch.setattr(files.os, 'posix_fallocate', refuse)
  files.check_room(tmp_path, 1)


def test_disk_full(workdir):
  """A limit on the size of files stands for a full disk."""
  done = subprocess.run(
    [sys.executable, '-c', FULL, str(workdir), os.path.dirname(__file__)],
    env=support.environment(),
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  assert 'UserError no space to save a checkpoint' in done.stdout, done.stderr
  assert 'the one of step 5 is intact' in done.stdout
  assert 'Traceback' not in done.stderr and 'ERROR' not in done.stderr, done.stderr
  assert_same(restore(workdir)[0], make_state(5))
  assert files.is_full(OSError(errno.ENOSPC, 'x'))


def test_of_equals_the_latest_is_kept_and_chosen(tmp_path):
  workdir_lib.claim(tmp_path, support.tiny_config('images.npy'))
  checkpoints = checkpoint.Checkpoints(tmp_path, keep_latest=1, keep_best=1)
  for step, value in ((1, 5.0), (2, 5.0), (3, 7.0)):
    checkpoints.save(make_state(step), progress(), {'error': value}, (0, value))
  checkpoints.close()
  assert checkpoint.load(tmp_path).step == 2
