"""Bits-back coding with DRAW: images to a stack of bits, and back.

For a batch of images, after Townsend et al. (2019):

    pop z_1 under q(z_1 | x), ..., z_T under q(z_T | x, z_1 ... z_T-1)
    push x under D(x | c_T)
    push z_T, ..., z_1 under their priors

so that an image costs log q - log D - log p: in expectation the bound of Eq. 12. All images go
through one stack, and only the first need bits that are not there yet. The reverse of every line,
in reverse order, gives the images and the bits back.

What the network computes must be the same to the last bit in both directions: both call the same
programs, one glimpse at a time, with batches of the same shapes.

Letters of the shapes: B images of a batch, of which N are not padding; Z latents of a glimpse.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from draw_jax.compression import pixels
from draw_jax.compression.bins import Bins, NotCodedHereError
from draw_jax.compression.stack import Stack, borrowed_words
from draw_jax.errors import UserError
from draw_jax.models.draw import DRAW
from draw_jax.tasks.base import Params, to_device_float

_PROBED = 3  # glimpses of a fingerprint
# Batches are padded to one of a few sizes, as each needs programs of its own.
_PADDED = (16, 4, 1)  # parts of the largest


class Posterior(NamedTuple):
  """q(z_t) in units in which the prior is the standard normal; float64 on the host."""

  mean: np.ndarray  # [N, Z]
  std: np.ndarray  # [N, Z]
  mixing: np.ndarray | None  # [N, Z, Z], see `distributions.Gaussian`


class Network:
  """The programs of a trained network, each of one glimpse and for a batch of any size.

  Args:
    model: the network.
    params: its parameters.
    glimpses: T.
  """

  def __init__(self, model: DRAW, params: Params, glimpses: int):
    # Latents that say nothing and that nothing hears would cost only time.
    used = model.latents_in_use(params)
    if used < model.latent:
      params, model = model.with_latents(params, used), model.clone(latent=used)
    self.model = model
    self.glimpses = glimpses
    self._variables = {'params': jax.device_put(params)}
    self.pixels = pixels.Pixels(self.model, self.program)
    self.advance = self.program(_advance)
    self._observe = self.program(_observe)

  def program(self, method: Callable) -> Callable:
    """A function of (model, *arrays) as one of arrays alone, with the parameters."""
    return functools.partial(_program(self.model, method), self._variables)

  def first(self, num: int) -> tuple[Any, Any]:
    """The state before the first glimpse, and the prior of its latents."""
    return _program(self.model, _first, num)(self._variables)

  def observe(self, x: jax.Array, state: Any, prior: Any, num: int) -> tuple[Any, Posterior]:
    """The encoder's next state, and q(z_t) of the first `num` images of x [B, H, W, C]."""
    state, posterior = self._observe(x, state)
    mean, log_std, mixing = (_on_host(a, num) for a in posterior)
    if prior is not None:
      prior_mean, prior_log_std = (_on_host(a, num) for a in prior[:2])
      mean, log_std = (mean - prior_mean) * np.exp(-prior_log_std), log_std - prior_log_std
      if mixing is not None:
        mixing = mixing * np.exp(-prior_log_std)[..., None]
    found = Posterior(mean, np.exp(log_std), mixing)
    if not all(np.isfinite(a).all() for a in found if a is not None):
      raise UserError('the model gives latents that are not finite numbers: choose another one.')
    return state, found


@functools.cache
def _program(model: DRAW, method: Callable, *static: int) -> Callable:
  """Compiled once for networks that differ in their parameters alone."""

  def apply(variables, *arrays):
    return model.apply(variables, *static, *arrays, method=method)

  return jax.jit(apply)


def _first(model: DRAW, num: int):
  state = model.first(num)
  return state, model.prior(state.decoder[0])


def _observe(model: DRAW, x: jax.Array, state: Any):
  return model.observe(to_device_float(x), state)


