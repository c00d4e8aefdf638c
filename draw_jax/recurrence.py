"""A scan over time-steps with a choice of what is kept for the backward pass."""

import functools
import math

import jax
import jax.numpy as jnp

# What the backward pass finds in memory and what it computes again. The loss and
# its gradients are the same with all of them.
REMAT = {
  'none': 'all values are kept',
  'products': 'matrix products are kept, the cheap rest is computed again',
  'step': 'only the state between two steps is kept',
  'segments': 'only the state at every sqrt(T)-th step is kept, at the cost of one more pass',
}


def scan(step, state, xs: jax.Array, remat: str = 'none'):
  """`jax.lax.scan(step, state, xs)` with rematerialisation.

  Args:
    step: (state, x) -> (state, y).
    state: a pytree.
    xs: [T, ...].
    remat: a name in REMAT.

  Returns:
    The last state and the ys, stacked along a first axis of T.
  """
  if remat == 'none':
    return jax.lax.scan(step, state, xs)
  # Inside a scan nothing can be merged across steps, so the guard against it,
  # which costs time, is not needed.
  checkpoint = functools.partial(jax.checkpoint, prevent_cse=False)
  if remat == 'products':
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return jax.lax.scan(checkpoint(step, policy=policy), state, xs)
  if remat == 'step':
    return jax.lax.scan(checkpoint(step), state, xs)
  if remat == 'segments':
    return _segments(checkpoint(step), state, xs)
  raise ValueError(f'remat is {remat!r}; it must be one of {", ".join(REMAT)}')


def _segments(step, state, xs: jax.Array):
  """A scan over segments of about sqrt(T) steps, each computed again when needed."""
  length = math.isqrt(len(xs))
  whole = len(xs) // length * length

  @jax.checkpoint
  def segment(state, xs):
    return jax.lax.scan(step, state, xs)

  folded = xs[:whole].reshape(-1, length, *xs.shape[1:])
  state, ys = jax.lax.scan(segment, state, folded)
  ys = jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), ys)
  if whole < len(xs):
    state, rest = segment(state, xs[whole:])
    ys = jax.tree.map(lambda *y: jnp.concatenate(y), ys, rest)
  return state, ys
