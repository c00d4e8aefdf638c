"""A trained network as the engine of the web pages takes it, `web/engine.js`."""

import base64
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from draw_jax.errors import UserError
from draw_jax.models.draw import DRAW
from draw_jax.pretrained import file_format

# What the engine knows.
_OUTPUTS = ('bernoulli',)
_PARAMS = (
  'canvas', 'encoder', 'decoder', 'posterior', 'write', 'read_window', 'write_window',
  'prior_statistics', 'mixing',
)  # fmt: skip


def check(model: DRAW, params: Mapping[str, Any]) -> None:
  """Raises a `UserError` unless the engine computes what this network does."""
  if model.output not in _OUTPUTS:
    raise UserError(
      f'model.output={model.output} is not known to the web page: it draws with '
      f'{" or ".join(_OUTPUTS)}.'
    )
  if unknown := sorted(set(params) - set(_PARAMS)):
    raise UserError(
      f'the model has parameters that are not known to the web page: {", ".join(unknown)}.'
    )


def rounded(params: Mapping[str, Any]) -> dict[str, Any]:
  """Parameters as they are in a page: float16, or float32 where some are too large for it."""
  with np.errstate(over='ignore'):
    half = jax.tree.map(lambda a: np.asarray(a).astype(np.float16), params)
  fits = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(half))
  return half if fits else jax.tree.map(lambda a: np.asarray(a, np.float32), params)


def describe(model: DRAW, params: Mapping[str, Any]) -> dict[str, Any]:
  """The network for the engine, from parameters that `rounded` gave; for JSON.

  Keys are those that `Network` in engine.js has as fields. The bytes of the tensors, little endian,
  stand one behind the other in `weights`, in base64.
  """
  check(model, params)
  height, width, channels = model.image_shape
  tensors = file_format.by_name(params)
  (dtype,) = {tensor.dtype.name for tensor in tensors.values()}
  content = b''.join(t.astype(t.dtype.newbyteorder('<')).tobytes() for t in tensors.values())
  return {
    'height': height,
    'width': width,
    'channels': channels,
    'glimpses': model.glimpses,
    'hidden': model.hidden,
    'latent': model.latent,
    'attention': model.attention,
    'readSize': model.read_size,
    'writeSize': model.write_size,
    'output': model.output,
    'dtype': dtype,
    'tensors': [{'name': name, 'shape': list(t.shape)} for name, t in tensors.items()],
    'weights': base64.b64encode(content).decode(),
  }
