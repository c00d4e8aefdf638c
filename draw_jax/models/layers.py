"""Matrices and LSTMs as pure functions, and their initial values.

Letters of the shapes: I inputs, O outputs, D units of an LSTM; others as in
`draw_jax.attention`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from draw_jax.attention import Array
from draw_jax.errors import UserError
from draw_jax.models import gradients
from draw_jax.models.gradients import DType, Layer

# What makes the parameters of a layer from a PRNG key.
Init = Callable[[jax.Array], dict[str, jax.Array]]
DTYPES = ('float32', 'bfloat16')  # in which matrices are multiplied


def linear(params: Layer, x: Float[Array, '*b i'], dtype: DType = None) -> Float[Array, '*b o']:
  """W(x): a matrix and a bias. Multiplies in `dtype`, sums in float32 or wider.

  Args:
    params: {'kernel': [I, O], 'bias': [O]}, and 'taps' if `gradients.tapped` gave it.
    x: [..., I].
    dtype: of the product's operands; None takes those of the arguments.

  Returns:
    [..., O] in the type of the bias.
  """
  kernel, bias = params['kernel'], params['bias']
  if 'taps' in params:
    return gradients.tapped_product(dtype, x, params) + bias
  return gradients.product(dtype, x, kernel) + bias


def lstm(
  params: Layer,
  state: tuple[Float[Array, 'b d'], Float[Array, 'b d']],
  inputs: Float[Array, 'b i'],
  dtype: DType = None,
) -> tuple[Float[Array, 'b d'], Float[Array, 'b d']]:
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


def init_linear(
  inputs: int,
  outputs: int,
  dtype: jax.typing.DTypeLike,
  *,
  scale: float = 1.0,
  bias: float | Float[Array, ' {outputs}'] = 0.0,
  gain: float | Float[Array, ' {inputs}'] = 1.0,
  **more: Array,
) -> Init:
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

  def init(key: jax.Array) -> dict[str, jax.Array]:
    kernel = jax.random.normal(key, (inputs, outputs), dtype)
    kernel *= np.sqrt(scale / inputs)
    kernel *= jnp.broadcast_to(gain, inputs)[:, None]
    arrays = {'kernel': kernel, 'bias': jnp.broadcast_to(bias, outputs), **more}
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), arrays)

  return init


def init_lstm(
  inputs: int,
  hidden: int,
  dtype: jax.typing.DTypeLike,
  *,
  forget_bias: float = 0.0,
  gain: float | Float[Array, ' {inputs}'] = 1.0,
  scale: float = 1.0,
) -> Init:
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
  return init_linear(
    inputs + hidden, 4 * hidden, dtype, scale=scale, bias=bias, gain=gain, h=zeros, c=zeros
  )


def init_window(
  hidden: int, dtype: jax.typing.DTypeLike, *, stride: float, sigma: float, scale: float = 1.0
) -> Init:
  """The function key -> parameters for the five raw numbers of `attention.window`.

  Args:
    hidden: D.
    dtype: of the parameters.
    stride: of the first window, as a fraction of the one that spans the image.
    sigma: of its filters, in pixels, or in strides if that is how the network says it.
    scale: weights are N(0, scale / D).
  """
  bias = np.array([0.0, 0.0, 2 * np.log(sigma), np.log(stride), 0.0])
  return init_linear(hidden, 5, dtype, scale=scale, bias=bias)


def repeat_initial(state: Any, num: int) -> Any:
  """Learned initial values, the same for each of `num` examples: [...] to [num, ...]."""
  return jax.tree.map(lambda a: jnp.broadcast_to(a, (num, *a.shape)), state)


def check_size(name: str, size: int, height: int, width: int) -> None:
  """Raises a `UserError` for a field whose number of pixels does not fit on an image."""
  if size > min(height, width):
    raise UserError(f'{name}={size} is larger than the images, {height} x {width}.')
