"""The probability distributions of DRAW as pure functions of arrays.

The letters of the shapes are those of `draw_jax.attention` and `draw_jax.discretized_logistic`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from draw_jax import discretized_logistic as logistic
from draw_jax.attention import Array

# Probabilities are kept this far from 0 and 1 before a logit is taken of them.
_MARGIN = 0.01


class Gaussian(NamedTuple):
  """Normal distributions, independent but for `mixing`.

  With it, [..., Z, Z] and zero on and above the diagonal, the Z numbers of the last axis are
  mean + (diag(std) + mixing) noise: the lower triangle is the Cholesky factor of their covariance.
  """

  mean: Float[Array, '*b']
  log_std: Float[Array, '*b']
  mixing: Float[Array, '*b z'] | None = None


def gaussian_sample(
  mean: Float[Array, '*#b'],
  log_std: Float[Array, '*#b'],
  noise: Float[Array, '*#b'],
  mixing: Float[Array, '*#b z'] | None = None,
) -> Float[Array, '*#b']:
  """Eqs. 1-2: a reparameterized draw, mean + std * noise; all of one shape."""
  z = mean + jnp.exp(log_std) * noise
  return z if mixing is None else z + jnp.einsum('...ij,...j->...i', mixing, noise)


def gaussian_kl(
  mean: Float[Array, '*#b'],
  log_std: Float[Array, '*#b'],
  prior: Gaussian | None = None,
  mixing: Float[Array, '*#b z'] | None = None,
) -> Float[Array, '*#b']:
  """Eq. 11: KL(N(mean, std^2) || prior) of each latent, in nats; None is the standard normal.

  The paper's constant T / 2 belongs to each latent variable; here it is the 1
  in the sum, so the total over latents and glimpses is the paper's latent loss.
  With `mixing` the sum over latents is their joint KL, to an independent prior.
  """
  if prior is not None:
    mean, log_std, mixing = _standardized(mean, log_std, prior, mixing)
  squares = mean**2 + jnp.exp(2 * log_std)
  if mixing is not None:
    squares += (mixing**2).sum(-1)
  return 0.5 * (squares - 1) - log_std


def gaussian_log_ratio(
  mean: Float[Array, '*#b'],
  log_std: Float[Array, '*#b'],
  noise: Float[Array, '*#b'],
  prior: Gaussian | None = None,
  mixing: Float[Array, '*#b z'] | None = None,
) -> Float[Array, '*#b']:
  """The value of log q(z) - log p(z) of each latent at z = mean + std * noise, in nats.

  Its expectation over the noise is `gaussian_kl`; importance weights need the
  value at the draw itself. With `mixing` the sum over latents is the joint value.
  """
  if prior is not None:
    mean, log_std, mixing = _standardized(mean, log_std, prior, mixing)
  z = gaussian_sample(mean, log_std, noise, mixing)
  return 0.5 * (z**2 - noise**2) - log_std


def _standardized(
  mean: Float[Array, '*#b'],
  log_std: Float[Array, '*#b'],
  prior: Gaussian,
  mixing: Float[Array, '*#b z'] | None,
) -> Gaussian:
  """The posterior in units in which the prior is standard normal; ratios of densities stay."""
  if mixing is not None:
    mixing = mixing * jnp.exp(-prior.log_std)[..., None]
  mean = (mean - prior.mean) * jnp.exp(-prior.log_std)
  return Gaussian(mean, log_std - prior.log_std, mixing)


def bernoulli_log_prob(
  logits: Float[Array, '*#b'] | float, x: Float[Array, '*#b'] | float
) -> Float[Array, '*#b']:
  """Log-likelihood of each value of x under Bernoullis with these logits, in nats.

  For x between 0 and 1 it is minus the cross-entropy that the paper uses for
  color, which is no likelihood of the intensities.
  """
  return x * jax.nn.log_sigmoid(logits) + (1 - x) * jax.nn.log_sigmoid(-logits)


def _bernoulli_from_mean(mean: jax.Array) -> jax.Array:
  mean = jnp.clip(mean, _MARGIN, 1 - _MARGIN)
  return jnp.log(mean) - jnp.log1p(-mean)


def bernoulli_entropy(x: Float[Array, '*b']) -> Float[Array, '*b']:
  """What minus `bernoulli_log_prob` of intensities x in [0, 1] cannot go below, in nats."""
  # Fused with a division of bytes, 1 - x is a little below zero at x = 1, where entr is -inf.
  return jax.scipy.special.entr(jnp.maximum(x, 0)) + jax.scipy.special.entr(jnp.maximum(1 - x, 0))


class Output(NamedTuple):
  """D(X | c_T), Section 2.2: what the final canvas [..., H, W, M] says about an image.

  Images are [..., H, W, C] with values from 0 to 1.
  """

  canvas_channels: int  # M
  log_prob: Callable[[jax.Array, jax.Array], jax.Array]  # canvas, images -> [...], of whole images
  mean: Callable[[jax.Array], jax.Array]  # canvas -> images
  sample: Callable[[jax.Array, jax.Array], jax.Array]  # canvas, key -> images
  from_mean: Callable[[jax.Array], jax.Array]  # image -> canvas of that mean
  # V, how many values a channel of a pixel can have, from 0 to 1 in equal steps; None: a density.
  values: int | None = None
  # Canvas, the first c channels of images -> [..., H, W, V]: log-probabilities of the values of
  # channel c, given those. Their sum over channels is `log_prob`.
  value_log_probs: Callable[[jax.Array, jax.Array], jax.Array] | None = None
  # Canvas, images -> [..., H, W]: of each pixel, where they are independent given the canvas. Their
  # sum is `log_prob`.
  pixel_log_probs: Callable[[jax.Array, jax.Array], jax.Array] | None = None


def bernoulli(channels: int, components: int = 1) -> Output:
  """Independent binary values, with a logit of each for a canvas."""
  del components

  def value_log_probs(canvas, before):
    logits = canvas[..., before.shape[-1]]
    return jax.nn.log_sigmoid(jnp.stack([-logits, logits], -1))

  def sample(canvas, key):
    return jax.random.bernoulli(key, jax.nn.sigmoid(canvas)).astype(canvas.dtype)

  return Output(
    canvas_channels=channels,
    log_prob=lambda canvas, x: bernoulli_log_prob(canvas, x).sum((-3, -2, -1)),
    mean=jax.nn.sigmoid,
    sample=sample,
    from_mean=_bernoulli_from_mean,
    values=2,
    value_log_probs=value_log_probs,
    pixel_log_probs=lambda canvas, x: bernoulli_log_prob(canvas, x).sum(-1),
  )


def discretized_logistic(channels: int, components: int = 1) -> Output:
  """256 values of gray or color, see `draw_jax.discretized_logistic`."""

  def mixture(canvas):
    return logistic.mixture(canvas, channels, components)

  return Output(
    canvas_channels=logistic.canvas_channels(channels, components),
    log_prob=lambda canvas, x: logistic.log_prob(mixture(canvas), x).sum((-2, -1)),
    mean=lambda canvas: logistic.mean(mixture(canvas)),
    sample=lambda canvas, key: logistic.sample(mixture(canvas), key),
    from_mean=lambda image: logistic.from_mean(image, components),
    values=logistic.LEVELS,
    value_log_probs=lambda canvas, before: logistic.value_log_probs(mixture(canvas), before),
    pixel_log_probs=lambda canvas, x: logistic.log_prob(mixture(canvas), x),
  )


# By name: (channels C of an image, components of a mixture) -> Output. What is no mixture leaves
# the components out of account.
OUTPUTS: dict[str, Callable[[int, int], Output]] = {
  'bernoulli': bernoulli,
  'discretized_logistic': discretized_logistic,
}


def is_mixture(name: str) -> bool:
  """Whether the number of components makes a difference to an output."""
  make = OUTPUTS[name]
  return make(1, 1).canvas_channels != make(1, 2).canvas_channels


def is_likelihood(output: Output, binarization: str) -> bool:
  """Whether a cost with this output is a bound on the likelihood of the images.

  The Bernoulli distribution is one of binary pixels only: intensities have a
  cross-entropy under it, as the paper uses it, and no likelihood.
  """
  return output.values != 2 or binarization != 'none'
