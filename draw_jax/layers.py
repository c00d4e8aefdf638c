"""Matrices and LSTMs as pure functions, and their starting values.

Letters of the shapes: I inputs, O outputs, D units of an LSTM; others as in
`draw_jax.attention`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

PRODUCT = 'product'  # name of tapped products, for the policies of `jax.checkpoint`


def linear(params, x: jax.Array, dtype=None) -> jax.Array:
  """W(x): a matrix and a bias. Multiplies in `dtype`, sums in float32 or wider.

  Args:
    params: {'kernel': [I, O], 'bias': [O]}, and 'taps' if `tapped` put them there.
    x: [..., I].
    dtype: of the product's operands; None takes those of the arguments.

  Returns:
    [..., O] in the type of the bias.
  """
  kernel, bias = params['kernel'], params['bias']
  if 'taps' in params:
    product = _tapped_product(dtype, x, kernel, params['taps'])
    return checkpoint_name(product, PRODUCT) + bias
  return _product(dtype, x, kernel) + bias


def lstm(params, state, inputs: jax.Array, dtype=None):
  """One step of an LSTM with forget gates.

  Args:
    params: {'kernel': [I + D, 4 D], 'bias': [4 D]} from [inputs, h] to the input
      gate, the forget gate, the candidate and the output gate, in this order.
    state: (h, c), each [B, D].
    inputs: [B, I].
    dtype: see `linear`.

  Returns:
    The next (h, c).
  """
  h, c = state
  gates = linear(params, jnp.concatenate([inputs, h], -1), dtype)
  i, f, g, o = jnp.split(gates, 4, -1)
  c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
  return jax.nn.sigmoid(o) * jnp.tanh(c), c


def tap(layers, steps: int, num: int, dtype=None):
  """Takes the gradients of matrices out of a scan over time-steps.

  Differentiated, a scan adds to the gradient of a matrix at each of its steps: a
  thin product and a pass over memory as large as the matrix. With taps it hands
  out, as gradients of arrays of zeros, what goes into the matrix and what comes
  back at every step, and one product makes the same sum of them all.

  Args:
    layers: a tree of parameters for `linear` or `lstm`, each to be applied to
      [B, I] exactly once in a step.
    steps: T.
    num: B.
    dtype: the one given to `linear` or `lstm`.

  Returns:
    The same layers, and taps to scan over, a tree of [T, B, ...]. The step gives
    both to `tapped`.
  """
  is_layer = lambda node: 'kernel' in node  # noqa: E731
  taps = jax.tree.map(lambda p: _taps(dtype, (steps, num), p['kernel']), layers, is_leaf=is_layer)
  fixed = lambda p: {**p, 'kernel': jax.lax.stop_gradient(p['kernel'])}  # noqa: E731
  return jax.tree.map(fixed, layers, is_leaf=is_layer), taps


def tapped(layers, taps):
  """Layers as `tap` gave them, with the taps of one step."""
  return jax.tree.map(
    lambda p, t: {**p, 'taps': t}, layers, taps, is_leaf=lambda node: 'kernel' in node
  )


def _product(dtype, x: jax.Array, kernel: jax.Array) -> jax.Array:
  total = kernel.dtype
  if dtype is not None:
    x, kernel = x.astype(dtype), kernel.astype(dtype)
  return jnp.dot(x, kernel, preferred_element_type=total)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _tapped_product(dtype, x, kernel, taps):
  """`_product`; the taps, which have no effect, get x and the product's gradient."""
  del taps
  return _product(dtype, x, kernel)


def _tapped_product_forward(dtype, x, kernel, taps):
  return _tapped_product(dtype, x, kernel, taps), (x, kernel)


def _tapped_product_backward(dtype, kept, change):
  x, kernel = kept
  (back,) = jax.vjp(lambda x: _product(dtype, x, kernel), x)[1](change)
  return back, None, (x, change)


_tapped_product.defvjp(_tapped_product_forward, _tapped_product_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _taps(dtype, shape, kernel):
  """Zeros [T, B, I] and [T, B, O], whose gradients make that of the kernel."""
  del dtype
  return tuple(jnp.zeros((*shape, size), kernel.dtype) for size in kernel.shape)


def _taps_forward(dtype, shape, kernel):
  return _taps(dtype, shape, kernel), kernel


def _taps_backward(dtype, shape, kernel, changes):
  del shape
  x, change = (a.reshape(-1, a.shape[-1]) for a in changes)
  return jax.vjp(lambda kernel: _product(dtype, x, kernel), kernel)[1](change)


_taps.defvjp(_taps_forward, _taps_backward)


def limit_gradient(x: jax.Array, limit: float) -> jax.Array:
  """Gives x [..., I]; its gradient is shortened where the norm along I exceeds the limit.

  A limit of 0 stands for none.
  """
  return _limited(limit, x) if limit else x


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _limited(limit, x):
  del limit
  return x


def _limited_forward(limit, x):
  return _limited(limit, x), None


def _limited_backward(limit, kept, change):
  del kept
  norm = jnp.linalg.norm(change, axis=-1, keepdims=True)
  return (change * jnp.minimum(1, limit / norm),)


_limited.defvjp(_limited_forward, _limited_backward)


def start_linear(inputs: int, outputs: int, dtype, *, scale=1.0, bias=0.0, gain=1.0, **more):
  """The function key -> parameters for `linear`.

  Args:
    inputs: I.
    outputs: O.
    dtype: of the parameters.
    scale: weights are N(0, scale / I).
    bias: a number, or [O].
    gain: factor on the weights, or on their rows if it is [I].
    **more: further arrays to have beside the matrix and the bias.
  """

  def start(key):
    kernel = jax.random.normal(key, (inputs, outputs), dtype)
    kernel *= np.sqrt(scale / inputs)
    kernel *= jnp.broadcast_to(gain, inputs)[:, None]
    arrays = {'kernel': kernel, 'bias': jnp.broadcast_to(bias, outputs), **more}
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), arrays)

  return start


def start_lstm(inputs: int, hidden: int, dtype, *, forget_bias=0.0, gain=1.0, scale=1.0):
  """The function key -> parameters for `lstm`, with 'h' and 'c' [D] to be learned.

  Args:
    inputs: I.
    hidden: D.
    dtype: of the parameters.
    forget_bias: of the forget gates.
    gain: factor on the weights from the inputs, a number or [I].
    scale: weights are N(0, scale / (I + D)).
  """
  bias = np.repeat([0.0, forget_bias, 0.0, 0.0], hidden)
  gain = np.concatenate([np.broadcast_to(gain, inputs), np.ones(hidden)])
  zeros = np.zeros(hidden)
  return start_linear(
    inputs + hidden, 4 * hidden, dtype, scale=scale, bias=bias, gain=gain, h=zeros, c=zeros
  )


def start_window(hidden: int, dtype, *, stride: float, sigma: float, scale=1.0):
  """The function key -> parameters for the five raw numbers of `attention.window`.

  Args:
    hidden: D.
    dtype: of the parameters.
    stride: of the first window, as a fraction of the one that spans the picture.
    sigma: of its filters, in pixels.
    scale: weights are N(0, scale / D).
  """
  bias = np.array([0.0, 0.0, 2 * np.log(sigma), np.log(stride), 0.0])
  return start_linear(hidden, 5, dtype, scale=scale, bias=bias)


def from_start(state, num: int):
  """Learned starting values, the same for each of `num` examples: [...] to [num, ...]."""
  return jax.tree.map(lambda a: jnp.broadcast_to(a, (num, *a.shape)), state)
