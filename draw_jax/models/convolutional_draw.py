"""Convolutional DRAW (Gregor et al. 2016, "Towards Conceptual Compression").

All that DRAW has in vectors is here in maps of features, one place of a map for each s x s pixels.
With S(x) an image cut into these squares, [H, W, C] to [H / s, W / s, s s C], and * a convolution
of k x k places with zeros around the map, one glimpse is

    e_t = x - E[X | c_t-1]                                          the error image
    h_enc_t = LSTM_enc(h_enc_t-1, [S(x), S(e_t), h_dec_t-1])
    q(z_t | x, z_1 ... z_t-1) = N(mu, sigma^2),  [mu, log sigma] = W_posterior * h_enc_t
    p(z_t | z_1 ... z_t-1) = N(mu, sigma^2),  [mu, log sigma] = W_prior * h_dec_t-1
    h_dec_t = LSTM_dec(h_dec_t-1, [z_t, S(c_t-1)])
    c_t = c_t-1 + S^-1(W_write * h_dec_t)

and the bound is that of DRAW, -log D(x | c_T) + sum over t of KL(q || p). An LSTM's gates are
convolutions,

    [i, f, g, o] = W * [inputs, h] + b
    c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c')

A convolution of S(x) is one of x with a filter of k s x k s at every s-th pixel, and S^-1 after one
is the transposed convolution that goes with it. Nothing is read or written through windows. W_prior
starts at zero: the first prior is the standard normal. The first states are learned for each place.

Letters of the shapes: P x Q places of a map, I channels of a layer's input and O of its output, D
channels of an LSTM's state; Z = P Q latent_channels; others as in `draw_jax.models.draw`.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from draw_jax import attention, distributions, fields
from draw_jax.attention import Array
from draw_jax.errors import UserError
from draw_jax.models import layers
from draw_jax.models.draw import DRAW, DrawConfig, State
from draw_jax.models.gradients import DType, Layer, Layers

_Maps = Float[Array, 'b p q _']


@dataclasses.dataclass(kw_only=True)
class ConvolutionalDrawConfig(DrawConfig):
  """What an experiment says of it; of DRAW's fields those that are not of vectors or windows."""

  # T, as in DRAW.
  glimpses: int = fields.field(8, at_least=1)
  # s, pixels on a side of what a place of the maps stands for; divides the images' sides.
  scale: int = fields.field(4, at_least=1)
  # D, channels of the encoder's and of the decoder's state.
  features: int = fields.field(32, at_least=1)
  # Of z_t, at each place of the maps.
  latent_channels: int = fields.field(4, at_least=1)
  # k, places on a side of a convolution.
  kernel_size: int = fields.field(
    3, at_least=1, check=lambda k: None if k % 2 else 'must be odd: a place has a middle.'
  )
  # Factor on the initial weights that write.
  write_scale: float = fields.field(0.5, above=0)
  # What the backward pass keeps in memory, a name in recurrence.REMAT; the results do not depend
  # on it.
  remat: str = fields.field('none', choices=('none', 'step', 'segments'))

  # Of DRAW's fields, and no more to be chosen: images are seen and drawn as a whole.
  attention: ClassVar[bool] = False
  # No window, no filters.
  read_size: ClassVar[int] = 0
  # The same.
  write_size: ClassVar[int] = 0
  # Nor a gradient with respect to it.
  window_limit: ClassVar[float] = 0.0
  # That of DRAW's parameters.
  initialization: ClassVar[None] = None
  # These follow from the size of the images.
  hidden: ClassVar[int]
  latent: ClassVar[int]

  def check_image(self, height: int, width: int, prefix: str = '') -> None:
    """Raises a `UserError` unless the maps fit images of this size, and the fields together."""
    super().check_image(height, width, prefix)
    if height % self.scale or width % self.scale:
      fitting = [s for s in range(1, min(height, width) + 1) if not (height % s or width % s)]
      raise UserError(
        f'{prefix}scale={self.scale} does not divide the sides of the images, {height} x {width}: '
        f'try {", ".join(map(str, fitting))}.'
      )


