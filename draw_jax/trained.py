"""One type for a trained model, from a workdir or a file, with its data."""

import contextlib
import dataclasses
import difflib
import functools
import importlib.resources
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from draw_jax import config as config_lib
from draw_jax import data, files, memory, methods
from draw_jax.errors import UserError, first_line
from draw_jax.pretrained import file_format
from draw_jax.tasks import base, registry
from draw_jax.training import checkpoint, run_log

_CURVE = 200  # points of a learning curve in a file, for each split


@dataclasses.dataclass(frozen=True)
class TrainedModel(methods.Methods):
  """A trained model, ready for use; what it does is in `draw_jax.methods`.

  Attributes:
    name: to be shown.
    config: of the run.
    params: its parameters, averaged ones where `ema`; on the default device.
    step: training steps taken.
    glimpses: T with which it was being trained then.
    ema: whether `params` is the moving average.
    metrics: of training's evaluation at this step, if there was one.
    image_shape: (H, W, C) of the data it was trained on.
    num_classes: of their labels, if they have some.
    binarization: of the data it was trained on.
    num_train: images it was trained on; older checkpoints do not tell.
    workdir: where it was trained; None for a model from a file.
    provenance: what its file says of it, see `pretrained.file_format`; empty without a file.
    data_dir: where prepared datasets live; None for TFDS's own default.
  """

  name: str
  config: Any
  params: base.Params
  step: int
  glimpses: int
  ema: bool
  metrics: Mapping[str, float] | None
  image_shape: tuple[int, int, int]
  num_classes: int | None
  binarization: str
  num_train: int | None = None
  workdir: pathlib.Path | None = None
  provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  data_dir: str | None = None

  @property
  def curve(self) -> list[dict[str, Any]]:
    """The metric in the course of training, rows as in metrics.jsonl; older files have none."""
    if self.workdir is not None:
      return run_log.read(self.workdir)
    rows = self.provenance.get('curve') or []
    return [{'split': split, 'step': step, self.task.metric: value} for split, step, value in rows]

  @functools.cached_property
  def task(self) -> base.Task:
    """The task, whose model has the T that it was trained with."""
    task = registry.create(self.config.model, self.image_shape, self.num_classes)
    return dataclasses.replace(task, model=task.model.clone(glimpses=self.glimpses))

  @property
  def model(self) -> nn.Module:
    """The network, with the T that it was trained with."""
    return self.task.model

  @functools.cached_property
  def dataset(self) -> data.Dataset:
    """The dataset that it was trained on."""
    options = {**self.config.data, 'binarization': self.binarization}
    dataset = data.open_dataset(data_dir=self.data_dir, **options)
    if dataset.image_shape != self.image_shape:
      raise UserError(
        f'images of {dataset.name} are {_by(dataset.image_shape)}, the model was trained on '
        f'{_by(self.image_shape)}: give the data it was trained on.'
      )
    # Of labels that a network takes there are as many classes as it has weights for.
    classes = getattr(self.model, 'num_classes', None)
    if classes not in (None, dataset.num_classes):
      raise UserError(
        f'{dataset.name} has {dataset.num_classes or "no"} classes, and the model was trained on '
        f'{classes}: give the data it was trained on.'
      )
    return dataset

  def check_held_out(self, dataset: data.Dataset, split: str) -> None:
    """Refuses a split that may hold images the model was trained on."""
    now = dataset.num_examples('train')
    if split != 'test' and self.num_train not in (None, now):
      raise UserError(
        f'the model was trained on {self.num_train:,} images, and {dataset.name} has {now:,} '
        f'now: some of {split} may be among those. Give the data it was trained on.'
      )

  def held_out_images(self, num: int, seed: int) -> np.ndarray:
    """Some images [num, H, W, C] in [0, 1] that it was not trained on."""
    return self.held_out(num, seed)[0]

  def held_out(self, num: int, seed: int) -> tuple[np.ndarray, dict[str, jax.Array]]:
    """The same images, and what the network is told of them, see `base.Task.given`."""
    # Shuffled: a split may be sorted by class.
    batches = self.dataset.train_batches(num, seed=seed, split=self.config.eval.split)
    batch = next(batches)
    return batch['image'].astype(np.float32) / 255, self.task.given(batch)

  def training_images(self, size: int = 2048) -> Iterator[np.ndarray]:
    """All training images, uint8, in chunks of at most `size`.

    Those that are made on the fly, as two digits, are made as for an evaluation: as many,
    of the same digits, and not the very ones that the network saw.
    """
    for batch in self.dataset.eval_batches('train', size):
      yield batch['image'][batch['mask']]

  def with_latents(self, num: int) -> 'TrainedModel':
    if num < 1:
      raise UserError(f'--latents={num} must be at least 1.')
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.params))
    hidden = self.config.model.get('hidden') or 1
    memory.check(size + 4 * num * hidden, f'--latents={num}')
    params = self.task.with_latents(self.params, num)
    config = self.config.copy_and_resolve_references()
    # With fewer it is another network, which nobody has evaluated.
    metrics = self.metrics if num >= config.model.latent else None
    config.model.latent = num
    return dataclasses.replace(self, config=config, params=params, metrics=metrics)


