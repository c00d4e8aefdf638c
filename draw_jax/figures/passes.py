"""Passes of a trained network whose every step is wanted as arrays.

Example i of a pass depends on the seed and on i alone, so the first images of
a large grid are those of a small one, whatever the size of the chunks that the
work is done in.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from draw_jax.attention import Window
from draw_jax.models.draw import DRAW

CHUNK = 128  # examples worked on at once

Given = Mapping[str, jax.Array]


class Drawing(NamedTuple):
  """n images and how they were drawn; NumPy arrays, T = 1 if only the last step is kept."""

  images: np.ndarray  # [T, n, H, W, C] in [0, 1]
  write: Window | None = None  # each field [T, n]
  read: Window | None = None  # each field [T, n]; None in generation
  kl: np.ndarray | None = None  # [T, n], nats; None in generation


class Looking(NamedTuple):
  """How a classifier looked at n images; NumPy arrays."""

  window: Window  # where each glimpse was taken, each field [T, n]
  glimpse: np.ndarray  # [T, n, h, w, C], what was seen


def look(model: nn.Module, params, images) -> Looking:
  """Classifies images [n, H, W, C]; every glimpse is kept."""
  images = jnp.asarray(images, jnp.float32)
  return _in_chunks(lambda i: _look(model, params, images[i]), len(images), 'looking')


def classify(model: nn.Module, params, images) -> np.ndarray:
  """The probabilities of the classes [n, K] of images [n, H, W, C]."""
  images = jnp.asarray(images, jnp.float32)
  return _in_chunks(lambda i: _classify(model, params, images[i]), len(images), 'classifying')[0]


def generate(
  model: DRAW,
  params,
  num: int,
  seed: int,
  *,
  glimpses: int | None = None,
  trace: bool = True,
  binary: bool = False,
  given: Given | None = None,
) -> Drawing:
  """Draws images from the prior.

  Args:
    model: the network.
    params: its parameters.
    num: n, how many images.
    seed: of all randomness.
    glimpses: T; None takes the model's own.
    trace: keep every step, or else only the last.
    binary: draw the pixels from D(X | c), or else show their mean, as the paper.
    given: what the network is told of each image besides, [n, ...] each; see `tasks.base.Task`.
  """
  fixed = {'glimpses': glimpses or model.glimpses, 'trace': trace, 'binary': binary}
  key = jax.random.key(seed)
  draw = lambda i: _generate(model, params, key, i, _of(given, i), **fixed)  # noqa: E731
  return _in_chunks(draw, num, 'drawing')


def reconstruct(
  model: DRAW,
  params,
  images,
  seed: int,
  *,
  trace: bool = True,
  binary: bool = False,
  given: Given | None = None,
) -> Drawing:
  """Encodes images [n, H, W, C] and draws them again, with the noise of an evaluation's first draw.

  Without `trace` only the last step is kept, and no window.
  """
  images = jnp.asarray(images, jnp.float32)
  fixed = {'trace': trace, 'binary': binary}
  key = jax.random.key(seed)
  draw = lambda i: _reconstruct(  # noqa: E731
    model, params, key, i, images[i], _of(given, i), **fixed
  )
  return _in_chunks(draw, len(images), 'reconstructing')


def interpolate(
  model: DRAW,
  params,
  images,
  others,
  between: int,
  seed: int,
  *,
  binary: bool = False,
  given: Given | None = None,
) -> np.ndarray:
  """Images on the way from some images to others, on straight lines between their latents.

  Both ends take the same noise: the latents that say nothing about an image are
  noise, and the middle between two independent draws of it would be too small.

  Args:
    model: the network.
    params: its parameters.
    images: [n, H, W, C], where to start.
    others: [n, H, W, C], where to go.
    between: K, images of each way, the reconstructions of both ends among them.
    seed: of the noise.
    binary: draw the pixels, or else show their mean.
    given: what the network is told of the images and then of the others, [2 n, ...] each; on the
      way it is told what is between.

  Returns:
    [n, K, H, W, C], in [0, 1].
  """
  num = len(images)
  key, indices = jax.random.key(seed), jnp.arange(num)
  noise = _noise(model, key, indices, model.glimpses, draw=0)
  ends = jnp.concatenate([jnp.asarray(images), jnp.asarray(others)])
  given = _of(given, jnp.arange(2 * num))
  latents = _latents(model, params, ends, jnp.concatenate([noise, noise], 1), given)
  first = jnp.split(latents, 2, 1)[0], _of(given, indices)
  last = jnp.split(latents, 2, 1)[1], _of(given, num + indices)
  fixed, ways = {'trace': False, 'binary': binary}, []
  for a in np.linspace(0, 1, between):
    z, told = jax.tree.map(lambda x, y, a=a: x + (y - x) * a, first, last)
    ways.append(_decode(model, params, z, key, indices, told, **fixed).images[0])
  return np.stack(ways, 1)


def decode(
  model: DRAW, params, latents, seed: int, *, trace: bool = True, binary: bool = False
) -> Drawing:
  """Draws what latents [T, n, Z] lead to; the seed is of the pixels, where `binary` draws them."""
  fixed, key = {'trace': trace, 'binary': binary}, jax.random.key(seed)
  draw = lambda i: _decode(model, params, latents[:, i], key, i, {}, **fixed)  # noqa: E731
  return _in_chunks(draw, latents.shape[1], 'drawing')


# Compiled once for a model and a number of examples, however many figures ask.
@functools.partial(jax.jit, static_argnames='model')
def _look(model, params, x) -> Looking:
  _, trace = model.apply({'params': params}, x, trace=True)
  return Looking(trace.window, trace.glimpse)


@functools.partial(jax.jit, static_argnames='model')
def _classify(model, params, x) -> jax.Array:
  """[1, n, K]."""
  return jax.nn.softmax(model.apply({'params': params}, x)[0])[None]


@functools.partial(jax.jit, static_argnames=('model', 'glimpses', 'trace', 'binary'))
def _generate(model, params, key, indices, given, *, glimpses, trace, binary) -> Drawing:
  noise = _noise(model, key, indices, glimpses)
  drawn = model.apply({'params': params}, noise, trace=trace, method='draw', **given)
  return _drawing(model, drawn, key, indices, binary)


@functools.partial(jax.jit, static_argnames=('model', 'trace', 'binary'))
def _reconstruct(model, params, key, indices, x, given, *, trace, binary) -> Drawing:
  noise = _noise(model, key, indices, model.glimpses, draw=0)
  terms = model.apply({'params': params}, x, noise, trace=trace, method='infer', **given)
  canvas, *windows = terms.trace if trace else (terms.canvas[None], None, None)
  return Drawing(_show(model, canvas, key, indices, binary), *windows, terms.kl)


@functools.partial(jax.jit, static_argnames='model')
def _latents(model, params, x, noise, given) -> jax.Array:
  """The latents [T, B, Z] that the encoder draws for images [B, H, W, C]."""
  return model.apply({'params': params}, x, noise, method='infer', **given).latents


@functools.partial(jax.jit, static_argnames=('model', 'trace', 'binary'))
def _decode(model, params, latents, key, indices, given, *, trace, binary) -> Drawing:
  drawn = model.apply({'params': params}, latents, trace=trace, method='decode', **given)
  return _drawing(model, drawn, key, indices, binary)


def _drawing(model, drawn, key, indices, binary) -> Drawing:
  """Of a canvas and a Trace or None."""
  canvas, trace = drawn
  canvas, write = (trace.canvas, trace.write) if trace else (canvas[None], None)
  return Drawing(_show(model, canvas, key, indices, binary), write)


def _of(given: Given | None, indices) -> dict[str, jax.Array]:
  """What the network is told of the examples of these indices."""
  return {name: jnp.asarray(array)[indices] for name, array in (given or {}).items()}


def _noise(model: DRAW, key, indices, glimpses: int, draw: int | None = None) -> jax.Array:
  """[T, n, Z], that of each example from the key and its index, and the number of a draw."""
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, indices)
  if draw is not None:  # as `draw_jax.evaluation.evaluator` has it
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, draw)
  return jax.vmap(lambda key: model.noise(key, 1, glimpses)[:, 0], out_axes=1)(keys)


def _show(model: DRAW, canvas, key, indices, binary: bool) -> jax.Array:
  """Images [T, n, H, W, C] of canvases; all steps of one example share their randomness."""
  if not binary:
    return model.mean(canvas)
  # Another stream than that of the latents.
  keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, 2**31), indices)
  return jax.vmap(lambda step: jax.vmap(model.sample)(step, keys))(canvas)


def _in_chunks(draw, num: int, words: str):
  """Joins what `draw` gives for the indices 0 to num - 1, with progress on a terminal."""
  parts = []
  with tqdm.tqdm(total=num, desc=words, disable=None if num > CHUNK else True) as bar:
    for start in range(0, num, CHUNK):
      indices = jnp.arange(start, min(start + CHUNK, num))
      parts.append(jax.device_get(draw(indices)))
      bar.update(len(indices))
  return jax.tree.map(lambda *arrays: np.concatenate(arrays, 1), *parts)
