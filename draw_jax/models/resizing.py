"""Another number of latents for trained parameters of DRAW."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from draw_jax.attention import Array


def with_latents(params: Mapping[str, Any], latent: int, num: int) -> dict[str, Any]:
  """What `DRAW.with_latents` gives, for parameters with `latent` latents."""
  posterior, decoder = params['posterior'], params['decoder']
  mean, log_std = jnp.split(posterior['kernel'], 2, -1)
  heard, rest = jnp.split(decoder['kernel'], [latent])
  kept = jnp.sort(jnp.argsort(-jnp.linalg.norm(mean, axis=0))[:num])

  def resized(a: Array, axis: int) -> jax.Array:
    size = [(0, num - len(kept)) if i == axis else (0, 0) for i in range(a.ndim)]
    return jnp.pad(a.take(kept, axis), size)

  kernel = jnp.concatenate([resized(a, 1) for a in (mean, log_std)], -1)
  bias = jnp.concatenate([resized(a, 0) for a in jnp.split(posterior['bias'], 2)])
  heard = jnp.concatenate([resized(heard, 0), rest])
  changed = {
    'posterior': {'kernel': kernel, 'bias': bias},
    'decoder': {**decoder, 'kernel': heard},
  }
  return {**params, **changed}
