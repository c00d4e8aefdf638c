"""Trained models in files, a small one each.

A file has the safetensors format, which holds arrays and no code. Its tensors are the
averaged parameters, or without an average they themselves, with names such as
'decoder/kernel', as they are or rounded to float16. Its metadata has one key, 'draw_jax',
with a JSON object:

  schema             'draw_jax.model/3'; files of 1 and 2 are read too, those of 1 with the older
                     names of some fields, see `draw_jax.renamed`
  config             of the run
  dataset, binarization, image_shape, num_classes, num_train
                     of the data that the model was trained on, and how many images
  trained_glimpses   T of its training
  step               training steps taken, after those of the model in train.start_from of
                     the config, if it names one
  validation         `metrics` of training's own evaluation at this step, and how it was
                     `measured`; null if there was none
  exported_with      versions of draw_jax, jax and flax; the commit of draw_jax or null
  note               what else is to be known, or null
  curve              the cost in training, rows [split, step, value]; not in older files
  sha256             of all tensors and of the rest of this object, see `digest`
"""

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import flax
import jax
import numpy as np
import safetensors
import safetensors.numpy

import draw_jax
from draw_jax import files, renamed
from draw_jax.errors import UserError, first_line

SUFFIX = '.safetensors'
_KEY, _SCHEMA = 'draw_jax', 'draw_jax.model/3'
_READABLE = ('draw_jax.model/1', 'draw_jax.model/2', _SCHEMA)


def write(
  path: pathlib.Path,
  about: Mapping[str, Any],
  params: Any,
  *,
  commit: str | None,
  limit: int | None,
  half: bool,
  check: Callable[[pathlib.Path], Any],
) -> int:
  """Writes a file, which appears whole or not at all.

  Args:
    path: of the file.
    about: what it says of the model, but for the schema, the versions and the hash.
    params: of the model.
    commit: of draw_jax.
    limit: in bytes, above which nothing is written.
    half: round the parameters to float16.
    check: reads what was written, and raises if it is wrong.

  Returns:
    The size in bytes.
  """
  tensors = as_arrays(params)
  if half:
    tensors = {name: _rounded(name, tensor) for name, tensor in tensors.items()}
  about = {'schema': _SCHEMA, **about, 'exported_with': versions() | {'commit': commit}}
  about['sha256'] = digest(about, tensors)
  text = json.dumps(about, sort_keys=True, allow_nan=False)
  content = safetensors.numpy.save(tensors, {_KEY: text})
  if limit is not None and len(content) > limit:
    raise UserError(
      f'the model has {len(content) / 1e6:.1f} MB, and only those of up to {limit / 1e6:.0f} MB '
      'ship with the package: give --output=FILE in place of --name.'
    )
  with files.writing(path) as temporary:
    temporary.write_bytes(content)
    check(temporary)
  return len(content)


def read(path: pathlib.Path, label: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Metadata, by today's names, and tensors of a file that has both as they were written."""
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
  with contextlib.suppress(ValueError, RecursionError):
    about = json.loads(about or '{}')
  if not isinstance(about, dict) or not str(about.get('schema')).startswith('draw_jax.model/'):
    raise UserError(f'{label} is no model of draw_jax: draw_jax.export writes such files.')
  if about['schema'] not in _READABLE:
    raise UserError(
      f'{label} has the format {about["schema"]}, this version reads {_SCHEMA}: update draw_jax.'
    )
  if about.get('sha256') != digest(about, tensors):
    raise UserError(f'{label} is damaged: its content does not have the sha256 that it names.')
  return renamed.record(about), tensors


def _count(value: Any) -> bool:
  return isinstance(value, int) and 0 < value < 2**31


# What a model file says of a model, and when it is right.
_ABOUT = {
  'config': lambda value: isinstance(value, dict),
  'binarization': lambda value: isinstance(value, str),
  'exported_with': lambda value: isinstance(value, dict) and 'draw_jax' in value,
  'image_shape': lambda value: (
    isinstance(value, list) and len(value) == 3 and all(map(_count, value))
  ),
  'num_classes': lambda value: value is None or _count(value),
  'num_train': lambda value: value is None or _count(value),
  'trained_glimpses': lambda value: _count(value) and value <= 100_000,
  'step': lambda value: value == 0 or _count(value),
  'validation': lambda value: (
    value is None or (isinstance(value, dict) and isinstance(value.get('metrics'), dict))
  ),
  'curve': lambda value: (
    value is None
    or (isinstance(value, list) and all(isinstance(row, list) and len(row) == 3 for row in value))
  ),
}


def wrong(about: Mapping[str, Any]) -> str | None:
  """The first thing that a file says of its model and that cannot be."""
  for name, is_right in _ABOUT.items():
    if name not in about and name not in ('num_train', 'curve'):  # which older files lack
      return f'no {name}'
    if not is_right(about.get(name)):
      return f'{name}={str(about[name])[:40]}'
  return None


def _rounded(name: str, tensor: np.ndarray) -> np.ndarray:
  with np.errstate(over='ignore'):
    rounded = tensor.astype(np.float16)
  if not np.isfinite(rounded).all():
    raise UserError(f'{name} has numbers too large for 16 bits: write the model without --float16.')
  return rounded


def versions() -> dict[str, str]:
  """Of this package and of those that its models are made with."""
  return {'draw_jax': draw_jax.__version__, 'jax': jax.__version__, 'flax': flax.__version__}


def difference(expected: Any, found: Any) -> str | None:
  """Where the arrays of two trees first differ by name, shape or type; the second is wrong."""
  wanted, there = ({n: _form(a) for n, a in by_name(t).items()} for t in (expected, found))
  for name in sorted({*wanted, *there}):
    if wanted.get(name) != there.get(name):
      return f'{name} is {there.get(name, "missing")}, not {wanted.get(name, "there")}'
  return None


def by_name(tree: Any) -> dict[str, Any]:
  """The leaves of a tree, in its order, by names such as 'decoder/kernel'."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def as_arrays(params: Any) -> dict[str, np.ndarray]:
  """By names such as 'decoder/kernel', on the host."""
  return {name: np.ascontiguousarray(leaf) for name, leaf in by_name(params).items()}


def digest(about: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
  """The sha256 of the JSON with sorted keys, but for `sha256`; then, by name, of each tensor.

  Each as a line of its name, type and shape, and its bytes.
  """
  rest = {key: value for key, value in about.items() if key != 'sha256'}
  digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
  for name, tensor in sorted(tensors.items()):
    digest.update(f'\n{name} {_form(tensor)}\n'.encode())
    digest.update(tensor.astype(tensor.dtype.newbyteorder('<'), copy=False).tobytes())
  return digest.hexdigest()


def _form(array: Any) -> str:
  return f'{array.dtype} {" x ".join(map(str, array.shape)) or "number"}'