def load(name: str | os.PathLike) -> TrainedModel:
  """A shipped model by its name, such as 'mnist', or one in a file by its path.

      m = draw_jax.load('mnist')
      images = m.sample(16, seed=0)

  A file that is not as it was written is refused.

  Args:
    name: that of a shipped model, or a path with a separator or that ends with .safetensors.
  """
  with _file_of(name) as (path, label):
    return _from_file(path, label)


def load_config(name: str | os.PathLike) -> Any:
  """The config of a model, see `load`; no device is touched."""
  with _file_of(name) as (path, label):
    about, _ = file_format.read(path, label)
    return _config_of(about, label)


def from_workdir(
  workdir: str | os.PathLike, which: str | int = 'best', *, ema: bool = True
) -> TrainedModel:
  """The model of a training run.

  Args:
    workdir: of the run.
    which: 'best' on validation, 'latest', or a step.
    ema: the moving average of the parameters, or the parameters themselves.
  """
  saved = checkpoint.load(workdir, which, ema=ema)
  try:
    registry.check(saved.config.model)
  except UserError as error:
    raise UserError(
      f'{workdir} has a config.json that describes no model of this version ({first_line(error)}).'
    ) from error
  progress = saved.progress
  return TrainedModel(
    name=files.name(workdir),
    config=saved.config,
    params=saved.params,
    step=saved.step,
    glimpses=progress['glimpses'],
    ema=ema and saved.config.optimizer.ema_decay > 0,
    metrics=saved.metrics,
    image_shape=tuple(progress['image_shape']),
    num_classes=progress['num_classes'],
    binarization=progress['binarization'],
    num_train=progress.get('num_train'),
    workdir=files.place(workdir),
  )


def find(
  workdir: str | None,
  model: str | None,
  which: str = 'best',
  *,
  ema: bool = True,
  data_dir: str | None = None,
) -> TrainedModel:
  """The model that the flags of a command name: one of a workdir, or one in a file.

  Args:
    workdir: of a training run.
    model: see `load`.
    which: checkpoint of the workdir: 'best', 'latest' or a step.
    ema: the moving average of the parameters, or the parameters themselves.
    data_dir: where prepared datasets live.
  """
  if (workdir is None) == (model is None):
    raise UserError('give either --workdir=DIR of a training run or --model=NAME.')
  if model is None:
    found = from_workdir(workdir, which, ema=ema)
    described = (
      f'the checkpoint of step {found.step} is of another model than config.json describes'
    )
    _check_params(found, found.params, described)
  elif which != 'best' or not ema:
    raise UserError(
      f'--model={model} is one checkpoint, averaged: --checkpoint and --noema go with --workdir.'
    )
  else:
    found = load(model)
  for array, numbers in file_format.by_name(found.params).items():
    if not np.isfinite(numbers).all():
      raise UserError(
        f'{found.name} holds numbers in {array} that are not finite: it cannot be used. Choose '
        'another checkpoint or file.'
      )
  return dataclasses.replace(found, data_dir=data_dir)


def save(
  path: pathlib.Path,
  trained: TrainedModel,
  *,
  commit: str | None = None,
  note: str | None = None,
  limit: int | None = None,
  half: bool = False,
) -> int:
  """Writes a model into a file, and reads it again; the file appears whole or not at all.

  Args:
    path: of the file.
    trained: the model, with averaged parameters.
    commit: of draw_jax.
    note: what else is to be known of it.
    limit: in bytes, above which nothing is written.
    half: round the parameters to float16, for half the size.

  Returns:
    The size in bytes.
  """
  averaged = 'averaged parameters' if trained.ema else 'no average'
  validation = trained.metrics and {
    'metrics': dict(trained.metrics),
    'measured': f'by training, {averaged}, each image of split {trained.config.eval.split} once, '
    f'T {trained.glimpses}',
  }
  about = {
    'config': trained.config.to_dict(),
    'dataset': trained.config.data.name,
    'binarization': trained.binarization,
    'image_shape': list(trained.image_shape),
    'num_classes': trained.num_classes,
    'num_train': trained.num_train,
    'trained_glimpses': trained.glimpses,
    'step': trained.step,
    'validation': validation,
    'note': note,
    'curve': _thinned(trained.curve, trained.task.metric, trained.step),
  }
  return file_format.write(
    path,
    about,
    trained.params,
    commit=commit,
    limit=limit,
    half=half,
    check=lambda written: _from_file(written, f'{path}'),
  )


