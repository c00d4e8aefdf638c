"""The folder of a run: its config, how it ended, and that one training works in it at a time.

A workdir holds `config.json`, `checkpoints/STEP/`, the run log of `draw_jax.training.run_log` and,
once training has ended, `result.json`.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from absl import logging
from ml_collections import config_dict

from draw_jax import config as config_lib
from draw_jax import files
from draw_jax.errors import UserError, first_line

_CONFIG, _RESULT, _CHECKPOINTS = 'config.json', 'result.json', 'checkpoints'
_WHOLE = 'commit_success.txt'  # with which Orbax marks a checkpoint that it has written
_CHECKSUM = 'checksum'  # of all other fields of a file
# What must stay as it is for a run to be continued, but for what matters
# only before its first step, or only to how gradients are computed.
_FIXED = (
  *('data.', 'model.', 'eval.split', 'train.start_from', 'train.batch_size'),
  'optimizer.name',
)
_FREE = ('model.initialization.', 'model.remat', 'model.dtype', 'model.window_limit')


@contextlib.contextmanager
def alone(workdir: str | os.PathLike) -> Iterator[None]:
  """Keeps every other training out of a workdir until the block ends.

  Where the file system has no locks for folders, as NFS and gs://, it does nothing: a lock that
  outlived a machine that died would keep out the run that goes on from there.
  """
  if jax.process_index():  # Process 0 holds it for all of its run.
    yield
    return
  _make_folder(workdir)
  if files.is_remote(workdir):
    yield
    return
  try:
    folder = os.open(workdir, os.O_RDONLY)
  except OSError as error:  # such as a folder of someone else
    raise _not_writable(workdir, error) from error
  try:
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    os.close(folder)
    raise UserError(
      f'another training is at work in --workdir={workdir}: let it end, or give another one.'
    ) from error
  except OSError as error:
    logging.info('no lock on %s: %s', workdir, error)
  try:
    yield
  finally:
    os.close(folder)


def claim(workdir: str | os.PathLike, config) -> dict[str, tuple]:
  """Writes the config into a workdir, unless a run of another model is there.

  What `end` wrote there is removed: from now on the run is not at its end.

  Returns:
    The fields that differ from the last start in this workdir, (old, new).
  """
  path = files.place(workdir) / _CONFIG
  changed = {}
  if files.is_there(path) and saved_steps(workdir):
    changed = config_lib.differences(read_config(path.parent), config)
    fixed = [
      f'{k}: {a} there, {b} now'
      for k, (a, b) in changed.items()
      if k.startswith(_FIXED) and not k.startswith(_FREE)
    ]
    if fixed:
      raise UserError(
        f'{workdir} holds a run with another config ({"; ".join(fixed)}). Give another --workdir, '
        'or the same values to continue it.'
      )
  if jax.process_index() == 0:
    _make_folder(workdir)
    try:
      with files.reaching(workdir):
        path.with_name(_RESULT).unlink(missing_ok=True)
        _write(path, config.to_dict())
    except OSError as error:
      raise _not_writable(workdir, error) from error
  return changed


def end(workdir: str | os.PathLike, result: dict) -> None:
  """Writes into a workdir how its run ended, once all that it saved is on disk."""
  _write(files.place(workdir) / _RESULT, result)


def read_end(workdir: str | os.PathLike, config) -> dict | None:
  """What `end` wrote; None if the run of this config has not ended, or cannot be read."""
  path = files.place(workdir) / _CONFIG
  try:
    if not files.is_there(path) or config_lib.differences(read_config(workdir), config):
      return None
    result = _read(path.with_name(_RESULT))
  except (UserError, OSError, ValueError):  # not there, damaged, or cut off by a crash
    return None  # to train on from the end takes no time
  return result if {'step', 'num_steps'} <= result.keys() else None


def read_config(workdir: str | os.PathLike) -> config_dict.ConfigDict:
  """The config of the run in a workdir."""
  path = files.place(workdir) / _CONFIG
  try:
    return config_lib.from_json(json.dumps(_read(path)))
  except UserError:
    raise
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise UserError(
      f'{path} cannot be read ({first_line(error)}). If it is damaged, remove it; draw_jax.train '
      'with the values of this run writes it anew.'
    ) from error


def check_is_run(workdir: str | os.PathLike) -> None:
  """Raises a `UserError` unless a run has begun in a workdir."""
  workdir = files.place(workdir)
  if not files.is_there(workdir / _CONFIG):
    what = 'holds no training run' if files.place(workdir).is_dir() else 'does not exist'
    raise UserError(f'{workdir} {what}: give the --workdir of draw_jax.train.')


def checkpoints_folder(workdir: str | os.PathLike) -> pathlib.Path:
  """Where the checkpoints of a workdir are, each in a folder named after its step."""
  return files.absolute(workdir) / _CHECKPOINTS


def saved_steps(workdir: str | os.PathLike) -> list[int]:
  """Steps of the finished checkpoints; one being written has a longer name."""
  folder = checkpoints_folder(workdir)
  with files.reaching(workdir):
    found = [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    if files.is_remote(folder):  # A folder of a bucket has its name at once.
      found = [path for path in found if (path / _WHOLE).exists()]
  return sorted(int(path.name) for path in found)


def _make_folder(workdir: str | os.PathLike) -> None:
  try:
    with files.reaching(workdir):
      files.place(workdir).mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise _not_writable(workdir, error) from error


def _not_writable(workdir: str | os.PathLike, error: OSError) -> UserError:
  return UserError(f'cannot write into --workdir={workdir}: {error.strerror}.')


def _write(path: pathlib.Path, fields: Mapping[str, Any]) -> None:
  fields = {**fields, _CHECKSUM: _checksum(fields)}
  files.write_text(path, json.dumps(fields, indent=2) + '\n')


def _read(path: pathlib.Path) -> dict[str, Any]:
  """What `_write` was given; older files have no checksum."""
  fields = json.loads(path.read_text())
  if not isinstance(fields, dict):
    raise ValueError('it holds no fields')
  if fields.pop(_CHECKSUM, None) not in (None, _checksum(fields)):
    raise ValueError(
      f'it is not as it was written; changed by hand, it must lose its {_CHECKSUM!r}'
    )
  return fields


def _checksum(fields: Mapping[str, Any]) -> int:
  """The same for what was read as for what was written."""
  return zlib.crc32(json.dumps(fields, sort_keys=True).encode())
