"""What W&B has of a run, in its offline mode: read from the file that it would send."""

import importlib.util
import json
import pathlib
import struct
import sys

import numpy as np
import pytest
import training_support as support

from draw_jax import config as config_lib
from draw_jax.errors import UserError
from draw_jax.training import loop, run_log, wandb_run
from draw_jax.training import workdir as workdir_lib

needs_wandb = pytest.mark.skipif(
  importlib.util.find_spec('wandb') is None, reason='wandb is not installed'
)


@pytest.fixture
def config(tmp_path, monkeypatch):
  for name in ('CACHE', 'CONFIG', 'DATA'):
    monkeypatch.setenv(f'WANDB_{name}_DIR', str(tmp_path / 'wandb'))
  monkeypatch.setenv('WANDB_MODE', 'offline')
  config = support.tiny_config(support.write_images(tmp_path))
  config.log.wandb_project = 'digits'
  config.train.num_steps = 5
  return config


def records(workdir: pathlib.Path) -> list:
  """Those of all starts in a workdir, in order; pieces of them have check, length and kind."""
  from wandb.proto import wandb_internal_pb2

  found = []
  for path in sorted(workdir.glob('wandb/offline-run-*/*.wandb')):
    raw, at, record = path.read_bytes(), 7, b''
    while at + 7 <= len(raw):
      if (left := -at % 2**15) < 7:  # No piece goes over the end of a block.
        at += left
      _, length, kind = struct.unpack('<IHB', raw[at : at + 7])
      record += raw[at + 7 : at + 7 + length]
      at += 7 + length
      if kind in (1, 4):  # whole, or the last of several
        found.append(wandb_internal_pb2.Record.FromString(record))
        record = b''
  return found


def rows(workdir: pathlib.Path) -> list[dict]:
  found = [record.history for record in records(workdir) if record.HasField('history')]
  return [
    {item.key or '/'.join(item.nested_key): json.loads(item.value_json) for item in history.item}
    for history in found
  ]


@needs_wandb
def test_a_run_has_rows_and_images_and_goes_on(config, tmp_path):
  workdir = tmp_path / 'first try'
  loop.train(config, workdir)
  config.train.num_steps = 10
  loop.train(config, workdir)
  runs = [record.run for record in records(workdir) if record.HasField('run')]
  assert len({run.run_id for run in runs}) == 1 and len(runs) == 2
  assert {(run.project, run.display_name) for run in runs} == {('digits', 'first try')}
  said = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
  assert said['model']['hidden'] == 8 and said['train']['num_steps'] == 5
  found = rows(workdir)
  for row in run_log.read(workdir):
    split, step = row.pop('split'), row.pop('step')
    named = {f'{split}/{name}': value for name, value in row.items()}
    assert sum(named.items() <= other.items() and other['step'] == step for other in found) == 1
  shown = [row for row in found if 'samples/count' in row]
  assert [(row['step'], row['samples/count'], row['samples/height']) for row in shown] == [
    (5, 4, 8), (10, 4, 8)
  ]  # fmt: skip


@needs_wandb
def test_color_and_gray(config, tmp_path):
  record = run_log.RunLog(tmp_path / 'run', 0, config)
  for channels in (1, 3):
    record.images(channels, {'samples': np.full((2, 4, 6, channels), 0.5, np.float32)})
  record.close()
  size = [f'samples/{name}' for name in ('count', 'height', 'width')]
  assert [[row[name] for name in size] for row in rows(tmp_path / 'run')] == [[2, 4, 6]] * 2


@needs_wandb
def test_two_workdirs_are_two_runs(config, tmp_path):
  for name in 'ab':
    run_log.RunLog(tmp_path / name, 0, config).close()
  a, b = ((tmp_path / name / 'wandb_id.txt').read_text() for name in 'ab')
  assert a != b


@needs_wandb
def test_what_keeps_from_writing_is_told(config, tmp_path, monkeypatch):
  import wandb

  def refuse(**options):
    raise wandb.errors.UsageError('No API key configured.\nSee the manual.')

  monkeypatch.setattr(wandb, 'init', refuse)
  with pytest.raises(UserError, match=r'wandb_project=digits: No API key configured\. Try wandb'):
    loop.train(config, tmp_path)


def test_without_the_package(config, tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'wandb', None)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UserError, match=r"=digits takes .* wandb: pip install 'draw_jax\[wandb\]'"):
    loop.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_none_is_written_by_default(config, tmp_path):
  config.log.wandb_project = None
  wandb_run.check_installed(config.log.wandb_project)
  run_log.RunLog(tmp_path / 'run', 0, config).close()
  assert not list((tmp_path / 'run').glob('wandb*'))


def test_no_name(config):
  config.log.wandb_project = ''
  with pytest.raises(UserError, match=r'log\.wandb_project= is empty: give a project'):
    config_lib.validate(config)


def test_a_workdir_of_before_goes_on(config, tmp_path):
  config.log.wandb_project = None
  older = config.copy_and_resolve_references().unlock()
  del older.log.wandb_project
  loop.train(config, tmp_path)
  (tmp_path / 'config.json').unlink()
  (tmp_path / 'config.json').write_text(config_lib.to_json(older))
  assert workdir_lib.read_end(tmp_path, config)['step'] == 5
  assert workdir_lib.claim(tmp_path, config) == {}
  config.log.wandb_project = 'digits'
  assert workdir_lib.claim(tmp_path, config) == {'log.wandb_project': (None, 'digits')}
