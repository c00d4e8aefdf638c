"""Completion: the hidden pixels of images, drawn given the others.

The encoder has learned q(z | x) of whole images alone. Population Monte Carlo (Cappé et al., 2004)
makes draws of p(z | visible pixels) of it. Each image has K particles, whose hidden pixels are
filled in somehow; every round

    draws z_k under q(z | x_k), and gives it the weight p(visible | z_k) p(z_k) / q(z_k | x_k),
    draws K of the z_k by their weights,
    fills the hidden pixels of each particle anew, by its own p(hidden | z_k).

Pixels are independent given the canvas, so p(visible | z) is exact, and so are the weights of every
round, however bad the filling that it began with: with K the draws tend to those of
p(z | visible), and the mean weight has the expectation p(visible). Rounds better the fillings. They
begin with those images, of many drawn from the prior, under which the visible pixels are the most
likely.

Letters of the shapes: N images, K particles, P images drawn from the prior; others as in
`draw_jax.attention`.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from draw_jax.errors import UserError
from draw_jax.models.draw import DRAW

_ROWS = 256  # particles worked on at once
_PRIOR = 2**31  # in place of an image's number, for the randomness of what all share
_POOL, _POOL_NUMBERS = 4096, 2**26  # P, and at most so many numbers in their canvases
_SHARE = 4  # Each image is compared with one in so many of those.


class Particles(NamedTuple):
  """What a round makes of each image.

  Attributes:
    canvas: [N, K, H, W, M], of the draws of z that its weights chose; equally likely.
    latents: [T, N, K, Z], these draws; None before the first round.
    log_weights: [N, K], before the choice; the log of their mean bounds log p(visible) from below
      in expectation.
  """

  canvas: jax.Array | np.ndarray
  latents: jax.Array | np.ndarray | None
  log_weights: jax.Array | np.ndarray


def posterior(
  model: DRAW, params, images, hidden, seed: int, *, particles: int, rounds: int
) -> Particles:
  """Draws of p(z | visible pixels), and what they draw, as NumPy arrays.

  Image i depends on the seed and on i alone.

  Args:
    model: the network.
    params: its parameters.
    images: [N, H, W, C] in [0, 1]; what hidden pixels hold does not matter.
    hidden: bool [N, H, W].
    seed: of all randomness.
    particles: K.
    rounds: at least 1.
  """
  if model.distribution.pixel_log_probs is None:
    raise UserError(
      f'the output {model.output!r} has no pixel_log_probs, which completion goes by: see '
      'draw_jax.distributions.Output.'
    )
  key = jax.random.key(seed)
  canvas = math.prod(model.image_shape[:2]) * model.distribution.canvas_channels
  pool = max(particles, min(_POOL, _POOL_NUMBERS // canvas))
  drawn, _ = _prior(model, params, jax.random.fold_in(key, _PRIOR), pool)
  size, parts = max(1, _ROWS // particles), []
  with tqdm.tqdm(total=len(images), desc='completing', disable=None) as bar:
    for start in range(0, len(images), size):
      chunk = slice(start, start + size)
      x, mask = jnp.asarray(images[chunk], jnp.float32), jnp.asarray(hidden[chunk])
      keys = jax.vmap(jax.random.fold_in, (None, 0))(key, start + jnp.arange(len(x)))
      state = _nearest(model, drawn, keys, x, mask, particles)
      for number in range(rounds):
        state = _round(model, params, keys, number, state.canvas, x, mask)
      parts.append(jax.device_get(state))
      bar.update(len(x))
  axes = Particles(canvas=0, latents=1, log_weights=0)
  return Particles(*map(np.concatenate, zip(*parts, strict=True), axes))


@functools.partial(jax.jit, static_argnames=('model', 'num'))
def _prior(model, params, key, num):
  return model.apply({'params': params}, num, key, method='generate')


@functools.partial(jax.jit, static_argnames=('model', 'num'))
def _nearest(model, drawn, keys, x, hidden, num) -> Particles:
  """The images drawn [P, H, W, M] under which each x is the most likely, [N, K, H, W, M]."""
  # One image after the other: all pairs of images at once would be many.
  fit = jax.lax.map(lambda pair: _visible(model, drawn, *pair), (x, hidden))
  # With some of them each, so that several completions of an image do not begin alike.
  share = max(num, len(drawn) // _SHARE)
  seen = jax.vmap(lambda key: jax.random.permutation(key, len(drawn)) < share)(keys)
  log_weights, places = jax.lax.top_k(jnp.where(seen, fit, -jnp.inf), num)
  return Particles(drawn[places], None, log_weights)


@functools.partial(jax.jit, static_argnames='model')
def _round(model, params, keys, number, canvas, x, hidden) -> Particles:
  """The next particles, from the canvases [N, K, H, W, M] of those before."""
  num, size = canvas.shape[:2]
  keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, number), 3))(keys)
  filling = jax.vmap(model.distribution.sample)(canvas, keys[:, 0])
  filled = jnp.where(hidden[:, None, :, :, None], filling, x[:, None])
  noise = jax.vmap(lambda key: model.noise(key, size), out_axes=1)(keys[:, 1])
  terms = model.apply(
    {'params': params},
    filled.reshape(-1, *x.shape[1:]),
    noise.reshape(len(noise), num * size, -1),
    method='infer',
  )
  drawn = terms.canvas.reshape(canvas.shape)
  latents = terms.latents.reshape(noise.shape)
  log_weights = _visible(model, drawn, x[:, None], hidden[:, None])
  log_weights -= terms.log_ratio.sum(0).reshape(num, size)
  chosen = jax.vmap(lambda key, logits: jax.random.categorical(key, logits, shape=(size,)))(
    keys[:, 2], log_weights
  )
  canvas = jnp.take_along_axis(drawn, chosen[:, :, None, None, None], 1)
  latents = jnp.take_along_axis(latents, chosen[None, :, :, None], 2)
  return Particles(canvas, latents, log_weights)


def _visible(model: DRAW, canvas, x, hidden) -> jax.Array:
  """Log-likelihood of the pixels that are not hidden, [...]: of [..., H, W, C] and [..., H, W]."""
  pixels = model.distribution.pixel_log_probs(canvas, x)
  return jnp.where(hidden, 0, pixels).sum((-2, -1))
