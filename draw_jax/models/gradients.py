"""Gradients made in other ways than by differentiating the computation as it stands.

Letters of the shapes: I inputs, O outputs; others as in `draw_jax.attention`.
Only reverse mode goes through taps and limits.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float

from draw_jax.attention import Array

DType = jax.typing.DTypeLike | None
# Arrays by name; a layer as `tapped` gives it has a pair of them as its 'taps'.
Layer = Mapping[str, Any]
Layers = Mapping[str, Layer]

PRODUCT = 'product'  # name of tapped products, for the policies of `jax.checkpoint`


def tap(
  layers: Layers, glimpses: int, num: int, dtype: DType = None
) -> tuple[Layers, dict[str, tuple[Float[Array, 't b _'], Float[Array, 't b _']]]]:
  """Takes the gradients of matrices out of a scan over glimpses.

  Differentiated, a scan adds to the gradient of a matrix at each glimpse: a
  thin product and a pass over memory as large as the matrix. With taps it hands
  out, as gradients of arrays of zeros, what goes into the matrix and what comes
  back at every step, and one product makes the same sum of them all.

  Args:
    layers: parameters for `layers.linear` or `layers.lstm` by name, each to be
      applied to [B, I] exactly once in a step.
    glimpses: T.
    num: B.
    dtype: the one given to `layers.linear` or `layers.lstm`.

  Returns:
    The same layers, and taps to scan over, a tree of [T, B, ...]. The step gives
    both to `tapped`.
  """
  taps = {name: _taps(dtype, (glimpses, num), p['kernel']) for name, p in layers.items()}
  stop = jax.lax.stop_gradient
  # A copy to multiply by on the way back: products with a matrix as it lies are the fastest.
  kernels = {name: stop(p['kernel']) for name, p in layers.items()}
  return {
    name: {**p, 'kernel': kernels[name], 'transposed': kernels[name].T}
    for name, p in layers.items()
  }, taps


def tapped(
  layers: Layers, taps: Mapping[str, tuple[Float[Array, 'b _'], Float[Array, 'b _']]]
) -> Layers:
  """Layers as `tap` gave them, with the taps of one step."""
  return {name: {**p, 'taps': taps[name]} for name, p in layers.items()}


def product(
  dtype: DType, x: Float[Array, '*b i'], kernel: Float[Array, 'i o']
) -> Float[Array, '*b o']:
  """[..., I] times [I, O], multiplied in `dtype` and summed in the kernel's type."""
  total = kernel.dtype
  if dtype is not None:
    x, kernel = x.astype(dtype), kernel.astype(dtype)
  return jnp.dot(x, kernel, preferred_element_type=total)


def tapped_product(dtype: DType, x: Float[Array, 'b i'], layer: Layer) -> Float[Array, 'b o']:
  """`product` of [B, I] and the kernel of a layer as `tapped` gave it."""
  y = _tapped(dtype, x, layer['kernel'], layer['transposed'], layer['taps'])
  return checkpoint_name(y, PRODUCT)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _tapped(
  dtype: DType,
  x: Float[Array, 'b i'],
  kernel: Float[Array, 'i o'],
  transposed: Float[Array, 'o i'],
  taps: tuple[Float[Array, 'b i'], Float[Array, 'b o']],
) -> Float[Array, 'b o']:
  """`product`; the taps, which have no effect, get x and the product's gradient."""
  del transposed, taps
  return product(dtype, x, kernel)


def _tapped_forward(
  dtype: DType,
  x: Float[Array, 'b i'],
  kernel: Float[Array, 'i o'],
  transposed: Float[Array, 'o i'],
  taps: tuple[Float[Array, 'b i'], Float[Array, 'b o']],
) -> tuple[Float[Array, 'b o'], tuple[Float[Array, 'b i'], Float[Array, 'o i']]]:
  return _tapped(dtype, x, kernel, transposed, taps), (x, transposed)


def _tapped_backward(
  dtype: DType, kept: tuple[Float[Array, 'b i'], Float[Array, 'o i']], change: Float[Array, 'b o']
) -> tuple[Float[Array, 'b i'], None, None, tuple[Float[Array, 'b i'], Float[Array, 'b o']]]:
  x, transposed = kept
  return product(dtype, change, transposed), None, None, (x, change)


_tapped.defvjp(_tapped_forward, _tapped_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _taps(
  dtype: DType, shape: tuple[int, int], kernel: Float[Array, 'i o']
) -> tuple[Float[Array, 't b i'], Float[Array, 't b o']]:
  """Zeros [T, B, I] and [T, B, O], whose gradients make that of the kernel."""
  del dtype
  return tuple(jnp.zeros((*shape, size), kernel.dtype) for size in kernel.shape)


def _taps_forward(
  dtype: DType, shape: tuple[int, int], kernel: Float[Array, 'i o']
) -> tuple[tuple[Float[Array, 't b i'], Float[Array, 't b o']], Float[Array, 'i o']]:
  return _taps(dtype, shape, kernel), kernel


def _taps_backward(
  dtype: DType,
  shape: tuple[int, int],
  kernel: Float[Array, 'i o'],
  changes: tuple[Float[Array, 't b i'], Float[Array, 't b o']],
) -> tuple[Float[Array, 'i o']]:
  del shape
  x, change = changes
  if dtype is None:
    x, change = (a.reshape(-1, a.shape[-1]) for a in changes)
    return (jnp.einsum('bi,bo->io', x, change),)
  # Steps and examples stay two axes: as one, XLA multiplies in float32 on CPUs.
  x, change = x.astype(dtype), change.astype(dtype)
  return (jnp.einsum('tbi,tbo->io', x, change, preferred_element_type=kernel.dtype),)


_taps.defvjp(_taps_forward, _taps_backward)


def limit(x: Float[Array, '*b i'], norm: float) -> Float[Array, '*b i']:
  """Gives x [..., I]; its gradient is shortened to this norm along I where it is longer.

  A norm of 0 sets no limit.
  """
  return _limited(norm, x) if norm else x


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _limited(norm: float, x: Float[Array, '*b i']) -> Float[Array, '*b i']:
  del norm
  return x


def _limited_forward(norm: float, x: Float[Array, '*b i']) -> tuple[Float[Array, '*b i'], None]:
  return _limited(norm, x), None


def _limited_backward(
  norm: float, kept: None, change: Float[Array, '*b i']
) -> tuple[Float[Array, '*b i']]:
  del kept
  # By way of the largest: the squares of great ones would be infinite.
  largest = jnp.max(jnp.abs(change), axis=-1, keepdims=True)
  scaled = change / jnp.where(largest > 0, largest, 1)
  length = jnp.linalg.norm(scaled, axis=-1, keepdims=True)
  return (scaled * jnp.minimum(largest, norm / jnp.maximum(length, 1)),)


_limited.defvjp(_limited_forward, _limited_backward)
