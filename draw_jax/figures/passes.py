"""Passes of a DRAW model whose every step is wanted as arrays.

Example i of a pass depends on the seed and on i alone, so the first pictures of
a large grid are those of a small one, whatever the size of the chunks that the
work is done in.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from draw_jax import distributions
from draw_jax.attention import Window
from draw_jax.model import DRAW

CHUNK = 128  # examples worked on at once


class Drawing(NamedTuple):
  """n pictures and how they were drawn; NumPy arrays, T = 1 if only the last step is kept."""

  images: np.ndarray  # [T, n, H, W, C] in [0, 1]
  write: Window | None = None  # each field [T, n]
  read: Window | None = None  # each field [T, n]; None in generation
  kl: np.ndarray | None = None  # [T, n], nats; None in generation


def generate(
  model: DRAW,
  params,
  num: int,
  seed: int,
  *,
  steps: int | None = None,
  trace: bool = True,
  binary: bool = False,
) -> Drawing:
  """Draws pictures from the prior.

  Args:
    model: the network.
    params: its parameters.
    num: n, how many pictures.
    seed: of all randomness.
    steps: T; None takes the model's own.
    trace: keep every step, or else only the last.
    binary: draw the pixels from D(X | c), or else show their mean, as the paper.
  """
  steps = steps or model.steps

  @jax.jit
  def draw(params, indices):
    latents = jax.vmap(lambda i: _noise(seed, i, steps, model.latent), out_axes=1)(indices)
    canvas, traced = model.apply({'params': params}, latents, trace=trace, method='decode')
    if not trace:
      return Drawing(_show(model, canvas[None], seed, indices, binary))
    return Drawing(_show(model, traced.canvas, seed, indices, binary), traced.write)

  return _in_chunks(lambda i: draw(params, i), num, 'drawing')


def reconstruct(
  model: DRAW, params, images, seed: int, *, steps: int | None = None, binary: bool = False
) -> Drawing:
  """Encodes pictures [n, H, W, C] and draws them again; every step is kept."""
  images = jnp.asarray(images, jnp.float32)
  steps = steps or model.steps

  @jax.jit
  def draw(params, x, indices):
    noise = jax.vmap(lambda i: _noise(seed, i, steps, model.latent), out_axes=1)(indices)
    terms = model.apply({'params': params}, x, noise, trace=True, method='infer')
    shown = _show(model, terms.trace.canvas, seed, indices, binary)
    return Drawing(shown, terms.trace.write, terms.trace.read, terms.kl)

  return _in_chunks(lambda i: draw(params, images[i], i), len(images), 'reconstructing')


def interpolate(
  model: DRAW, params, images, others, between: int, seed: int, *, steps: int | None = None
) -> np.ndarray:
  """Pictures on the way from some pictures to others, on straight lines between their latents.

  Both ends take the same noise: the latents that say nothing about a picture are
  noise, and the middle between two independent draws of it would be too small.

  Args:
    model: the network.
    params: its parameters.
    images: [n, H, W, C], where to start.
    others: [n, H, W, C], where to go.
    between: K, pictures of each way, the reconstructions of both ends among them.
    seed: of the noise.
    steps: T; None takes the model's own.

  Returns:
    [n, K, H, W, C], in [0, 1].
  """
  num, steps = len(images), steps or model.steps
  noise = jax.vmap(lambda i: _noise(seed, i, steps, model.latent), out_axes=1)(jnp.arange(num))
  ends = jnp.concatenate([jnp.asarray(images), jnp.asarray(others)])
  latents = _latents(model, params, ends, jnp.concatenate([noise, noise], 1))
  first, last = jnp.split(latents, 2, 1)
  decode = jax.jit(lambda z: model.mean(model.apply({'params': params}, z, method='decode')[0]))
  ways = [decode(first + (last - first) * a) for a in np.linspace(0, 1, between)]
  return np.stack(ways, 1)


def _latents(model: DRAW, params, x, noise) -> jax.Array:
  """The latents [T, B, Z] that the encoder draws for pictures [B, H, W, C]."""

  def run(network):
    def step(state, noise):
      state, statistics, _ = network._step(state, x, noise)
      return state, distributions.gaussian_sample(*jnp.split(statistics, 2, -1), noise)

    return jax.lax.scan(step, network._initial(len(x)), noise)[1]

  return jax.jit(nn.apply(run, model))({'params': params})


def _noise(seed: int, index, steps: int, latent: int) -> jax.Array:
  """[T, Z] standard normal for one example."""
  return jax.random.normal(jax.random.fold_in(jax.random.key(seed), index), (steps, latent))


def _show(model: DRAW, canvas, seed: int, indices, binary: bool) -> jax.Array:
  """Pictures [T, n, H, W, C] of canvases; all steps of one example share their randomness."""
  if not binary:
    return model.mean(canvas)
  # Another stream than that of the latents.
  keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(seed), i))(indices)
  keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
  each = jax.vmap(model.sample, in_axes=(0, 0))  # over examples
  return jax.vmap(lambda canvases: each(canvases, keys))(canvas)


def _in_chunks(draw, num: int, words: str) -> Drawing:
  """Joins what `draw` gives for the indices 0 to num - 1, with progress on a terminal."""
  parts = []
  with tqdm.tqdm(total=num, desc=words, disable=None if num > CHUNK else True) as bar:
    for start in range(0, num, CHUNK):
      indices = jnp.arange(start, min(start + CHUNK, num))
      parts.append(jax.device_get(draw(indices)))
      bar.update(len(indices))
  return jax.tree.map(lambda *arrays: np.concatenate(arrays, 1), *parts)
