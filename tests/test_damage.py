"""Random damage to every file of a workdir, a prepared dataset and an exported model.

What reads them gives the same result as before, of a workdir perhaps that of an earlier checkpoint,
or one line. `python -m pytest tests/test_damage.py --damages=200` tries many and prints a table.
"""

import collections
import contextlib
import dataclasses
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training_support as support
from data_support import register
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from draw_jax import data, trained
from draw_jax.data.builders import binarized_mnist, preparation
from draw_jax.errors import UserError
from draw_jax.tasks import registry as tasks
from draw_jax.training import checkpoint, run_log
from draw_jax.training import workdir as workdir_lib
from draw_jax.training.step import TrainState

HERE = jax.sharding.SingleDeviceSharding(jax.devices()[0])
FEW = 6


@dataclasses.dataclass(frozen=True)
class Damage:
  """What happens to a file, and where in it.

  Attributes:
    file: its name in the folder.
    kind: one of `KINDS`.
    place: in [0, 1), where in the file.
    filled: whether the place is one of the bytes that are not 0; some files are mostly empty.
    content: what is written, where something is.
  """

  file: str
  kind: str
  place: float
  filled: bool
  content: bytes


def changed(content: bytes, i: int, damage: Damage) -> bytes:
  return content[:i] + damage.content + content[i + len(damage.content) :]


def flipped(content: bytes, i: int, damage: Damage) -> bytes:
  return content[:i] + bytes([content[i] ^ 1 << damage.content[0] % 8]) + content[i + 1 :]


def another_digit(content: bytes, i: int, damage: Damage) -> bytes:
  """A text that is still well formed."""
  found = re.search(rb'[0-9]', content[i:])
  i += found.start() if found else 0
  return content[:i] + b'%d' % (damage.content[0] % 10) + content[i + 1 :]


KINDS = {
  'bit flipped': flipped,
  'changed': changed,
  'another digit': another_digit,
  'cut': lambda content, i, damage: content[:i],
  'emptied': lambda content, i, damage: b'',
  'zeroed': lambda content, i, damage: content[:i] + bytes(len(content) - i),
  'inserted': lambda content, i, damage: content[:i] + damage.content + content[i:],
  'shifted': lambda content, i, damage: content[i:] + content[:i],
  'appended': lambda content, i, damage: content + damage.content,
}
# These are done to the file, not to its content.
OTHERS = ('removed', 'a folder', 'another file')


def damages(files: list[str]) -> st.SearchStrategy[list[Damage]]:
  """One to three damages to some of these files; a few are at the top, and many in checkpoints."""
  top = [file for file in files if '/' not in file] or files
  one = st.builds(
    Damage,
    file=st.one_of(st.sampled_from(top), st.sampled_from(files)),
    kind=st.sampled_from([*KINDS, *OTHERS]),
    place=st.floats(0, 1, exclude_max=True),
    filled=st.booleans(),
    content=st.binary(min_size=1, max_size=40),
  )
  return st.lists(one, min_size=1, max_size=3, unique_by=lambda damage: damage.file)


def inflict(folder, damage: Damage, files: list[str]) -> None:
  path = folder / damage.file
  if damage.kind == 'another file':
    path.write_bytes((folder / files[int(damage.place * len(files))]).read_bytes())
  elif damage.kind in OTHERS:
    path.unlink()
    if damage.kind == 'a folder':
      path.mkdir()
  elif content := path.read_bytes():
    places = np.frombuffer(content, np.uint8).nonzero()[0] if damage.filled else range(len(content))
    i = int(places[int(damage.place * len(places))] if len(places) else 0)
    path.write_bytes(KINDS[damage.kind](content, i, damage))


