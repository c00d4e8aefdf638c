"""Mixtures of discretized logistics: what a canvas says about the 256 values of gray or color.

A pixel has one mixture for all of its channels, so that it is the same component that gives red,
green and blue. In units in which intensities are from -1 to 1, component k of channel c has a
logistic distribution of this scale around

    mean[c, k] + sum of coupling[b, c, k] (x[b] - clip(mean[b, k], -1, 1)) over channels b < c

and a value has the probability of its bin, the first and the last one with the tail beyond. The
probability between two points a > b of the standard logistic distribution has the logarithm

    log(sigmoid(a) - sigmoid(b)) = log sigmoid(a) + log sigmoid(-b) + log(1 - exp(b - a))

in which nothing cancels, however far out the points are and however close to each other: a - b
is known from the scale alone.

Letters of the shapes: K components, P = C (C - 1) / 2 pairs of channels (1 after 0, 2 after 0,
2 after 1, ...), M channels of a canvas; others as in `draw_jax.attention`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from draw_jax.attention import Array

LEVELS = 256

# The narrowest has all but 3 % of its mass in one bin, the widest all but 1 in 1,000 in the tails.
_LOG_SCALES = (-7.0, 7.0)
# Of a first canvas: wider than what images differ by from their mean, in the first channel, and
# wide for what the others differ by from the channel before.
_FIRST_LOG_SCALES = (-1.0, -2.0)
# Where a canvas is cut, so that what is made of any finite one is finite.
_LARGEST = 1e6
# The mean of a first canvas is kept this far from black and white.
_MARGIN = 0.01


class Mixture(NamedTuple):
  """The distribution of a pixel."""

  log_weights: Float[Array, '*b k']
  means: Float[Array, '*b c k']
  log_scales: Float[Array, '*b c k']
  coupling: Float[Array, '*b p k']


def canvas_channels(channels: int, components: int) -> int:
  """M, for images of C channels."""
  return components * (1 + 2 * channels + channels * (channels - 1) // 2) - 1


def mixture(canvas: Float[Array, '*b m'], channels: int, components: int) -> Mixture:
  """What a canvas stands for.

  Its channels are K - 1 logits, of the weights of all components but the first, and then means
  [C, K], log scales [C, K] and coupling [P, K].
  """
  # Every part is cut on its own: the gradient of a cut through all of them takes far longer.
  size = channels * components
  ends = [components - 1, components - 1 + size, components - 1 + 2 * size]
  parts = [jnp.clip(part, -_LARGEST, _LARGEST) for part in jnp.split(canvas, ends, -1)]
  logits = jnp.concatenate([jnp.zeros_like(canvas[..., :1]), parts[0]], -1)
  means, log_scales, coupling = (a.reshape(*a.shape[:-1], -1, components) for a in parts[1:])
  log_weights = jax.nn.log_softmax(logits) if components > 1 else logits
  return Mixture(log_weights, means, jnp.clip(log_scales, *_LOG_SCALES), coupling)


def log_prob(given: Mixture, x: Float[Array, '*#b c']) -> Float[Array, '*#b']:
  """Log-probability of whole pixels in nats, [...]; x is k / 255 for the value k, rounded."""
  return jax.nn.logsumexp(given.log_weights + _each_log_prob(given, _levels(x)), -1)


def value_log_probs(given: Mixture, before: Float[Array, '*#b c']) -> Float[Array, '*#b v']:
  """Log-probabilities of all 256 values of one channel, given those before it.

  Args:
    given: the distribution.
    before: [..., c], k / 255 for the value k of each of the first c channels; may be of none.

  Returns:
    [..., 256], of channel c.
  """
  before, channel = _levels(before), before.shape[-1]
  log_weights = jax.nn.log_softmax(given.log_weights + _each_log_prob(given, before))
  mean = _mean(given, channel, before)[..., None, :]
  log_scale = given.log_scales[..., channel, None, :]
  each = _bin(mean, log_scale, jnp.arange(LEVELS, dtype=mean.dtype)[:, None])
  return jax.nn.logsumexp(log_weights[..., None, :] + each, -1)


def mean(given: Mixture) -> Float[Array, '*b c']:
  """Mean of each channel in [0, 1], but for the rounding to a value.

  It is exact for the first channel, and for others as long as those before it seldom are beyond
  black or white.
  """
  of_each = _clipped_mean(given.means, given.log_scales)
  if of_each.shape[-1] == 1:
    return (of_each[..., 0] + 1) / 2
  return ((jnp.exp(given.log_weights)[..., None, :] * of_each).sum(-1) + 1) / 2


def sample(given: Mixture, key: jax.Array) -> Float[Array, '*b c']:
  """Pixels with the values k / 255."""
  for_component, for_values = jax.random.split(key)
  chosen = jax.random.categorical(for_component, given.log_weights)[..., None]
  chosen = Mixture(
    jnp.zeros_like(given.log_weights[..., :1]),
    *(jnp.take_along_axis(a, chosen[..., None], -1) for a in given[1:]),
  )
  scales = jnp.exp(chosen.log_scales[..., 0])
  noise = scales * jax.random.logistic(for_values, scales.shape, scales.dtype)
  levels = jnp.zeros_like(scales[..., :0])
  for channel in range(scales.shape[-1]):
    value = _mean(chosen, channel, levels)[..., 0] + noise[..., channel]
    level = jnp.round((jnp.clip(value, -1, 1) + 1) / 2 * (LEVELS - 1))
    levels = jnp.concatenate([levels, level[..., None]], -1)
  return levels / (LEVELS - 1)


def from_mean(image: Float[Array, '*b c'], components: int) -> Float[Array, '*b m']:
  """The canvas of wide and equal components with this `mean`.

  A channel goes with the one before it: light and dark are most of what images differ by.
  """
  image = 2 * jnp.clip(image, _MARGIN, 1 - _MARGIN) - 1
  channels = image.shape[-1]
  log_scales = jnp.array([_FIRST_LOG_SCALES[min(c, 1)] for c in range(channels)], image.dtype)
  # Where `_clipped_mean` has this value.
  inverse = jnp.exp(-log_scales)
  ratio = jnp.exp((1 - image) * inverse)
  center = -jnp.log((ratio - 1) / (jnp.exp(inverse) - ratio * jnp.exp(-inverse))) / inverse
  coupling = [float(b == c - 1) for c in range(channels) for _, b in _pairs(c)]
  everywhere = jnp.concatenate([log_scales, jnp.array(coupling, image.dtype)])
  everywhere = jnp.broadcast_to(everywhere, (*image.shape[:-1], len(everywhere)))
  of_each = jnp.repeat(jnp.concatenate([center, everywhere], -1), components, -1)
  logits = jnp.zeros((*image.shape[:-1], components - 1), image.dtype)
  return jnp.concatenate([logits, of_each], -1)


def _levels(x: Float[Array, '*b']) -> Float[Array, '*b']:
  return jnp.round(x * (LEVELS - 1))


def _pairs(channel: int) -> list[tuple[int, int]]:
  """For each channel before this one: where its coupling is, and which it is."""
  first = channel * (channel - 1) // 2
  return [(first + b, b) for b in range(channel)]


def _mean(given: Mixture, channel: int, levels: Float[Array, '*#b c']) -> Float[Array, '*#b k']:
  """The mean of each component of a channel, moved by the values of those before it."""
  x = 2 * levels / (LEVELS - 1) - 1
  center = given.means[..., channel, :]
  for i, b in _pairs(channel):
    apart = x[..., b, None] - jnp.clip(given.means[..., b, :], -1, 1)
    center = center + given.coupling[..., i, :] * apart
  return center


def _each_log_prob(given: Mixture, levels: Float[Array, '*#b c']) -> Float[Array, '*#b k']:
  """Log-probability of the first channels of a pixel under each component."""
  total = jnp.zeros_like(given.log_weights)
  for channel in range(levels.shape[-1]):
    center, log_scale = _mean(given, channel, levels), given.log_scales[..., channel, :]
    total = total + _bin(center, log_scale, levels[..., channel, None])
  return total


def _bin(
  center: Float[Array, '*#b'], log_scale: Float[Array, '*#b'], level: Float[Array, '*#b']
) -> Float[Array, '*#b']:
  """Log-probability of the bin around a level."""
  half, inverse = 1 / (LEVELS - 1), jnp.exp(-log_scale)
  middle = 2 * half * level - 1
  below_upper = jax.nn.log_sigmoid((middle + half - center) * inverse)
  above_lower = jax.nn.log_sigmoid((center - middle + half) * inverse)
  width = jnp.log(-jnp.expm1(-2 * half * inverse))
  # All are finite, and so are their gradients.
  is_first, is_last = level <= 0, level >= LEVELS - 1
  return (
    jnp.where(is_last, 0, below_upper)
    + jnp.where(is_first, 0, above_lower)
    + jnp.where(is_first | is_last, 0, width)
  )


def _clipped_mean(center: Float[Array, '*b'], log_scale: Float[Array, '*b']) -> Float[Array, '*b']:
  """The mean of a logistic variable that is clipped to [-1, 1]: 1 - the integral of its CDF."""
  inverse = jnp.exp(-log_scale)
  above, below = (1 + jnp.exp(-jnp.abs(end - center) * inverse) for end in (1, -1))
  return jnp.clip(center, -1, 1) + jnp.log(below / above) / inverse
