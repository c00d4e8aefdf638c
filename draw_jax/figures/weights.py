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
_OUTPUTS = ('bernoulli', 'discretized_logistic')
_PARAMS = (
  'canvas', 'encoder', 'decoder', 'posterior', 'write', 'read_window', 'write_window',
  'prior_statistics', 'mixing',
)  # fmt: skip
_DEPENDENT = {'prior_statistics', 'mixing'}


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


def heard_latents(params: Mapping[str, Any]) -> np.ndarray:
  """Indices of the latents that something depends on.

  The others are exactly as their prior, and the decoder does not hear them; where latents depend on
  each other, there are none.
  """
  layer, units = params['posterior'], params['encoder']['h'].size
  num = layer['bias'].size // 2
  if _DEPENDENT & set(params):
    return np.arange(num)
  statistics = np.concatenate([layer['kernel'], layer['bias'][None]]).reshape(units + 1, 2, num)
  told = (statistics != 0).any((0, 1))
  return np.flatnonzero(told | (np.asarray(params['decoder']['kernel'])[:num] != 0).any(1))


def take_latents(params: Mapping[str, Any], kept: np.ndarray) -> dict[str, Any]:
  """Parameters with the latents of these indices alone."""
  layer, decoder = params['posterior'], params['decoder']
  num = layer['bias'].size // 2
  both, rows = np.concatenate([kept, num + kept]), decoder['kernel']
  heard = np.concatenate([rows[kept], rows[num:]])
  posterior = {name: array[..., both] for name, array in layer.items()}
  return {**params, 'posterior': posterior, 'decoder': {**decoder, 'kernel': heard}}


def describe(model: DRAW, params: Mapping[str, Any]) -> dict[str, Any]:
  """The network for the engine, from parameters that `rounded` gave; for JSON.

  Keys are those that `Network` in engine.js has as fields. The bytes of the tensors, little endian,
  stand one behind the other in `weights`, in base64.
  """
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
    'components': model.components,
    'dtype': dtype,
    'tensors': [{'name': name, 'shape': list(t.shape)} for name, t in tensors.items()],
    'weights': base64.b64encode(content).decode(),
  }