@pytest.fixture
def survives(pytestconfig, tmp_path, capsys):
  """A function that damages copies of a folder and looks at what is read of them."""

  def check(original, read, is_right):
    files = sorted(str(p.relative_to(original)) for p in original.rglob('*') if p.is_file())
    number, table = pytestconfig.getoption('damages'), collections.Counter()
    copy = tmp_path / 'copy'

    @settings(
      max_examples=number,
      deadline=None,
      database=None,
      # To look for a smaller example may take minutes, and this one is small.
      phases=[Phase.generate],
      suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(damages(files))
    def holds(some):
      shutil.rmtree(copy, ignore_errors=True)
      shutil.copytree(original, copy)
      for damage in some:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # from another file
          inflict(copy, damage, files)
      try:
        outcome = is_right(read(copy), {damage.file for damage in some})
      except UserError as error:
        assert '\n' not in str(error)
        outcome = 'one line'
      assert outcome, 'another result'
      for damage in some:
        table[re.sub(r'[0-9a-f]{20,}|\d+', '*', damage.file), damage.kind, outcome] += 1

    holds()
    if number != FEW:
      with capsys.disabled():
        print('\n' + tabulate(table))

  return check


def tabulate(table: collections.Counter) -> str:
  outcomes = sorted({outcome for _, _, outcome in table})
  width = max(len(name) for name, _, _ in table)
  rows = [' ' * width + ''.join(f'{outcome:>24}' for outcome in outcomes)]
  for part in (0, 1):
    for name in sorted({key[part] for key in table}):
      counts = [
        sum(n for key, n in table.items() if (key[part], key[2]) == (name, outcome))
        for outcome in outcomes
      ]
      rows.append(f'{name:{width}}' + ''.join(f'{count:>24}' for count in counts))
  return '\n'.join([*rows, f'{sum(table.values())} damages'])


def as_before(before):
  """The result is that of before, whatever was damaged."""
  return lambda found, _: 'same' * (found == before)


def numbers(tree) -> list:
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.fixture(scope='module')
def model():
  """The task of a tiny network, and random numbers for it."""
  config = support.tiny_config('images.npy')
  task = tasks.create(config.model, (8, 8, 1), None)
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(task.init, jax.random.key(0), np.zeros((8, 8, 1), np.float32))
  return config, jax.tree.map(lambda a: jnp.asarray(rng.normal(0, 0.3, a.shape), a.dtype), shapes)


def state(params, step: int) -> TrainState:
  params = jax.tree.map(lambda a: a + step, params)
  return TrainState(
    step=jnp.int32(step),
    params=params,
    ema=jax.tree.map(lambda a: a / 2, params),
    optimizer=(jax.tree.map(jnp.zeros_like, params), jnp.int32(step)),
    key=jax.random.key_data(jax.random.key(5)),
    rollbacks=jnp.int32(0),
  )


@pytest.fixture(scope='module')
def workdir(model, tmp_path_factory):
  """A run with three checkpoints, all of them judged, the first one the best."""
  config, params = model
  workdir = tmp_path_factory.mktemp('run')
  workdir_lib.claim(workdir, config)
  checkpoints = checkpoint.Checkpoints(workdir, keep_latest=3, keep_best=1)
  log = run_log.RunLog(workdir, 0)
  for step in (1, 2, 3):
    log.row('valid', step, {'bound': step + 4.0})
    progress = {'glimpses': 3, 'image_shape': (8, 8, 1), 'num_classes': None}
    progress |= {'binarization': 'none', 'num_train': 72, 'best': None}
    checkpoints.save(state(params, step), progress, {'bound': step + 4.0}, (0, step + 4.0))
  checkpoints.close()
  log.close()
  workdir_lib.end(workdir, {'step': 3, 'num_steps': 3})
  return workdir


def test_a_damaged_workdir(survives, model, workdir):
  config, params = model

  def read(folder):
    found = {}
    for which in ('best', 'latest'):
      one = trained.find(str(folder), None, which)
      found[which] = one.step, numbers(one.params), one.metrics, one.config.to_dict()
    assert [row['split'] for row in run_log.read(folder)] in (
      [],
      *(['valid'] * n for n in (1, 2, 3)),
    )
    assert workdir_lib.read_end(folder, config) in (None, {'step': 3, 'num_steps': 3})
    checkpoints = checkpoint.Checkpoints(folder, keep_latest=3, keep_best=1)
    try:
      restored, _ = checkpoints.restore(state(params, 0), HERE, (8, 8, 1), 72)
    finally:
      checkpoints.close()
    found['resumed'] = int(restored.step), numbers(restored)
    return found

  before = read(workdir)
  assert [before[how][0] for how in ('best', 'latest', 'resumed')] == [1, 3, 3]

  def is_right(found, damaged):
    if found == before:
      return 'same'
    whole = [s for s in (1, 2, 3) if not any(f.startswith(f'checkpoints/{s}/') for f in damaged)]
    for how, (step, *rest) in found.items():
      there = state(params, step)
      right = numbers(there if how == 'resumed' else there.ema)
      assert rest[0] == right
      if how != 'resumed':
        assert rest[1:] == [{'bound': step + 4.0}, before['best'][3]]
      # Never a worse one than needed.
      best = {'best': min, 'latest': max, 'resumed': max}[how]
      assert not whole or best(step, best(whole)) == step
    return 'an earlier checkpoint'

  survives(workdir, read, is_right)


def test_a_damaged_model(survives, model, tmp_path):
  config, params = model
  about = {'image_shape': (8, 8, 1), 'num_classes': None, 'binarization': 'none'}
  one = trained.TrainedModel('tiny', config, params, 40, 3, True, {'bound': 5.25}, **about)
  (tmp_path / 'models').mkdir()
  trained.save(tmp_path / 'models' / 'tiny.safetensors', one)

  def read(folder):
    found = trained.load(folder / 'tiny.safetensors')
    return numbers(found.params), found.config.to_dict(), dict(found.provenance)

  survives(tmp_path / 'models', read, as_before(read(tmp_path / 'models')))


def test_a_damaged_dataset(survives, tmp_path, monkeypatch):
  builder = binarized_mnist.DrawBinarizedMnist
  published = tmp_path / 'published'
  published.mkdir()
  bits = np.random.default_rng(1).integers(0, 2, (20, 784))
  for split, few in {'train': bits, 'valid': bits[:3], 'test': bits[5:9]}.items():
    lines = (' '.join(map(str, row)) + '\n' for row in few)
    (published / f'binarized_mnist_{split}.amat').write_text(''.join(lines))
  register(monkeypatch, builder, published)
  preparation.prepare(builder, str(tmp_path / 'data'), str(published))

  def no_download(*_):
    raise UserError('it would be prepared anew')

  monkeypatch.setattr(builder, '_download', no_download)

  def read(folder):
    dataset = data.open_dataset('binarized_mnist', data_dir=str(folder))
    return {split: dataset.fingerprint(split) for split in dataset.splits}

  survives(tmp_path / 'data', read, as_before(read(tmp_path / 'data')))
