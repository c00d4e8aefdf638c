"""Checkpoints of a run: written in the background, checked when read.

The position in the data needs no place of its own: it follows from the step.
"""

import json
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from ml_collections import config_dict
from orbax.checkpoint import v1 as ocp

from draw_jax import files, renamed
from draw_jax.errors import UserError, first_line
from draw_jax.pretrained import file_format
from draw_jax.training import workdir as workdir_lib
from draw_jax.training.step import TrainState

# Added to the rank of a checkpoint for each phase of the curriculum still to come.
_PHASE = 1e9


class SavedModel(NamedTuple):
  """What a checkpoint has of a model."""

  config: config_dict.ConfigDict  # of the run
  params: Any  # on the default device
  step: int  # training steps taken
  progress: dict[str, Any]  # as it was saved
  metrics: dict[str, float] | None  # of the evaluation at this step, if there was one


class Checkpoints:
  """The checkpoints of one workdir, for the training loop."""

  def __init__(self, workdir: str | os.PathLike, keep_latest: int, keep_best: int):
    self._folder = workdir_lib.checkpoints_folder(workdir)
    if jax.process_index() == 0:
      for path, error in _without_metrics(self._folder.parent):
        logging.warning('checkpoint %s cannot be read and is passed over: %s', path, error)
        _put_aside(path)
    multihost_utils.sync_global_devices('checkpoints_looked_at')
    policies = ocp.training.preservation_policies
    best = policies.BestN(
      get_metric_fn=lambda metrics: metrics['rank'],
      reverse=True,
      n=keep_best,
      keep_checkpoints_without_metrics=False,
    )
    self._checkpointer = ocp.training.Checkpointer(
      self._folder,
      preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(keep_latest), best]),
      cleanup_tmp_directories=True,
    )

  def path(self, step: int) -> pathlib.Path:
    """The folder of the checkpoint of a step."""
    return self._folder / str(step)

  def latest(self) -> int | None:
    """The step of the newest checkpoint."""
    newest = self._checkpointer.latest
    return newest.step if newest else None

  def save(
    self, state: TrainState, progress: dict, metrics=None, rank: tuple[int, float] | None = None
  ):
    """Starts to write a checkpoint; returns once the state may be changed.

    Args:
      state: to be saved, whose steps are done.
      progress: anything more to be restored with it, for JSON.
      metrics: of an evaluation of this state.
      rank: phases still to come and the metric that chooses the best, of the same
        evaluation. Bounds with another T are not comparable: a later phase wins.
    """
    parts = _parts(state)
    step = int(state.step)
    self._guard(
      lambda: self._checkpointer.save_checkpointables_async(
        step,
        parts,
        force=True,
        metrics=metrics and {**metrics, 'rank': rank[0] * _PHASE + rank[1]},
        custom_metadata={
          'progress': progress,
          'checksums': {name: _checksum(part) for name, part in parts.items()},
        },
      )
    )

  def restore(
    self, like: TrainState, sharding, image_shape, num_train: int
  ) -> tuple[TrainState, dict] | None:
    """The newest readable state and its `progress`.

    Newer ones that cannot be read are moved aside with a warning. None if there is no
    checkpoint at all.

    Args:
      like: arrays or their shapes and types, as saved.
      sharding: of each array, on whichever devices there are now.
      image_shape: of the data; another one than `progress` has is refused.
      num_train: training images; another number, too, as other ones are held out then.
    """
    steps = [c.step for c in self._checkpointer.checkpoints]
    abstract = _abstract(_parts(like), sharding)
    unreadable = []
    for step in reversed(steps):
      try:
        about = self._checkpointer.checkpointables_metadata(step)
        before = _progress(about)
        there = tuple(before['image_shape'])
        another = _another_state(about.metadata, like)
        fits = there == image_shape and not another
        parts = _read(self._checkpointer, step, abstract) if fits else None
      except Exception as error:
        logging.warning(
          'checkpoint %s cannot be read and is passed over: %s', self.path(step), first_line(error)
        )
        unreadable.append(step)
        continue
      if there == image_shape and parts is None:
        raise UserError(
          f'{self._folder.parent} holds a run with {another}. Give another --workdir, or the same '
          'values to continue it.'
        )
      if parts is None:
        raise UserError(
          f'{self._folder.parent} holds a run with images of {_sizes(there)}, and those of the '
          f'data are {_sizes(image_shape)}: give another --workdir, or the same images.'
        )
      if before.get('num_train', num_train) != num_train:
        raise UserError(
          f'{self._folder.parent} holds a run with {before["num_train"]:,} training images, and '
          f'now there are {num_train:,}: validation would have some that it was trained on. Give '
          'another --workdir, or the same images.'
        )
      for newer in unreadable:
        self._put_aside(newer)
      rest = parts['rest']
      state = TrainState(params=parts['params'], ema=parts['ema'], **rest)
      return state, before
    if steps:
      raise UserError(
        f'none of the checkpoints in {self._folder} can be read. If they are damaged, move that '
        'folder away to train from the beginning.'
      )
    return None

  def wait(self) -> None:
    """Returns when all that was saved is on disk."""
    self._guard(self._checkpointer.wait)

  def close(self) -> None:
    """Waits and gives back the resources."""
    self._guard(self._checkpointer.close)

  def _put_aside(self, step: int) -> None:
    if jax.process_index() == 0:
      _put_aside(self.path(step))
    multihost_utils.sync_global_devices(f'put_aside_{step}')
    self._checkpointer.reload()

  def _guard(self, function):
    """Runs a function of Orbax, with a message of our own when the disk is full."""
    try:
      return function()
    except Exception as error:
      if not files.is_full(error):
        raise
      self._checkpointer.reload()
      latest = self.latest()
      kept = f'the one of step {latest} is intact' if latest else 'there was none before it'
      raise UserError(
        f'no space to save a checkpoint in {self._folder}: {kept}. Make room, then start the same '
        'command again to continue from there.'
      ) from error


