"""Latents in bins of equal mass under the standard normal, which is their prior.

There are K = 2^bits bins. Under the prior a bin is one of K that are equally probable. Under a
normal distribution q bin k has the integer frequency

    f_k = F(k + 1) - F(k),  F(k) = round(M * CDF_q(lower edge of bin k)),  M = 2^(bits + 8)

Its symbol is popped by popping u from 0 to M - 1 uniformly, which finds the k with
F(k) <= u < F(k + 1), and pushing u - F(k) back as one of f_k: together that costs log2(M / f_k)
bits. No table of frequencies is made, and a bin may have none, as it is then never popped.

Draws would be no draws from q where the bits of the stack are not as random as they should be:
images that do not look like samples leave such bits. So random numbers, which both directions
know, are added to u.
"""

import functools

import numpy as np
from scipy.special import ndtr, ndtri

from draw_jax.compression.stack import PRECISION, Stack

_FINER = 8  # bits of a frequency, for a bin that is as probable as under the prior
MOST_BITS = PRECISION - _FINER

# Deviations are kept within these, so that quotients stay finite.
_NARROWEST, _WIDEST = 1e-6, 1e6


class NotCodedHereError(Exception):
  """The stack does not hold what this network would have pushed."""


class Bins:
  """Bins, and latents on a stack.

  All arrays are [N]: `index` of bins, `mean` and `std` float64 of q, `noise` uint64 to add to u.

  Args:
    bits: from 1 to `MOST_BITS`.
  """

  def __init__(self, bits: int):
    self.bits, self.num = bits, 2**bits
    self._total = 2 ** (bits + _FINER)
    self._edges = ndtri(np.arange(self.num + 1) / self.num)
    # The median of each.
    self.centers = ndtri((np.arange(self.num) + 0.5) / self.num)

  def cost(self, latents: int, glimpses: int) -> int:
    """Bits that popping the latents of all glimpses takes at its height, each as its prior."""
    return latents * (glimpses * self.bits + _FINER)

  def pop(self, stack: Stack, mean: np.ndarray, std: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Draws bins from q with the bits of the stack; their index."""
    u = self._added(stack.pop_uniform(self._total, len(mean)), noise)
    std = np.clip(std, _NARROWEST, _WIDEST)
    cumulative = functools.partial(self._cumulative, mean, std)
    index = self._find(u, cumulative, mean + std * ndtri((u + 0.5) / self._total))
    low, high = cumulative(index), cumulative(index + 1)
    stack.push_uniform(u - low, high - low)
    return index

  def push(
    self, stack: Stack, index: np.ndarray, mean: np.ndarray, std: np.ndarray, noise: np.ndarray
  ) -> None:
    """Gives the bits back: the stack is as it was before `pop`."""
    std = np.clip(std, _NARROWEST, _WIDEST)
    low, high = (self._cumulative(mean, std, k) for k in (index, index + 1))
    if (high <= low).any():
      raise NotCodedHereError
    u = low + stack.pop_uniform(high - low)
    stack.push_uniform(self._added(u, 0 - noise), self._total)

  def _added(self, u: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return ((u.astype(np.uint64) + noise) % self._total).astype(np.int64)

  def _cumulative(self, mean, std, index):
    """F, of [N]."""
    return np.rint(self._total * ndtr((self._edges[index] - mean) / std)).astype(np.int64)

  def _find(self, u, cumulative, guess):
    """The k with F(k) <= u < F(k + 1), by bisection that tries the guessed value first.

    However F rounds, the k that it ends with fulfills both.
    """
    low, high = np.zeros_like(u), np.full_like(u, self.num)
    middle = np.floor(ndtr(guess) * self.num).astype(np.int64)
    for step in range(self.bits + 3):
      middle = np.clip(middle, low, high - 1)
      below = cumulative(middle) <= u
      low = np.where(below, middle, low)
      high = np.where(below, high, middle)
      if (high - low == 1).all():
        break
      # A guess is off by one at most, but for the widest and narrowest q.
      middle = (low + high) // 2 if step else np.where(below, low + 1, high - 1)
    return low
