"""Checkpoints of a run: written in the background, checked when read.

The position in the data needs no place of its own: it follows from the step.
"""

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
from jax.experimental import multihost_utils
from ml_collections import config_dict
from orbax.checkpoint import v1 as ocp

from draw_jax import files
from draw_jax.errors import UserError, first_line
from draw_jax.pretrained import file_format
from draw_jax.training import checkpoint_files
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
    # Orbax would stop at damaged metadata.
    found, damaged = _records(workdir)
    if damaged and not found:
      raise UserError(_none_can_be_read(self._folder))
    multihost_utils.sync_global_devices('checkpoints_looked_at')
    if jax.process_index() == 0:
      for step, error in damaged.items():
        checkpoint_files.warn(self.path(step), error)
        checkpoint_files.put_aside(self.path(step))
    multihost_utils.sync_global_devices('damaged_checkpoints_put_aside')
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
    metrics = metrics and {**metrics, 'rank': rank[0] * _PHASE + rank[1]}

    def save():
      if not files.is_remote(self._folder):
        # Orbax comes upon a full disk in the background, where other processes wait for this one.
        files.check_room(self._folder, sum(leaf.nbytes for leaf in jax.tree.leaves(parts)))
      self._checkpointer.save_checkpointables_async(
        step,
        parts,
        force=True,
        metrics=metrics,
        custom_metadata=checkpoint_files.to_save(parts, progress, metrics),
      )

    self._guard(save)

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
        record = checkpoint_files.record(self.path(step))
        before = record.progress
        there = tuple(before['image_shape'])
        another = _another_state(record.metadata, like)
        fits = there == image_shape and not another
        read = checkpoint_files.read
        parts = read(self.path(step), abstract, record.checksums) if fits else None
      except Exception as error:
        checkpoint_files.warn(self.path(step), error)
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
      raise UserError(_none_can_be_read(self._folder))
    return None

  def wait(self) -> None:
    """Returns when all that was saved is on disk."""
    self._guard(self._checkpointer.wait)

  def close(self) -> None:
    """Waits and gives back the resources."""
    self._guard(self._checkpointer.close)

  def _put_aside(self, step: int) -> None:
    if jax.process_index() == 0:
      checkpoint_files.put_aside(self.path(step))
    multihost_utils.sync_global_devices(f'put_aside_{step}')
    self._checkpointer.reload()

  def _guard(self, function):
    """Runs a function of Orbax, with a message of our own when the disk is full."""
    try:
      return function()
    except Exception as error:
      if not files.is_full(error):
        raise
      steps = workdir_lib.saved_steps(self._folder.parent)
      kept = f'the one of step {steps[-1]} is intact' if steps else 'there was none before it'
      raise UserError(
        f'no space to save a checkpoint in {self._folder}: {kept}. Make room, then start the same '
        'command again to continue from there.'
      ) from error


def load(workdir: str | os.PathLike, which: str | int = 'best', *, ema: bool = True) -> SavedModel:
  """Reads the model of a checkpoint; of 'best' and 'latest', the first one that can be read.

  Args:
    workdir: of a training run.
    which: 'best' on validation, 'latest', or a step.
    ema: the moving average of the parameters, or the parameters themselves.
  """
  workdir = files.absolute(workdir)
  workdir_lib.check_is_run(workdir)
  if not workdir_lib.saved_steps(workdir):
    raise UserError(f'{workdir} has no checkpoint yet: let draw_jax.train run until it saves one.')
  config = workdir_lib.read_config(workdir)
  folder, part = workdir_lib.checkpoints_folder(workdir), 'ema' if ema else 'params'
  found, damaged = _records(workdir)
  for step in _order(found, damaged, which, workdir):
    try:
      params = _read_part(folder / str(step), found.get(step) or damaged[step], part)
    except Exception as error:
      damaged[step] = error
      if str(which).isdecimal():
        raise UserError(
          f'checkpoint {folder / str(step)} cannot be read ({first_line(error)}): choose another'
          f'{_of(found.keys() - damaged.keys())}.'
        ) from error
      continue
    for other, error in damaged.items():
      # Any might have been the best.
      if which == 'best' or other > step:
        checkpoint_files.warn(folder / str(other), error)
    metrics = found[step].metrics
    metrics = metrics and {k: v for k, v in metrics.items() if k != 'rank'}
    return SavedModel(config, params, step, found[step].progress, metrics)
  raise UserError(_none_can_be_read(folder))


def _read_part(path: pathlib.Path, record: checkpoint_files.Record | Exception, part: str):
  """Some arrays of a checkpoint, on the default device."""
  if isinstance(record, Exception):
    raise record
  here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  abstract = {part: _abstract(record.metadata[part], here)}
  return checkpoint_files.read(path, abstract, record.checksums)[part]


def _records(
  workdir: str | os.PathLike,
) -> tuple[dict[int, checkpoint_files.Record], dict[int, Exception]]:
  """What was saved beside the arrays at each step; and what is wrong with those one cannot read."""
  found, damaged = {}, {}
  for step in workdir_lib.saved_steps(workdir):
    try:
      path = workdir_lib.checkpoints_folder(workdir) / str(step)
      found[step] = checkpoint_files.record(path)
    except Exception as error:  # Whatever Orbax makes of damaged files.
      damaged[step] = error
  return found, damaged


def _order(
  found: Mapping[int, checkpoint_files.Record],
  damaged: Mapping[int, Exception],
  which: str | int,
  workdir: pathlib.Path,
) -> list[int]:
  """The steps to be tried, one after the other."""
  if which == 'latest':
    return sorted({*found, *damaged}, reverse=True)
  if which == 'best':
    judged = {step: record.metrics['rank'] for step, record in found.items() if record.metrics}
    if found and not judged:
      raise UserError(
        f'no checkpoint in {workdir} has been evaluated yet: choose latest, or one{_of(found)}.'
      )
    # Of equals the latest, which is also the one that is kept.
    return sorted(judged, key=lambda step: (judged[step], -step))
  if not str(which).isdecimal() or int(which) not in {*found, *damaged}:
    raise UserError(
      f'no checkpoint {which!r} in {workdir}: choose best, latest or one{_of(found)}.'
    )
  return [int(which)]


def _none_can_be_read(folder: pathlib.Path) -> str:
  return (
    f'none of the checkpoints in {folder} can be read. If they are damaged, move that folder away '
    'to train from the beginning.'
  )


def _sizes(image_shape) -> str:
  return ' x '.join(map(str, image_shape))


def _of(steps: Iterable[int]) -> str:
  """Ends a message that has one to choose."""
  return ' of ' + (', '.join(map(str, sorted(steps))) or 'another run')


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
  expected = jax.eval_shape(
    lambda state: jax.tree.map(checkpoint_files.without_key_type, state), like.optimizer
  )
  wrong = file_format.difference({'optimizer': saved['rest']['optimizer']}, {'optimizer': expected})
  return wrong and f'other optimizer.arguments than those of the config: {wrong}'


def _abstract(tree, sharding):
  return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), tree)
