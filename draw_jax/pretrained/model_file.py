"""Trained models in files, a small one each; some of them ship with the package.

A file has the safetensors format, which holds arrays and no code. Its tensors are the
averaged parameters, or without an average they themselves, with names such as
'decoder/kernel'. Its metadata has one key, 'draw_jax', with a JSON object:

  schema             'draw_jax.model/1'
  config             of the run
  dataset, binarization, image_shape, num_classes, num_train
                     of the data that the model was trained on, and how many pictures
  trained_steps      T of its training
  step               training steps taken, after those of the model in train.start_from of
                     the config, if it names one
  validation         `metrics` of training's own evaluation at this step, and how it was
                     `measured`; null if there was none
  exported_with      versions of draw_jax, jax and flax; the commit of draw_jax or null
  note               what else is to be known, or null
  sha256             of all tensors and of the rest of this object, see `_digest`
"""

import contextlib
import difflib
import hashlib
import importlib.metadata
import importlib.resources
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from ml_collections import config_dict

from draw_jax import config as config_lib
from draw_jax import files
from draw_jax.errors import UserError, first_line
from draw_jax.tasks import registry as tasks
from draw_jax.training import checkpoint

SUFFIX = '.safetensors'
_KEY, _SCHEMA = 'draw_jax', 'draw_jax.model/1'


class Model(NamedTuple):
  """A trained model, ready for use."""

  model: nn.Module  # with the T that it was trained with
  params: Any  # averaged ones, if there was an average
  config: config_dict.ConfigDict  # of the run
  provenance: dict[str, Any]  # what the file says besides, see the module's docstring


def load(name: str | os.PathLike) -> Model:
  """A shipped model by its name, such as 'mnist', or one in a file by its path.

      m = draw_jax.load('mnist')
      canvas, trace = m.model.apply({'params': m.params}, 64, key, method='generate')

  Args:
    name: that of a shipped model, or a path with a separator or that ends with .safetensors.
  """
  loaded, provenance = read(name)
  task = tasks.create(loaded.config.model, loaded.image_shape, loaded.num_classes)
  return Model(task.model.clone(steps=loaded.steps), loaded.params, loaded.config, provenance)


def find(
  workdir: str | None, model: str | None, which: str = 'best', *, ema: bool = True
) -> tuple[checkpoint.Loaded, dict[str, Any] | None]:
  """The model that the flags of a binary name: one of a workdir, or one in a file.

  Args:
    workdir: of a training run.
    model: see `load`.
    which: checkpoint of the workdir: 'best', 'latest' or a step.
    ema: the moving average of the parameters, or the parameters themselves.

  Returns:
    The model, and the provenance of one in a file.
  """
  if (workdir is None) == (model is None):
    raise UserError('give either --workdir=DIR of a training run or --model=NAME.')
  if model is None:
    return checkpoint.load(workdir, which, ema=ema), None
  if which != 'best' or not ema:
    raise UserError(
      f'--model={model} is one checkpoint, averaged: --checkpoint and --noema go with --workdir.'
    )
  return read(model)


def names() -> list[str]:
  """The shipped models."""
  files_there = (entry.name for entry in folder().iterdir())
  return sorted(name.removesuffix(SUFFIX) for name in files_there if _is_model(name))


def folder():
  """Where the shipped models are."""
  return importlib.resources.files('draw_jax.pretrained')


def read(name: str | os.PathLike) -> tuple[checkpoint.Loaded, dict[str, Any]]:
  """A model and its provenance, see `load`; refuses a file that is not as it was written."""
  if not isinstance(name, str) or name.endswith(SUFFIX) or pathlib.Path(name).name != name:
    return _read(pathlib.Path(name), f'{name}')
  there = names()
  if name not in there:
    raise UserError(f'no model {name!r}: {_hint(name, there)}')
  with importlib.resources.as_file(folder() / f'{name}{SUFFIX}') as path:
    return _read(path, f'{path}')


def read_to_train(name: str, like) -> checkpoint.Loaded:
  """A trained model to train further.

  Args:
    name: see `load`; ~ stands for the home folder.
    like: the parameters of the network to be trained, or their shapes and types.
  """
  loaded, _ = read(os.path.expanduser(name))
  wrong = difference(like, loaded.params)
  if wrong:
    raise UserError(
      f'{name} is of another network than the config describes: {wrong}. Give the values of '
      'model that it was trained with, and pictures of the same size.'
    )
  return loaded


def difference(expected, found) -> str | None:
  """Where the arrays of two trees first differ by name, shape or type; the second is wrong."""
  wanted, there = ({n: _form(a) for n, a in _named(t).items()} for t in (expected, found))
  for name in sorted({*wanted, *there}):
    if wanted.get(name) != there.get(name):
      return f'{name} is {there.get(name, "missing")}, not {wanted.get(name, "there")}'
  return None


def write(
  path: pathlib.Path,
  loaded: checkpoint.Loaded,
  *,
  commit: str | None = None,
  note: str | None = None,
  limit: int | None = None,
) -> int:
  """Writes a model, and reads it again; the file appears whole or not at all.

  Args:
    path: of the file.
    loaded: the model, with averaged parameters.
    commit: of draw_jax.
    note: what else is to be known of it.
    limit: in bytes, above which nothing is written.

  Returns:
    The size in bytes.
  """
  tensors = {name: np.ascontiguousarray(leaf) for name, leaf in _named(loaded.params).items()}
  about = _describe(loaded) | {'note': note}
  about['exported_with'] = versions() | {'commit': commit}
  about['sha256'] = _digest(about, tensors)
  text = json.dumps(about, sort_keys=True, allow_nan=False)
  content = safetensors.numpy.save(tensors, {_KEY: text})
  if limit is not None and len(content) > limit:
    raise UserError(
      f'the model has {len(content) / 1e6:.1f} MB, and only those of up to {limit / 1e6:.0f} MB '
      'ship with the package: give --output=FILE in place of --name.'
    )
  with files.writing(path) as temporary:
    temporary.write_bytes(content)
    _read(temporary, f'{path}')
  return len(content)


