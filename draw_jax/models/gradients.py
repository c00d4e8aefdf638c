"""Gradients made in other ways than by differentiating the computation as it stands.

Letters of the shapes: I inputs, O outputs; others as in `draw_jax.attention`.
Only reverse mode goes through taps and limits.
"""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

PRODUCT = 'product'  # name of tapped products, for the policies of `jax.checkpoint`


def tap(layers, glimpses: int, num: int, dtype=None):
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


def tapped(layers, taps):
  """Layers as `tap` gave them, with the taps of one step."""
  return {name: {**p, 'taps': taps[name]} for name, p in layers.items()}


def product(dtype, x: jax.Array, kernel: jax.Array) -> jax.Array:
  """[..., I] times [I, O], multiplied in `dtype` and summed in the kernel's type."""
  total = kernel.dtype
  if dtype is not None:
    x, kernel = x.astype(dtype), kernel.astype(dtype)
  return jnp.dot(x, kernel, preferred_element_type=total)


def tapped_product(dtype, x: jax.Array, layer) -> jax.Array:
  """`product` of [B, I] and the kernel of a layer as `tapped` gave it."""
  y = _tapped(dtype, x, layer['kernel'], layer['transposed'], layer['taps'])
  return checkpoint_name(y, PRODUCT)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _tapped(dtype, x, kernel, transposed, taps):
  """`product`; the taps, which have no effect, get x and the product's gradient."""
  del transposed, taps
  return product(dtype, x, kernel)


def _tapped_forward(dtype, x, kernel, transposed, taps):
  return _tapped(dtype, x, kernel, transposed, taps), (x, transposed)


def _tapped_backward(dtype, kept, change):
  x, transposed = kept
  return product(dtype, change, transposed), None, None, (x, change)


_tapped.defvjp(_tapped_forward, _tapped_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _taps(dtype, shape, kernel):
  """Zeros [T, B, I] and [T, B, O], whose gradients make that of the kernel."""
  del dtype
  return tuple(jnp.zeros((*shape, size), kernel.dtype) for size in kernel.shape)


def _taps_forward(dtype, shape, kernel):
  return _taps(dtype, shape, kernel), kernel


def _taps_backward(dtype, shape, kernel, changes):
  del shape
  x, change = changes
  if dtype is None:
    x, change = (a.reshape(-1, a.shape[-1]) for a in changes)
    return (jnp.einsum('bi,bo->io', x, change),)
  # Steps and examples stay two axes: as one, XLA multiplies in float32 on CPUs.
  x, change = x.astype(dtype), change.astype(dtype)
  return (jnp.einsum('tbi,tbo->io', x, change, preferred_element_type=kernel.dtype),)


_taps.defvjp(_taps_forward, _taps_backward)


def limit(x: jax.Array, norm: float) -> jax.Array:
  """Gives x [..., I]; its gradient is shortened to this norm along I where it is longer.

  A norm of 0 sets no limit.
  """
  return _limited(norm, x) if norm else x


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _limited(norm, x):
  del norm
  return x


def _limited_forward(norm, x):
  return _limited(norm, x), None


def _limited_backward(norm, kept, change):
  del kept
  # By way of the largest: the squares of great ones would be infinite.
  largest = jnp.max(jnp.abs(change), axis=-1, keepdims=True)
  scaled = change / jnp.where(largest > 0, largest, 1)
  length = jnp.linalg.norm(scaled, axis=-1, keepdims=True)
  return (scaled * jnp.minimum(largest, norm / jnp.maximum(length, 1)),)


_limited.defvjp(_limited_forward, _limited_backward)