def names() -> list[str]:
  suffix = file_format.SUFFIX
  found = (entry.name for entry in folder().iterdir())
  return sorted(n.removesuffix(suffix) for n in found if n.endswith(suffix) and n[0] != '.')


def folder():
  return importlib.resources.files('draw_jax.pretrained')


@contextlib.contextmanager
def _file_of(name: str | os.PathLike) -> Iterator[tuple[pathlib.Path, str]]:
  """The file of a model and what messages call it."""
  suffix = file_format.SUFFIX
  if not isinstance(name, str) or name.endswith(suffix) or pathlib.Path(name).name != name:
    yield pathlib.Path(name).expanduser(), f'{name}'
    return
  there = names()
  if name not in there:
    raise UserError(f'no model {name!r}: {_hint(name, there)}')
  with importlib.resources.as_file(folder() / f'{name}{suffix}') as path:
    yield path, f'{path}'


def _config_of(about: dict[str, Any], label: str) -> Any:
  """The config that a file describes."""
  if problem := file_format.wrong(about):
    raise UserError(f'{label} says {problem}: write it anew with draw_jax.export.')
  try:
    config = config_lib.from_json(json.dumps(about['config']))
    registry.check(config.model)
  except Exception as error:  # Whatever a module makes of values that it does not know.
    raise _no_model(about, label, error) from error
  return config


def _no_model(about: dict[str, Any], label: str, error: Exception) -> UserError:
  return UserError(
    f'{label} was written by draw_jax {about["exported_with"]["draw_jax"]} and describes no '
    f'model of this version ({first_line(error)}).'
  )


def _from_file(path: pathlib.Path, label: str) -> TrainedModel:
  about, tensors = file_format.read(path, label)
  config = _config_of(about, label)
  del about['config']
  try:
    found = TrainedModel(
      name=path.stem,
      config=config,
      params=None,
      step=about['step'],
      glimpses=about['trained_glimpses'],
      ema=config.optimizer.ema_decay > 0,
      metrics=about['validation'] and about['validation']['metrics'],
      image_shape=tuple(about['image_shape']),
      num_classes=about['num_classes'],
      binarization=about['binarization'],
      num_train=about.get('num_train'),
      provenance=about,
    )
    expected = _shapes(found)
  except Exception as error:  # Whatever a module makes of values that it does not know.
    raise _no_model(about, label, error) from error
  if all(tensor.dtype == np.float16 for tensor in tensors.values()):
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
  _check_params(found, tensors, f'{label} is of another model than its config describes')
  leaves = [jnp.asarray(tensors[name]) for name in file_format.by_name(expected)]
  params = jax.tree.unflatten(jax.tree.structure(expected), leaves)
  return dataclasses.replace(found, params=params)


def _thinned(rows: list[dict[str, Any]], metric: str, last: int) -> list[list]:
  """At most `_CURVE` rows [split, step, value] of each split, up to the last step."""
  thinned = []
  for split in dict.fromkeys(row['split'] for row in rows):
    points = [
      [split, row['step'], float(f'{row[metric]:.6g}')]
      for row in rows
      if row['split'] == split and row['step'] <= last and metric in row
    ]
    # From the end, so that the last one stays.
    thinned += points[:: -(len(points) // _CURVE + 1)][::-1]
  return thinned


def _shapes(trained: TrainedModel) -> base.Params:
  """Shapes and types of the parameters that the config describes."""
  image = jax.ShapeDtypeStruct(trained.image_shape, jnp.float32)
  return jax.eval_shape(trained.task.init, jax.random.key(0), image)


def _check_params(trained: TrainedModel, params: Any, problem: str) -> None:
  if wrong := file_format.difference(_shapes(trained), params):
    raise UserError(f'{problem}: {wrong}.')


def _hint(name: str, there: list[str]) -> str:
  if not there:
    return (
      'none is shipped. Train one with draw_jax.train and give its --workdir, or write its file '
      'with draw_jax.export and give the path.'
    )
  near = difflib.get_close_matches(name.lower(), there, n=1, cutoff=0.5)
  return (f'did you mean {near[0]!r}? ' if near else '') + f'There are {", ".join(there)}.'


def _by(shape: tuple[int, ...]) -> str:
  return ' x '.join(map(str, shape)) or 'a number'