def _advance(model: DRAW, state: Any, prior: Any, z: jax.Array):
  """The state after a glimpse with latents in units of their prior, and the next prior."""
  if prior is not None:
    z = prior.mean + jnp.exp(prior.log_std) * z
  state = model.advance(state, z)
  return state, model.prior(state.decoder[0])


def _on_host(array: jax.Array | None, num: int) -> np.ndarray | None:
  return None if array is None else np.asarray(array)[:num].astype(np.float64)


@dataclasses.dataclass(frozen=True)
class Coded:
  """Images on a stack.

  Attributes:
    words: uint32, of the stack.
    borrowed: how many words it lay on at first.
    batches: the sizes of the batches, in the order of the images.
  """

  words: np.ndarray
  borrowed: int
  batches: tuple[int, ...]


class Codec:
  """Images to a stack and back.

  Args:
    network: of the model.
    latent_bits: the bins of a latent are 2^latent_bits.
    batch_size: images at a time, at most.
  """

  def __init__(self, network: Network, latent_bits: int, batch_size: int):
    self._network, self._bins, self._largest = network, Bins(latent_bits), batch_size
    self._cost = self._bins.cost(network.model.latent, network.glimpses)

  def encode(self, images: np.ndarray, progress: Callable[[int], Any] = lambda _: None) -> Coded:
    """Images uint8 [N, H, W, C] to a stack; `progress` hears of each batch's size."""
    stack, batches, start = Stack(), [], 0
    while start < len(images):
      num = self._next_batch(stack, len(images) - start)
      self._push(stack, images[start : start + num], start)
      batches.append(num)
      start += num
      progress(num)
    return Coded(stack.words(), stack.borrowed, tuple(batches))

  def decode(self, coded: Coded, progress: Callable[[int], Any] = lambda _: None) -> np.ndarray:
    """The images uint8 [N, H, W, C]; raises `NotCodedHereError` if they were not coded so."""
    stack, parts, start = Stack(coded.words), [], sum(coded.batches)
    for num in reversed(coded.batches):
      start -= num
      parts.append(self._pop(stack, num, start))
      progress(num)
    if not np.array_equal(stack.words(), borrowed_words(coded.borrowed)):
      raise NotCodedHereError
    return np.concatenate(parts[::-1])

  def fingerprint(self, batches: Sequence[int]) -> str:
    """A hash of what this computer makes of some numbers in batches of these sizes.

    Where it differs the arithmetic differs, and nothing could be decoded.
    """
    digest = hashlib.sha256()
    for size in sorted({self._padded(num) for num in batches}):
      shape = (size, *self._network.model.image_shape)
      noise = borrowed_words(int(np.prod(shape))).astype(np.int64).reshape(shape)
      state, prior = self._network.first(size)
      x = self._network.pixels.any_images(noise)
      stack = Stack(borrowed_words(8 * noise.size))
      for t in range(_PROBED):
        state, posterior = self._network.observe(x, state, prior, size)
        index = pop_latents(stack, self._bins, posterior, (0, t))
        state, prior = self._network.advance(state, prior, self._latents(index, size))
      self._network.pixels.push(stack, state.canvas, x)
      digest.update(stack.words().astype('<u4').tobytes())
    return digest.hexdigest()

  def _next_batch(self, stack: Stack, left: int) -> int:
    """As many images as the stack has bits for, a power of two of them."""
    most = min(left, self._largest, stack.bits() // self._cost)
    return most if most == self._largest else 2 ** max(0, most.bit_length() - 1)

  def _padded(self, num: int) -> int:
    return next(size for part in _PADDED if (size := -(-self._largest // part)) >= num)

  def _latents(self, index: np.ndarray, size: int) -> np.ndarray:
    """The latents of bins [N, Z], padded to [B, Z]."""
    z = np.zeros((size, index.shape[1]), self._network.model.param_dtype)
    z[: len(index)] = self._bins.centers[index]
    return z

  def _push(self, stack: Stack, images: np.ndarray, start: int) -> None:
    network, num = self._network, len(images)
    x, indices = jnp.asarray(_pad(images, self._padded(num))), []
    state, prior = network.first(len(x))
    for t in range(network.glimpses):
      state, posterior = network.observe(x, state, prior, num)
      indices.append(pop_latents(stack, self._bins, posterior, (start, t)))
      state, prior = network.advance(state, prior, self._latents(indices[-1], len(x)))
    network.pixels.push(stack, state.canvas, images)
    for index in reversed(indices):
      stack.push_uniform(index.reshape(-1), self._bins.num)

  def _pop(self, stack: Stack, num: int, start: int) -> np.ndarray:
    network, bins = self._network, self._bins
    size, latents = self._padded(num), network.model.latent
    state, prior = network.first(size)
    encoder, seen, indices, posteriors = state.encoder, [], [], []
    for _ in range(network.glimpses):
      seen.append((state, prior))
      indices.append(stack.pop_uniform(bins.num, num * latents).reshape(num, latents))
      state, prior = network.advance(state, prior, self._latents(indices[-1], size))
    images = network.pixels.pop(stack, state.canvas, num)
    x = jnp.asarray(_pad(images, size))
    for state, prior in seen:
      state, posterior = network.observe(x, state._replace(encoder=encoder), prior, num)
      encoder = state.encoder
      posteriors.append(posterior)
    for t in reversed(range(network.glimpses)):
      push_latents(stack, bins, indices[t], posteriors[t], (start, t))
    return images


def pop_latents(
  stack: Stack, bins: Bins, posterior: Posterior, place: tuple[int, int]
) -> np.ndarray:
  """Draws the latents of one glimpse with the bits of the stack.

  Args:
    stack: with the bits.
    bins: of the latents.
    posterior: of N images.
    place: in the row of all images and among the glimpses, another one each time.

  Returns:
    The index of each bin, [N, Z].
  """
  mean, std, mixing = posterior
  random = _random(place, mean.shape)
  stack.reserve(bins.cost(mean.size, 1))
  if mixing is None:
    index = bins.pop(stack, *(a.reshape(-1) for a in (mean, std, random)))
    return index.reshape(mean.shape)
  index, noise = np.zeros(mean.shape, np.int64), np.zeros(mean.shape)
  for i in range(mean.shape[1]):
    given = _given(posterior, noise, i)
    index[:, i] = bins.pop(stack, given, std[:, i], random[:, i])
    noise[:, i] = (bins.centers[index[:, i]] - given) / std[:, i]
  return index


def push_latents(
  stack: Stack, bins: Bins, index: np.ndarray, posterior: Posterior, place: tuple[int, int]
) -> None:
  """The reverse of `pop_latents`."""
  mean, std, mixing = posterior
  random = _random(place, mean.shape)
  if mixing is None:
    bins.push(stack, *(a.reshape(-1) for a in (index, mean, std, random)))
    return
  noise, means = np.zeros(mean.shape), []
  for i in range(mean.shape[1]):
    means.append(_given(posterior, noise, i))
    noise[:, i] = (bins.centers[index[:, i]] - means[i]) / std[:, i]
  for i in reversed(range(mean.shape[1])):
    bins.push(stack, index[:, i], means[i], std[:, i], random[:, i])


def _random(place: tuple[int, int], shape: tuple[int, ...]) -> np.ndarray:
  """uint64; the bit generator's numbers are the same in every version of NumPy."""
  return np.random.Philox(key=place).random_raw(int(np.prod(shape))).reshape(shape)


def _given(posterior: Posterior, noise: np.ndarray, i: int) -> np.ndarray:
  """The mean [N] of latent i, given the noise of those before it."""
  return posterior.mean[:, i] + (posterior.mixing[:, i] * noise).sum(-1)


def _pad(images: np.ndarray, size: int) -> np.ndarray:
  return np.pad(images, [(0, size - len(images)), *[(0, 0)] * (images.ndim - 1)])
