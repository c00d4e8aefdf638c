"""The probability distributions of DRAW as pure functions of arrays.

The letters of the shapes are those of `draw_jax.attention`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

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


def _bernoulli_sample(logits: jax.Array, key: jax.Array) -> jax.Array:
  return jax.random.bernoulli(key, jax.nn.sigmoid(logits)).astype(logits.dtype)


def _bernoulli_from_mean(mean: jax.Array) -> jax.Array:
  mean = jnp.clip(mean, _MARGIN, 1 - _MARGIN)
  return jnp.log(mean) - jnp.log1p(-mean)


class Output(NamedTuple):
  """D(X | c_T), Section 2.2: what the final canvas says about an image.

  A canvas is [..., H, W, K * C], K of its channels for each of the image's.
  """

  channels: int  # K
  log_prob: Callable[[jax.Array, jax.Array], jax.Array]  # canvas, x -> [..., H, W, C]
  mean: Callable[[jax.Array], jax.Array]  # canvas -> [..., H, W, C] in [0, 1]
  sample: Callable[[jax.Array, jax.Array], jax.Array]  # canvas, key -> [..., H, W, C]
  from_mean: Callable[[jax.Array], jax.Array]  # image in [0, 1] -> canvas of that mean
  binary: bool = False  # whether it is a distribution of binary pixels only


OUTPUTS = {
  'bernoulli': Output(
    channels=1,
    log_prob=bernoulli_log_prob,
    mean=jax.nn.sigmoid,
    sample=_bernoulli_sample,
    from_mean=_bernoulli_from_mean,
    binary=True,
  ),
}


def is_likelihood(output: str, binarization: str) -> bool:
  """Whether a cost with this output is a bound on the likelihood of the images.

  The Bernoulli distribution is one of binary pixels only: intensities have a
  cross-entropy under it, as the paper uses it, and no likelihood.
  """
  return not OUTPUTS[output].binary or binarization != 'none'
