"""DRAW whose latents depend on each other: a learned prior, and posteriors with covariances.

With h the state of the decoder's LSTM after the glimpse before, in place of the standard normal

    p(z_t | z_1 ... z_t-1) = N(mu, diag(sigma^2)),  [mu, log sigma] = W_prior(h_dec_t-1)

and in place of the diagonal Gaussian of Eqs. 1-2, for z_t = mu_t + L_t noise,

    q(z_t | h_enc_t) = N(mu_t, L_t L_t^T),  L_t = diag(sigma_t) + lower(W_mixing(h_enc_t))

where `lower` puts Z (Z - 1) / 2 numbers below the diagonal, row by row. Both matrices and their
biases start at zero: the first values are those of DRAW, and so are those of a network that starts
from trained weights of DRAW.

The letters of the shapes are those of `draw_jax.models.draw`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from draw_jax import distributions, fields
from draw_jax.attention import Array
from draw_jax.errors import UserError
from draw_jax.models import layers
from draw_jax.models.draw import DRAW, DrawConfig
from draw_jax.models.gradients import Layer

_MOST = 32  # latents with covariances: their number of weights grows with the square


@dataclasses.dataclass(kw_only=True)
class DependentLatentsConfig(DrawConfig):
  """What an experiment says of it besides what it says of DRAW."""

  # Z: as many as DRAW's trained model uses.
  latent: int = fields.field(3, at_least=1)
  # p(z_t) depends on the glimpses before.
  learned_prior: bool = True
  # q(z_t) has all covariances.
  full_covariance: bool = True

  def check_image(self, height: int, width: int, prefix: str = '') -> None:
    super().check_image(height, width, prefix)
    if self.full_covariance and self.latent > _MOST:
      raise UserError(
        f'{prefix}full_covariance is for at most {_MOST} latents, and {prefix}latent='
        f'{self.latent}: take fewer, or {prefix}full_covariance=False.'
      )


class DependentLatents(DRAW, DependentLatentsConfig):
  """DRAW with a learned prior and posteriors with covariances, or one of both."""

  neutral = ('prior_statistics', 'mixing')

  def setup(self) -> None:
    super().setup()

    def zeros(outputs: int) -> layers.Init:
      return layers.init_linear(self.hidden, outputs, self.param_dtype, gain=0.0)

    if self.learned_prior:
      self.prior_statistics = self.param('prior_statistics', zeros(2 * self.latent))
    if self.full_covariance:
      self.mixing = self.param('mixing', zeros(self.latent * (self.latent - 1) // 2))

  def prior(self, h_dec: Float[Array, 'b d']) -> distributions.Gaussian | None:
    if not self.learned_prior:
      return None
    # A few numbers for each latent: they are not worth a loss of precision.
    return distributions.Gaussian(*jnp.split(layers.linear(self.prior_statistics, h_dec), 2, -1))

  def posterior_given(self, layer: Layer, h_enc: Float[Array, 'b d']) -> distributions.Gaussian:
    posterior = super().posterior_given(layer, h_enc)
    if not self.full_covariance:
      return posterior
    below = np.tril_indices(self.latent, -1)
    mixing = jnp.zeros((len(h_enc), self.latent, self.latent), self.param_dtype)
    mixing = mixing.at[:, *below].set(layers.linear(self.mixing, h_enc))
    return posterior._replace(mixing=mixing)

  def latents_in_use(self, params: Mapping[str, Any]) -> int:
    del params
    return self.latent

  def with_latents(self, params: Mapping[str, Any], num: int) -> dict[str, Any]:
    del params
    raise UserError(
      f'--latents={num}: latents that depend on each other cannot be taken from the rest. Choose '
      'those of the DRAW that training starts from.'
    )