class ConvolutionalDraw(ConvolutionalDrawConfig, DRAW):
  """The network, with the fields of `ConvolutionalDrawConfig` and the methods of `DRAW`.

      model = ConvolutionalDraw(image_shape=(28, 28, 1))
      params = model.init(key, x, key)['params']
      terms = model.apply({'params': params}, x, key)

  Attributes:
    image_shape: (H, W, C).
    param_dtype: of the parameters.
  """

  def setup(self) -> None:
    height, width, channels = self.image_shape
    canvas, squares = self.distribution.canvas_channels, self.scale**2
    of_x, of_canvas = squares * channels, squares * canvas
    self.encoder = self._lstm('encoder', 2 * of_x + self.features)
    self.decoder = self._lstm('decoder', self.latent_channels + of_canvas)
    self.posterior = self._layer('posterior', self.features, 2 * self.latent_channels)
    self.prior_layer = self._layer('prior', self.features, 2 * self.latent_channels, gain=0.0)
    self.write = self._layer('write', self.features, of_canvas, gain=self.write_scale)
    zeros = nn.initializers.zeros
    self.canvas = self.param('canvas', zeros, (height, width, canvas), self.param_dtype)

  @property
  def latent(self) -> int:
    """Z, of all places together."""
    return self.latent_channels * int(np.prod(self._places))

  @property
  def hidden(self) -> int:
    """Units of an LSTM at all places together."""
    return self.features * int(np.prod(self._places))

  def prior(self, h_dec: Float[Array, 'b p q d']) -> distributions.Gaussian:
    return _gaussian(convolution(self.prior_layer, h_dec, self.dtype))

  def posterior_given(self, layer: Layer, h_enc: Float[Array, 'b p q d']) -> distributions.Gaussian:
    return _gaussian(convolution(layer, h_enc, self.dtype))

  def latents_in_use(self, params: Mapping[str, Any]) -> int:
    del params
    return self.latent

  def with_latents(self, params: Mapping[str, Any], num: int) -> NoReturn:
    del params
    raise UserError(
      f'--latents={num}: the latents of a convolutional DRAW are channels of maps, all of which '
      'are kept. Leave the flag out.'
    )

  @property
  def _places(self) -> tuple[int, int]:
    """P, Q."""
    height, width, _ = self.image_shape
    return height // self.scale, width // self.scale

  def _layer(self, name: str, inputs: int, outputs: int, **more: Any) -> Layer:
    """The parameters of a convolution."""
    fan_in = self.kernel_size**2 * inputs
    return self.param(name, layers.init_linear(fan_in, outputs, self.param_dtype, **more))

  def _lstm(self, name: str, inputs: int) -> Layer:
    """Those of an LSTM, which at first forgets little, and its first states."""
    zeros = np.zeros((*self._places, self.features))
    bias = np.repeat([0.0, 1.0, 0.0, 0.0], self.features)
    inputs, outputs = inputs + self.features, 4 * self.features
    return self._layer(name, inputs, outputs, bias=bias, h=zeros, c=zeros)

  def layers_given(self, num: int) -> Layers:
    """None: a convolution's gradient sums over places before it sums over glimpses."""
    del num
    return {}

  def _seen(self, large: Layers, x: Float[Array, 'b h w c']) -> Layers:
    """What the encoder's gates hear of x at every glimpse, computed once; and the rest of them."""
    del large
    x, size = _cut(attention.to_hcw(x), self.scale), self.kernel_size**2
    kernel = self.encoder['kernel'].reshape(size, -1, 4 * self.features)
    of_x, rest = (a.reshape(-1, 4 * self.features) for a in jnp.split(kernel, [x.shape[-1]], 1))
    seen = convolution({**self.encoder, 'kernel': of_x}, x, self.dtype)
    return {'encoder': {'kernel': rest, 'bias': seen}}

  def _look(
    self, large: Layers, state: State, x: Float[Array, 'b h c w']
  ) -> tuple[tuple[_Maps, _Maps], distributions.Gaussian, None]:
    """The encoder's next h and c, the posterior, and no window."""
    mean = attention.to_hcw(self.distribution.mean(attention.to_hwc(state.canvas)))
    inputs = [_cut(x - mean, self.scale), state.decoder[0]]
    encoder = _lstm_step(large['encoder'], state.encoder, inputs, self.dtype)
    return encoder, self.posterior_given(self.posterior, encoder[0]), None

  def _draw(self, large: Layers, state: State, z: Float[Array, 'b z']) -> tuple[State, None]:
    """The decoder's next h and c and the next canvas, and no window."""
    del large
    z = z.reshape(-1, *self._places, self.latent_channels)
    inputs = [z, _cut(state.canvas, self.scale)]
    decoder = _lstm_step(self.decoder, state.decoder, inputs, self.dtype)
    change = _joined(convolution(self.write, decoder[0], self.dtype), self.scale)
    return state._replace(decoder=decoder, canvas=state.canvas + change), None


