"""Bounds on the negative log-likelihood, from the terms of single draws.

Pure functions and values of NumPy arrays, in float64. Draws come in chunks; what
is computed from them does not depend on how they were cut.

Letters of the shapes: B examples, S draws of one chunk, T glimpses.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from draw_jax.attention import Array


@dataclasses.dataclass(frozen=True)
class Moments:
  """Mean and spread over draws of one number for each example, or of several.

  Attributes:
    count: draws so far, the same for all.
    mean: [B, ...].
    squares: [B, ...], the sum of squared deviations from the mean.
  """

  count: int = 0
  mean: np.ndarray | float = 0.0
  squares: np.ndarray | float = 0.0

  def add(self, values: Float[Array, '*b s']) -> 'Moments':
    values = np.asarray(values, np.float64)
    num = values.shape[-1]
    if not num:
      return self
    count = self.count + num
    mean = values.mean(-1)
    squares = ((values - mean[..., None]) ** 2).sum(-1)
    apart = mean - self.mean
    return Moments(
      count,
      self.mean + apart * (num / count),
      self.squares + squares + apart**2 * (self.count * num / count),
    )


@dataclasses.dataclass(frozen=True)
class ImportanceBound:
  """The importance-weighted bound of Burda et al. (2016) with K samples.

  Draws are taken in groups of K, one after the other; each whole group gives
  -log mean w, and their mean is the estimate. Where one K divides another, the
  bound with the larger K is never above the other, by Jensen's inequality.

  Attributes:
    samples: K.
    filled: draws in the group that is not whole yet.
    log_sum: [B], log of the sum of its weights.
    groups: the bounds of the whole groups, [B].
  """

  samples: int
  filled: int = 0
  log_sum: np.ndarray | float = -math.inf
  groups: Moments = Moments()

  def add(self, log_weights: Float[Array, 'b s']) -> 'ImportanceBound':
    """With further draws, [B, S]: log p(x, z) - log q(z | x) of each."""
    log_weights = np.asarray(log_weights, np.float64)
    num = log_weights.shape[-1]
    if not num:
      return self
    starts = [0, *range(self.samples - self.filled, num, self.samples)]
    sums = np.logaddexp.reduceat(log_weights, starts, axis=-1)
    sums[:, 0] = np.logaddexp(sums[:, 0], self.log_sum)
    whole, filled = divmod(self.filled + num, self.samples)
    return ImportanceBound(
      self.samples,
      filled,
      sums[:, -1] if filled else -math.inf,
      self.groups.add(math.log(self.samples) - sums[:, :whole]),
    )


@dataclasses.dataclass(frozen=True)
class Bounds:
  """All bounds for some examples with one number of glimpses, in nats.

  Attributes:
    bound: Eq. 12, the sum of the two next, [B].
    reconstruction: Eq. 9, [B].
    kl: Eq. 10, [B].
    kl_glimpses: its terms, [B, T].
    importance: with each number of samples asked for.
  """

  bound: Moments = Moments()
  reconstruction: Moments = Moments()
  kl: Moments = Moments()
  kl_glimpses: Moments = Moments()
  importance: tuple[ImportanceBound, ...] = ()

  def add(
    self,
    reconstruction: Float[Array, 'b s'],
    kl: Float[Array, 'b t s'],
    log_ratio: Float[Array, 'b t s'],
  ) -> 'Bounds':
    """With further draws.

    Args:
      reconstruction: [B, S], -log p(x | z).
      kl: [B, T, S], KL of each glimpse.
      log_ratio: [B, T, S], log q(z_t) - log p(z_t) at the draw.
    """
    reconstruction, kl, log_ratio = (
      np.asarray(a, np.float64) for a in (reconstruction, kl, log_ratio)
    )
    kl_sum = kl.sum(1)
    log_weights = -reconstruction - log_ratio.sum(1)
    return Bounds(
      self.bound.add(reconstruction + kl_sum),
      self.reconstruction.add(reconstruction),
      self.kl.add(kl_sum),
      self.kl_glimpses.add(kl),
      tuple(one.add(log_weights) for one in self.importance),
    )


def ladder(samples: int) -> tuple[int, ...]:
  """The numbers of samples that show a bound tighten: 10, 100, ... up to K; none for K = 1."""
  tens = [10**power for power in range(1, len(str(samples))) if 10**power < samples]
  return (*tens, samples) if samples > 1 else ()


def estimate(parts: Sequence[Moments]) -> dict[str, float | None]:
  """The mean over examples with its standard errors.

  Args:
    parts: of disjoint sets of examples, [B] each with a B of its own; all have draws.

  Returns:
    'mean'; 'stderr_images', how far it would move with other images; and
    'stderr_draws', with other draws for these images. None where one image or
    one draw does not tell.
  """
  means = np.concatenate([part.mean for part in parts])
  num = len(means)
  noise = None
  if all(part.count > 1 for part in parts):
    # The variance of each image's own mean; the noise of images is independent.
    variances = [part.squares.sum() / (part.count - 1) / part.count for part in parts]
    noise = math.sqrt(math.fsum(variances)) / num
  return {
    'mean': math.fsum(means) / num,
    'stderr_images': float(means.std(ddof=1)) / math.sqrt(num) if num > 1 else None,
    'stderr_draws': noise,
  }


def bits_per_dim(nats: float, image_shape: Sequence[int]) -> float:
  """Nats an image as bits for each of its H x W x C values."""
  return nats / (math.prod(image_shape) * math.log(2))
