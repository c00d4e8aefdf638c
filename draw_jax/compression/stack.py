"""The stack of bits that all images go through, with the coder of the package constriction.

Asymmetric numeral systems: what is pushed last is popped first. To pop a symbol from bits that
were not pushed as symbols of its distribution draws from it, and to push it again gives the
bits back.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from draw_jax.errors import UserError

try:
  import constriction
except ImportError:  # Only compression needs it.
  constriction = None

_WORD = 32  # bits
# The coder has up to this many bits outside of its words.
_HEAD = 2 * _WORD
# Of the largest range of a uniform distribution, in bits.
PRECISION = 23


class Stack:
  """A stack of bits.

  It lies on `borrowed` words that anyone can make again: the bits that the first images need.

  Args:
    words: uint32, as `words()` gave them.
  """

  def __init__(self, words: np.ndarray | Sequence[int] = ()):
    if constriction is None:
      raise UserError("this needs the package constriction: pip install 'draw_jax[compress]'.")
    self._coder = constriction.stream.stack.AnsCoder(np.asarray(words, np.uint32))
    self.borrowed = 0

  def words(self) -> np.ndarray:
    """uint32, the last of which is on top."""
    return self._coder.get_compressed()

  def bits(self) -> int:
    return self._coder.num_valid_bits()

  def reserve(self, bits: int) -> None:
    """Puts words below the others until so many bits can be popped."""
    lacking = -(-(bits + _HEAD - self.bits()) // _WORD)
    if lacking > 0:
      below = borrowed_words(self.borrowed + lacking)[:lacking]
      self._coder = constriction.stream.stack.AnsCoder(np.concatenate([below, self.words()]))
      self.borrowed += lacking

  def push_uniform(self, symbols: np.ndarray, sizes: int | np.ndarray) -> None:
    """Symbols [N] from 0 to below their sizes, one for all or [N]."""
    if isinstance(sizes, int):
      self._coder.encode_reverse(symbols.astype(np.int32), _uniform(sizes))
      return
    # One of a single symbol says nothing, and the coder does not take it.
    says = sizes > 1
    if says.any():
      symbols, sizes = (a[says].astype(np.int32) for a in (symbols, sizes))
      self._coder.encode_reverse(symbols, _uniform(), sizes)

  def pop_uniform(self, sizes: int | np.ndarray, num: int | None = None) -> np.ndarray:
    """int64: `num` symbols of one size, or one of each size [N]."""
    if isinstance(sizes, int):
      return self._coder.decode(_uniform(sizes), num).astype(np.int64)
    says = sizes > 1
    symbols = np.zeros(len(sizes), np.int64)
    if says.any():
      symbols[says] = self._coder.decode(_uniform(), sizes[says].astype(np.int32))
    return symbols

  def push(self, symbols: np.ndarray, table: np.ndarray) -> None:
    """Symbols [N] from 0 to V - 1, float32 [N, V] the probabilities of each."""
    self._coder.encode_reverse(symbols.astype(np.int32), _categorical(), table)

  def pop(self, table: np.ndarray) -> np.ndarray:
    return self._coder.decode(_categorical(), table)


def borrowed_words(num: int) -> np.ndarray:
  """The first `num` of an endless row of random words, the first of them last, on top."""
  return np.frombuffer(hashlib.shake_256(b'draw_jax').digest(4 * num), '<u4')[::-1]


def _uniform(*size: int) -> 'constriction.stream.model.Uniform':
  return constriction.stream.model.Uniform(*size)


def _categorical() -> 'constriction.stream.model.Categorical':
  return constriction.stream.model.Categorical(perfect=False)