def convolution(
  params: Layer, x: Float[Array, 'b p q i'], dtype: DType = None
) -> Float[Array, 'b p q o']:
  """W * x + b. Multiplies in `dtype`, sums in float32 or wider.

  Args:
    params: {'kernel': [k k I, O], 'bias': [O] or [B, P, Q, O]}; the rows of the kernel are row by
      row those of its k x k places, from above left of a place to below right of it.
    x: [B, P, Q, I].
    dtype: of the products' operands; None takes that of the arguments.
  """
  return _convolved(dtype, x, params['kernel']) + params['bias']


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolved(
  dtype: DType, x: Float[Array, 'b p q i'], kernel: Float[Array, 'k o']
) -> Float[Array, 'b p q o']:
  """W * x, and its gradients, as products of matrices.

  XLA's own gradients of convolutions are many times slower on CPUs, and are in float32.
  """
  rows = _patches(_in(dtype, x), _size(x, kernel))
  return jnp.dot(rows, _in(dtype, kernel), preferred_element_type=kernel.dtype)


def _convolved_forward(dtype: DType, x: _Maps, kernel: Array) -> tuple[_Maps, tuple[_Maps, Array]]:
  return _convolved(dtype, x, kernel), (x, kernel)


def _convolved_backward(
  dtype: DType, kept: tuple[_Maps, Array], change: _Maps
) -> tuple[_Maps, Float[Array, 'k o']]:
  x, kernel = kept
  size = _size(x, kernel)
  # Seen from an input, the places that it went to are on the other side.
  turned = kernel.reshape(size**2, -1, kernel.shape[1])[::-1].swapaxes(1, 2)
  to_x = _convolved(dtype, change, turned.reshape(-1, x.shape[-1]))
  rows, change = _patches(_in(dtype, x), size), _in(dtype, change)
  if dtype is None:
    to_kernel = rows.reshape(-1, rows.shape[-1]).T @ change.reshape(-1, change.shape[-1])
    return to_x, to_kernel
  # Examples and places stay two axes: as one, XLA multiplies in float32 on CPUs.
  rows, change = (a.reshape(len(a), -1, a.shape[-1]) for a in (rows, change))
  return to_x, jnp.einsum('bpi,bpo->io', rows, change, preferred_element_type=kernel.dtype)


_convolved.defvjp(_convolved_forward, _convolved_backward)


def _in(dtype: DType, x: Array) -> Array:
  return x if dtype is None else x.astype(dtype)


def _size(x: Float[Array, 'b p q i'], kernel: Float[Array, 'k o']) -> int:
  """Places on a side of a filter, k."""
  return round((kernel.shape[0] // x.shape[-1]) ** 0.5)


def _patches(x: Float[Array, 'b p q i'], size: int) -> Float[Array, 'b p q {size}*{size}*i']:
  """The k x k places around each place, with zeros around the map."""
  edge, (_, height, width, _) = size // 2, x.shape
  x = jnp.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
  places = np.ndindex(size, size)
  return jnp.concatenate([x[:, i : i + height, j : j + width] for i, j in places], -1)


def _lstm_step(
  params: Layer, state: tuple[_Maps, _Maps], inputs: list[_Maps], dtype: DType
) -> tuple[_Maps, _Maps]:
  """The next h and c of an LSTM, from (h, c) and the inputs."""
  h, c = state
  gates = convolution(params, jnp.concatenate([*inputs, h], -1), dtype)
  i, f, g, o = jnp.split(gates, 4, -1)
  c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
  return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gaussian(statistics: _Maps) -> distributions.Gaussian:
  """Means and log deviations [B, Z] from both in maps."""
  both = jnp.split(statistics, 2, -1)
  return distributions.Gaussian(*(a.reshape(len(a), -1) for a in both))


def _cut(x: Float[Array, 'b h c w'], scale: int) -> _Maps:
  """S(x): [B, P, Q, s s C], the pixels of a square row by row."""
  num, height, channels, width = x.shape
  x = x.reshape(num, height // scale, scale, channels, width // scale, scale)
  x = x.transpose(0, 1, 4, 2, 5, 3)
  return x.reshape(num, height // scale, width // scale, -1)


def _joined(maps: _Maps, scale: int) -> Float[Array, 'b h c w']:
  """S^-1."""
  num, rows, columns, _ = maps.shape
  maps = maps.reshape(num, rows, columns, scale, scale, -1).transpose(0, 1, 3, 5, 2, 4)
  return maps.reshape(num, rows * scale, -1, columns * scale)