def versions() -> dict[str, str]:
  """Of this package and of those that its models are made with."""
  try:
    own = importlib.metadata.version('draw_jax')
  except importlib.metadata.PackageNotFoundError:
    own = 'unknown'
  return {'draw_jax': own, 'jax': jax.__version__, 'flax': flax.__version__}


def _describe(loaded: checkpoint.Loaded) -> dict[str, Any]:
  """What the file says of the model itself."""
  validation = loaded.metrics and {
    'metrics': loaded.metrics,
    'measured': f'by training, {"averaged parameters" if loaded.ema else "no average"}, each image '
    f'of split {loaded.config.eval.split} once, T {loaded.steps}',
  }
  return {
    'schema': _SCHEMA,
    'config': loaded.config.to_dict(),
    'dataset': loaded.config.data.name,
    'binarization': loaded.binarization,
    'image_shape': list(loaded.image_shape),
    'num_classes': loaded.num_classes,
    'num_train': loaded.num_train,
    'trained_steps': loaded.steps,
    'step': loaded.step,
    'validation': validation,
  }


def _read(path: pathlib.Path, label: str) -> tuple[checkpoint.Loaded, dict[str, Any]]:
  about, tensors = _content(path, label)
  try:
    config = config_lib.from_json(json.dumps(about.pop('config')))
    image_shape = tuple(about['image_shape'])
    task = tasks.create(config.model, image_shape, about['num_classes'])
    picture = jax.ShapeDtypeStruct(image_shape, jnp.float32)
    expected = jax.eval_shape(task.init, jax.random.key(0), picture)
  except Exception as error:  # Whatever a module makes of values that it does not know.
    raise UserError(
      f'{label} was written by draw_jax {about["exported_with"]["draw_jax"]} and describes no '
      f'model of this version ({first_line(error)}).'
    ) from error
  wrong = difference(expected, tensors)
  if wrong:
    raise UserError(f'{label} is of another model than its config describes: {wrong}.')
  leaves = [jnp.asarray(tensors[name]) for name in _named(expected)]
  loaded = checkpoint.Loaded(
    config=config,
    params=jax.tree.unflatten(jax.tree.structure(expected), leaves),
    step=about['step'],
    steps=about['trained_steps'],
    ema=config.optimizer.ema_decay > 0,
    metrics=about['validation'] and about['validation']['metrics'],
    image_shape=image_shape,
    num_classes=about['num_classes'],
    binarization=about['binarization'],
    num_train=about.get('num_train'),
  )
  return loaded, about


def _content(path: pathlib.Path, label: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """The metadata and the tensors of a file that has both as they were written."""
  if not files.is_there(path):
    raise UserError(f'there is no file {label}.')
  try:
    with safetensors.safe_open(path, framework='numpy') as file:
      about = (file.metadata() or {}).get(_KEY)
      tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
  except OSError as error:
    raise UserError(f'cannot read {label}: {first_line(error)}.') from error
  except Exception as error:  # Besides its own errors, those of types that numpy lacks.
    raise UserError(f'{label} is damaged or no safetensors file ({first_line(error)}).') from error
  with contextlib.suppress(ValueError):
    about = json.loads(about or '{}')
  if not isinstance(about, dict) or not str(about.get('schema')).startswith('draw_jax.model/'):
    raise UserError(f'{label} is no model of draw_jax: draw_jax.export writes such files.')
  if about['schema'] != _SCHEMA:
    raise UserError(
      f'{label} has the format {about["schema"]}, this version reads {_SCHEMA}: update draw_jax.'
    )
  if about.get('sha256') != _digest(about, tensors):
    raise UserError(f'{label} is damaged: its content does not have the sha256 that it names.')
  return about, tensors


def _digest(about: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
  """The sha256 of the JSON with sorted keys, but for `sha256`; then, by name, of each tensor.

  Each as a line of its name, type and shape, and its bytes.
  """
  rest = {key: value for key, value in about.items() if key != 'sha256'}
  digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
  for name, tensor in sorted(tensors.items()):
    digest.update(f'\n{name} {_form(tensor)}\n'.encode())
    digest.update(tensor.astype(tensor.dtype.newbyteorder('<'), copy=False).tobytes())
  return digest.hexdigest()


def _named(tree) -> dict[str, Any]:
  """The leaves of a tree, in its order, by names such as 'decoder/kernel'."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def _form(array) -> str:
  return f'{array.dtype} {" x ".join(map(str, array.shape)) or "number"}'


def _is_model(name: str) -> bool:
  return name.endswith(SUFFIX) and not name.startswith('.')


def _hint(name: str, there: list[str]) -> str:
  if not there:
    return (
      'none is shipped. Train one with draw_jax.train and give its --workdir, or write its file '
      'with draw_jax.export and give the path.'
    )
  near = difflib.get_close_matches(name.lower(), there, n=1, cutoff=0.5)
  return (f'did you mean {near[0]!r}? ' if near else '') + f'There are {", ".join(there)}.'
