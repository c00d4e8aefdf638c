"""Workdirs in buckets."""

import json
import sys

import pytest
import remote_support
import training_support as support

from draw_jax import files
from draw_jax.errors import UserError
from draw_jax.training import events, loop, run_log
from draw_jax.training import workdir as workdir_lib

RUN = 'gs://bucket/runs/one'


@pytest.fixture
def bucket(tmp_path, monkeypatch):
  """The folder that stands for gs://bucket; the current one stays empty."""
  (tmp_path / 'here').mkdir()
  monkeypatch.chdir(tmp_path / 'here')
  with remote_support.buckets(tmp_path):
    yield tmp_path / 'bucket'
  assert not list((tmp_path / 'here').iterdir())


def test_a_run_in_a_bucket(bucket):
  config = support.tiny_config('images.npy')
  with workdir_lib.alone(RUN), workdir_lib.alone(RUN):  # It has no locks.
    assert workdir_lib.claim(RUN, config) == {}
  assert (bucket / 'runs' / 'one' / 'config.json').exists()
  assert workdir_lib.read_config(RUN).model.hidden == 8
  assert workdir_lib.read_end(RUN, config) is None
  workdir_lib.end(RUN, {'step': 60, 'num_steps': 60})
  assert workdir_lib.read_end(RUN, config) == {'step': 60, 'num_steps': 60}
  assert workdir_lib.saved_steps(RUN) == []
  assert workdir_lib.claim(RUN, config) == {}
  assert workdir_lib.read_end(RUN, config) is None
  assert str(workdir_lib.checkpoints_folder(RUN)) == f'{RUN}/checkpoints'
  assert files.name(RUN) == 'one'


def test_a_checkpoint_in_a_bucket_that_is_being_written(bucket):
  for step, is_whole in ((5, True), (7, False)):
    folder = bucket / 'runs' / 'one' / 'checkpoints' / str(step)
    folder.mkdir(parents=True)
    if is_whole:
      (folder / 'commit_success.txt').write_text('')
  assert workdir_lib.saved_steps(RUN) == [5]


def test_the_record_of_a_run_in_a_bucket(bucket):
  log = run_log.RunLog(RUN, 0)
  log.row('train', 5, {'bound': 3.0})
  log.row('train', 10, {'bound': 2.0})
  log.save()
  assert [row['step'] for row in run_log.read(RUN)] == [5, 10]
  log.row('train', 15, {'bound': 1.0})
  log.close()
  log.close()
  written = bucket / 'runs' / 'one'
  (events_file,) = (written / 'tensorboard').iterdir()
  assert b'train/bound' in events_file.read_bytes()
  run_log.RunLog(RUN, 10).close()  # goes on after step 10
  rows = (written / 'metrics.jsonl').read_text().splitlines()
  assert [json.loads(row)['step'] for row in rows] == [5, 10]


def test_no_trace_in_a_bucket(bucket):
  with pytest.raises(UserError, match='--profile writes to this machine alone'):
    loop.train(support.tiny_config('images.npy'), RUN, profile=(1, 2))


@pytest.mark.parametrize('path', ['hdfs://cluster/run', 'http://host/run', 'file:///run'])
def test_places_that_are_not_known(path):
  with pytest.raises(UserError, match='is not known: give a folder, or one that begins with gs://'):
    workdir_lib.claim(path, support.tiny_config('images.npy'))


def test_a_bucket_without_its_package(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setitem(sys.modules, 'gcsfs', None)
  with (
    pytest.raises(UserError, match=r'cannot use gs://bucket/runs/one: .* takes the package gcsfs'),
    workdir_lib.alone(RUN),
  ):
    pass
  assert not list(tmp_path.iterdir())


def test_events_that_cannot_be_written(tmp_path):
  """The thread that writes them does not end, and so the loop never waits for it."""

  class Full(events.EventFile):
    def open(self, path):
      super().open(path)
      self._file = open('/dev/full', 'wb', buffering=0)  # noqa: SIM115
      return self

  file = Full(tmp_path)
  board = file.writer()
  for step in range(100):  # more than fit into its queue
    board.add_scalar('bound', 1.0, step)
  board.flush()
  board.close()
  with pytest.raises(OSError, match='No space left'):
    file.check()