def load(workdir: str | os.PathLike, which: str | int = 'best', *, ema: bool = True) -> SavedModel:
  """Reads the model of a checkpoint.

  Args:
    workdir: of a training run.
    which: 'best' on validation, 'latest', or a step.
    ema: the moving average of the parameters, or the parameters themselves.
  """
  workdir = pathlib.Path(workdir).absolute()
  workdir_lib.check_is_run(workdir)
  if not workdir_lib.saved_steps(workdir):
    raise UserError(f'{workdir} has no checkpoint yet: let draw_jax.train run until it saves one.')
  config = workdir_lib.read_config(workdir)
  for path, error in _without_metrics(workdir):
    raise UserError(f'checkpoint {path} cannot be read ({error}): move that folder away.')
  with ocp.training.Checkpointer(workdir_lib.checkpoints_folder(workdir)) as checkpointer:
    found = _choose(checkpointer.checkpoints, which, workdir)
    name = 'ema' if ema else 'params'
    try:
      about = checkpointer.checkpointables_metadata(found.step)
      arrays, progress = about.metadata[name], _progress(about)
      here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
      parts = _read(checkpointer, found.step, {name: _abstract(arrays, here)})
    except Exception as error:
      raise UserError(
        f'checkpoint {found.path} cannot be read ({first_line(error)}): choose another of '
        f'{_names(checkpointer.checkpoints)}.'
      ) from error
  metrics = found.metrics and {k: v for k, v in found.metrics.items() if k != 'rank'}
  return SavedModel(config, parts[name], found.step, progress, metrics)


def _choose(checkpoints, which: str | int, workdir: pathlib.Path):
  by_step = {c.step: c for c in checkpoints}
  if which == 'latest':
    return by_step[max(by_step)]
  if which == 'best':
    judged = [c for c in checkpoints if c.metrics]
    if not judged:
      raise UserError(
        f'no checkpoint in {workdir} has been evaluated yet: choose latest, or one of '
        f'{_names(checkpoints)}.'
      )
    # Of equals the latest, which is also the one that is kept.
    return min(judged, key=lambda c: (c.metrics['rank'], -c.step))
  if not str(which).isdigit() or int(which) not in by_step:
    raise UserError(
      f'no checkpoint {which!r} in {workdir}: choose best, latest or one of {_names(checkpoints)}.'
    )
  return by_step[int(which)]


def _without_metrics(workdir: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
  """Checkpoints whose evaluation is there and no JSON: Orbax would stop at them."""
  for step in workdir_lib.saved_steps(workdir):
    path = workdir_lib.checkpoints_folder(workdir) / str(step)
    file = path / 'metrics' / 'metrics'
    try:
      if file.exists():
        json.loads(file.read_text())
    except ValueError as error:
      yield path, first_line(error)


def _put_aside(path: pathlib.Path) -> None:
  """Moves a checkpoint out of the way of those to come."""
  aside = path.parent.parent / 'damaged'
  aside.mkdir(exist_ok=True)
  names = (aside / (path.name + (f'.{i}' if i else '')) for i in range(1000))
  path.rename(next(name for name in names if not name.exists()))


def _sizes(image_shape) -> str:
  return ' x '.join(map(str, image_shape))


def _names(checkpoints) -> str:
  return ', '.join(str(c.step) for c in checkpoints)


def _progress(about) -> dict[str, Any]:
  """What was saved beside the arrays, by today's names of its fields."""
  progress = renamed.record(about.custom_metadata['progress'])
  if progress.get('best'):
    progress['best'] = renamed.record(progress['best'])
  return progress


def _parts(state: TrainState) -> dict[str, Any]:
  """What is stored apart, so that a model can be read without its optimizer."""
  rest = {k: v for k, v in state._asdict().items() if k not in ('params', 'ema')}
  return {'params': state.params, 'ema': state.ema, 'rest': rest}


def _another_state(saved: Mapping[str, Any], like: TrainState) -> str | None:
  """How the arrays of a checkpoint first differ from what the config makes, if they do."""
  if not jax.tree.leaves(saved['rest']):  # damaged
    return None
  if wrong := file_format.difference(saved['params'], like.params):
    return f'another network than that of the config: {wrong}'
  expected = jax.eval_shape(lambda state: jax.tree.map(_without_key_type, state), like.optimizer)
  wrong = file_format.difference({'optimizer': saved['rest']['optimizer']}, {'optimizer': expected})
  return wrong and f'other optimizer.arguments than those of the config: {wrong}'


def _without_key_type(array):
  """The array, or the numbers of random keys, as which they are saved."""
  is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
  return jax.random.key_data(array) if is_key else array


def _abstract(tree, sharding):
  return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), tree)


def _read(checkpointer, step: int, abstract: dict[str, Any]) -> dict[str, Any]:
  """Some parts of a checkpoint; raises if it is damaged."""
  metadata = checkpointer.checkpointables_metadata(step).custom_metadata
  parts = checkpointer.load_checkpointables(step, abstract)
  for name, part in parts.items():
    if _checksum(part) != metadata['checksums'][name]:
      raise ValueError(f'the checksum of {name!r} is wrong')
  return parts


def _checksum(tree) -> int:
  """Orbax notices a file that is short, not one with a changed byte."""
  checksum = 0
  for leaf in jax.tree.leaves(tree):
    checksum = zlib.crc32(np.ascontiguousarray(_without_key_type(leaf)), checksum)
  return checksum
