"""A scan over glimpses with a choice of what is kept for the backward pass."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Num

from draw_jax.attention import Array
from draw_jax.models import gradients
from draw_jax.models.gradients import DType, Layers

# What the backward pass finds in memory and what it computes again. The loss and
# its gradients are the same with all of them.
REMAT = {
  'none': 'all values are kept',
  'products': 'matrix products are kept, the cheap rest is computed again; the fastest',
  'step': 'only the state between two glimpses is kept',
  'segments': 'only the state at every sqrt(T)-th step is kept, at the cost of one more pass',
}


def scan(
  step: Callable[[Layers, Any, Array], tuple[Any, Any]],
  layers: Layers,
  state: Any,
  xs: Num[Array, 't ...'],
  remat: str = 'none',
  dtype: DType = None,
  unroll: int = 1,
) -> tuple[Any, Any]:
  """`jax.lax.scan` over the glimpses of a network, with rematerialization.

  Args:
    step: (layers, state, x) -> (state, y).
    layers: the large matrices, as `gradients.tap` takes them.
    state: a pytree of [B, ...].
    xs: [T, ...].
    remat: a name in REMAT.
    dtype: in which the step applies the layers.
    unroll: how many glimpses are written out in a row with 'products'; takes longer to compile.

  Returns:
    The last state and the ys, stacked along a first axis of T.
  """
  if remat == 'products':
    return _products(step, layers, state, xs, dtype, unroll)
  step = functools.partial(step, layers)
  if remat == 'none':
    return jax.lax.scan(step, state, xs)
  if remat == 'step':
    return jax.lax.scan(_checkpoint(step), state, xs)
  if remat == 'segments':
    return _segments(_checkpoint(step), state, xs)
  raise ValueError(f'remat is {remat!r}; it must be one of {", ".join(REMAT)}')


def _checkpoint(step: Callable, policy: Callable | None = None) -> Callable:
  """`jax.checkpoint` for the body of a scan.

  There nothing can be merged across glimpses, so the guard against it, which costs
  time, is not needed.
  """
  return jax.checkpoint(step, prevent_cse=False, policy=policy)


def _products(
  step: Callable[[Layers, Any, Array], tuple[Any, Any]],
  layers: Layers,
  state: Any,
  xs: Num[Array, 't ...'],
  dtype: DType,
  unroll: int,
) -> tuple[Any, Any]:
  """A scan that keeps products, and makes the gradients of matrices after it."""
  num = len(jax.tree.leaves(state)[0])
  layers, taps = gradients.tap(layers, len(xs), num, dtype)
  policies = jax.checkpoint_policies
  policy = policies.save_from_both_policies(
    policies.dots_with_no_batch_dims_saveable,
    policies.save_only_these_names(gradients.PRODUCT),
  )

  def tapped(state, inputs):
    x, taps = inputs
    return step(gradients.tapped(layers, taps), state, x)

  return jax.lax.scan(_checkpoint(tapped, policy), state, (xs, taps), unroll=unroll)


def _segments(
  step: Callable[[Any, Array], tuple[Any, Any]], state: Any, xs: Num[Array, 't ...']
) -> tuple[Any, Any]:
  """A scan over segments of about sqrt(T) glimpses, each computed again when needed."""
  length = math.isqrt(len(xs))
  whole = len(xs) // length * length
  segment = jax.checkpoint(functools.partial(jax.lax.scan, step))
  folded = xs[:whole].reshape(-1, length, *xs.shape[1:])
  state, ys = jax.lax.scan(segment, state, folded)
  ys = jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), ys)
  if whole < len(xs):
    state, rest = segment(state, xs[whole:])
    ys = jax.tree.map(lambda *y: jnp.concatenate(y), ys, rest)
  return state, ys
