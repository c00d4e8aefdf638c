"""DRAW (Section 2) as a Flax module around one pure time-step and a `lax.scan`.

The letters of the shapes are those of `draw_jax.attention`; D is the number of
units of each of the two LSTMs.
"""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from draw_jax import attention, distributions, gradients, layers, recurrence
from draw_jax.layers import linear, lstm


@dataclasses.dataclass(frozen=True)
class Start:
  """Starting values that the paper leaves open; `PAPER` takes its formulas bare.

  The paper's formulas put the first 2 x 2 read on the corners of the picture
  with sigma = 1. A digit leaves the corners black, so the encoder would see
  nothing at first and learn slowly.
  """

  read_stride: float = 0.5  # of the stride that spans the picture: look inside it
  read_sigma: float = 4.0  # pixels: filters wide enough to meet most of the picture
  write_stride: float = 0.8  # of the stride that spans the picture
  write_sigma: float = 2.5  # pixels: neighbouring filters overlap, no gaps between
  forget_bias: float = 1.0  # of both LSTMs: gradients reach the early steps at first
  kernel_scale: float = 1.0  # weights are N(0, kernel_scale / fan_in)
  own_glimpse_scale: bool = True  # those from the glimpse N(0, kernel_scale / its size):
  # a few pixels are heard beside hundreds of hidden units
  write_scale: float = 4.0  # factor on the weights that make the writing patch: the
  # canvas, and with it the latents, matter from the first step of training


PAPER = Start(
  read_stride=1.0,
  read_sigma=1.0,
  write_stride=1.0,
  write_sigma=1.0,
  forget_bias=0.0,
  own_glimpse_scale=False,
  write_scale=1.0,
)


class Trace(NamedTuple):
  """Every step of one pass, for pictures. Windows are None without attention."""

  canvas: jax.Array  # [T, B, H, W, K C], after each step
  write: attention.Window | None  # each field [T, B]
  read: attention.Window | None = None  # each field [T, B]; None in generation


class Terms(NamedTuple):
  """What one pass says about each example, in nats."""

  reconstruction: jax.Array  # [B], Eq. 9: -log D(x | c_T)
  kl: jax.Array  # [T, B], the terms of Eq. 10: KL of each step
  log_ratio: jax.Array  # [T, B], log q(z_t) - log p(z_t) at the draw
  kl_latents: jax.Array  # [T, B, Z], the KL of each latent
  latents: jax.Array  # [T, B, Z], the draws z_t
  canvas: jax.Array  # [B, H, W, K C], c_T
  trace: Trace | None  # every step, if asked for

  @property
  def loss(self) -> jax.Array:
    """[B], Eq. 12 with one draw: an upper bound on -log p(x) in expectation."""
    return self.reconstruction + self.kl.sum(0)


class _State(NamedTuple):
  """What one time-step hands to the next."""

  canvas: jax.Array  # [B, H, K C, W]: as `attention.to_hcw` lays it out
  encoder: tuple[jax.Array, jax.Array]  # h, c: [B, D] each
  decoder: tuple[jax.Array, jax.Array]  # h, c: [B, D] each


def _trace(traced) -> Trace:
  canvas, *windows = traced
  return Trace(attention.to_hwc(canvas), *windows)


class DRAW(nn.Module):
  """The DRAW network.

      model = DRAW(image_shape=(28, 28, 1))
      params = model.init(key, x, key)['params']
      terms = model.apply({'params': params}, x, key)

  Parameters do not depend on `steps`, so every method takes another number.

  Attributes:
    image_shape: (H, W, C).
    steps: T, the number of glimpses.
    hidden: D, units of the encoder's and of the decoder's LSTM.
    latent: Z.
    attention: read and write through a grid of filters (Eqs. 27-29), or read the
      whole picture and write the whole canvas (Eqs. 17-18).
    read_size: N of the reading grid.
    write_size: N of the writing grid.
    output: name of D(X | c_T) in `distributions.OUTPUTS`.
    window_limit: on the norm of the gradient by the five numbers that place a
      window, for each step and picture; 0: none.
    start: starting values of the parameters.
    dtype: in which matrices are multiplied, for example jnp.bfloat16. All else
      (sums, states, canvas, KL, likelihood) stays in `param_dtype`.
    param_dtype: of the parameters.
    remat: what the backward pass keeps in memory, a name in `recurrence.REMAT`.
      The results do not depend on it. Forward mode and derivatives of gradients
      need another than 'products', and no `window_limit`.
  """

  image_shape: tuple[int, int, int]
  steps: int = 64
  hidden: int = 256
  latent: int = 100
  attention: bool = True
  read_size: int = 2
  write_size: int = 5
  output: str = 'bernoulli'
  window_limit: float = 0.0
  start: Start = Start()
  dtype: jax.typing.DTypeLike | None = None
  param_dtype: jax.typing.DTypeLike = jnp.float32
  remat: str = 'products'

  def setup(self):
    """Makes the parameters, the same for inference and generation."""
    height, width, channels = self.image_shape
    start, hidden = self.start, self.hidden
    out_channels = channels * self._output.channels
    if self.attention:
      read, patch = self.read_size**2, self.write_size**2
      self.read_window = self._window('read_window', start.read_stride, start.read_sigma)
      self.write_window = self._window('write_window', start.write_stride, start.write_sigma)
    else:
      read = patch = height * width
    glimpse = 2 * read * channels
    self.encoder = self._lstm('encoder', glimpse + hidden, glimpse)
    self.decoder = self._lstm('decoder', self.latent)
    self.posterior = self._linear('posterior', hidden, 2 * self.latent)
    self.write = self._linear('write', hidden, patch * out_channels, gain=start.write_scale)
    zeros = nn.initializers.zeros
    self.canvas = self.param('canvas', zeros, (height, width, out_channels), self.param_dtype)

  def __call__(self, x, key, *, steps: int | None = None, trace: bool = False) -> Terms:
    """The terms of the loss for a batch, with noise drawn from a key.

    Args:
      x: [B, H, W, C], values in [0, 1].
      key: a PRNG key.
      steps: T; None takes the module's own.
      trace: also return every step.
    """
    return self.infer(x, self.noise(key, len(x), steps), trace=trace)

  def noise(self, key, num: int, steps: int | None = None) -> jax.Array:
    """[T, B, Z] standard normal, independent over steps, examples and latents."""
    steps = self.steps if steps is None else steps
    return jax.random.normal(key, (steps, num, self.latent), self.param_dtype)

  def infer(self, x, noise, *, trace: bool = False) -> Terms:
    """Eqs. 3-12 with the noise of the latents given: [B, H, W, C], [T, B, Z]."""
    x = x.astype(self.param_dtype)
    rows = attention.to_hcw(x)

    def step(large, state, noise):
      state, statistics, windows = self._step(large, state, rows, noise)
      return state, (statistics, (state.canvas, *windows) if trace else None)

    large = self._large if self.attention else self._seen(x)
    state, (statistics, traced) = recurrence.scan(
      step, large, self._initial(len(x)), noise, self.remat, self.dtype
    )
    canvas = attention.to_hwc(state.canvas)
    mean, log_std = jnp.split(statistics, 2, -1)
    kl = distributions.gaussian_kl(mean, log_std)
    return Terms(
      reconstruction=-self._output.log_prob(canvas, x).sum((-3, -2, -1)),
      kl=kl.sum(-1),
      log_ratio=distributions.gaussian_log_ratio(mean, log_std, noise).sum(-1),
      kl_latents=kl,
      latents=distributions.gaussian_sample(mean, log_std, noise),
      canvas=canvas,
      trace=_trace(traced) if trace else None,
    )

  def generate(self, num: int, key, *, steps: int | None = None, trace: bool = False):
    """Eqs. 13-15: canvases drawn from the prior; see `decode`."""
    return self.decode(self.noise(key, num, steps), trace=trace)

  def decode(self, latents, *, trace: bool = False):
    """Eqs. 14-15: the canvas that latents lead to; the encoder takes no part.

    Args:
      latents: [T, B, Z].
      trace: also return every step.

    Returns:
      c_T [B, H, W, K C], and a Trace or None. `mean` and `sample` turn canvases
      into pictures.
    """

    def step(state, z):
      state, window = self._draw(self._large, state, z)
      return state, (state.canvas, window) if trace else None

    state, traced = jax.lax.scan(step, self._initial(latents.shape[1]), latents)
    return attention.to_hwc(state.canvas), _trace(traced) if trace else None

  def reconstruct(self, x, key, *, steps: int | None = None, trace: bool = False):
    """The canvas that the encoder's latents for x lead to, and a Trace or None."""
    terms = self(x, key, steps=steps, trace=trace)
    return terms.canvas, terms.trace

  def mean(self, canvas) -> jax.Array:
    """Mean pictures of canvases, [..., H, W, C] in [0, 1]: sigma(c) for Bernoulli."""
    return self._output.mean(canvas)

  def sample(self, canvas, key) -> jax.Array:
    """Eq. 16: pictures drawn from D(X | c), [..., H, W, C]."""
    return self._output.sample(canvas, key)

  def start_canvas_at(self, params, picture):
    """Parameters whose first canvas has this mean, [H, W, C] in [0, 1].

    Started at the mean training picture, the network spends no time on learning
    it. The paper starts from an unspecified learned canvas, here zero by default.
    """
    canvas = self._output.from_mean(jnp.asarray(picture, self.param_dtype))
    return {**params, 'canvas': canvas}

  def with_latents(self, params, num: int):
    """Parameters of the same network with `num` latents in place of Z.

    Of fewer, those stay whose mean depends most on the encoder; one that carries nothing
    is noise to the decoder. More are added that are as their prior and that the decoder
    does not hear: the bound stays the same in expectation.

    Args:
      params: of this module.
      num: for a module with this number of `latent`.
    """
    posterior, decoder = params['posterior'], params['decoder']
    mean, log_std = jnp.split(posterior['kernel'], 2, -1)
    heard, rest = jnp.split(decoder['kernel'], [self.latent])
    kept = jnp.sort(jnp.argsort(-jnp.linalg.norm(mean, axis=0))[:num])

    def resized(a, axis):
      size = [(0, num - len(kept)) if i == axis else (0, 0) for i in range(a.ndim)]
      return jnp.pad(a.take(kept, axis), size)

    kernel = jnp.concatenate([resized(a, 1) for a in (mean, log_std)], -1)
    bias = jnp.concatenate([resized(a, 0) for a in jnp.split(posterior['bias'], 2)])
    heard = jnp.concatenate([resized(heard, 0), rest])
    changed = {
      'posterior': {'kernel': kernel, 'bias': bias},
      'decoder': {**decoder, 'kernel': heard},
    }
    return {**params, **changed}

  @property
  def _output(self) -> distributions.Output:
    if self.output not in distributions.OUTPUTS:
      names = ', '.join(distributions.OUTPUTS)
      raise ValueError(f'output is {self.output!r}; it must be one of {names}')
    return distributions.OUTPUTS[self.output]

  @property
  def _large(self):
    """The layers whose gradients are large."""
    names = ('encoder', 'posterior', 'decoder', 'write')
    return {name: getattr(self, name) for name in names}

  def _seen(self, x):
    """The large layers without attention, their encoder knowing x [B, H, W, C] already.

    The glimpse is then x, the same at every step, and the error image: multiplied once,
    before the steps, x is a bias [B, 4 D] of its own for each example.
    """
    encoder, x = self.encoder, x.reshape(len(x), -1)
    of_x, rest = jnp.split(encoder['kernel'], [x.shape[-1]])
    bias = encoder['bias'] + gradients.product(self.dtype, x, of_x)
    return {**self._large, 'encoder': {**encoder, 'kernel': rest, 'bias': bias}}

  def _initial(self, num: int) -> _State:
    """c_0, h_0 and cells, the same learned values for each of `num` examples."""
    learned = _State(
      attention.to_hcw(self.canvas),
      (self.encoder['h'], self.encoder['c']),
      (self.decoder['h'], self.decoder['c']),
    )
    return layers.from_start(learned, num)

  def _step(self, large, state: _State, x, noise):
    """Eqs. 3-8: one step of inference for x [B, H, C, W].

    Returns the next state, the posterior's mean and log std [B, 2 Z], and the
    windows it wrote and read through.
    """
    h_dec = state.decoder[0]
    mean = attention.to_hcw(self._output.mean(attention.to_hwc(state.canvas)))
    glimpse, read_window = self._read(x, x - mean, h_dec)
    inputs = jnp.concatenate([glimpse, h_dec], -1)
    encoder = lstm(large['encoder'], state.encoder, inputs, self.dtype)
    statistics = linear(large['posterior'], encoder[0], self.dtype)
    z = distributions.gaussian_sample(*jnp.split(statistics, 2, -1), noise)
    state, write_window = self._draw(large, state._replace(encoder=encoder), z)
    return state, statistics, (write_window, read_window)

  def _draw(self, large, state: _State, z):
    """Eqs. 7-8: one step of the decoder; the next state and the window."""
    decoder = lstm(large['decoder'], state.decoder, z, self.dtype)
    change, window = self._write(large['write'], decoder[0])
    return state._replace(decoder=decoder, canvas=state.canvas + change), window

  def _read(self, x, error, h_dec):
    """Eq. 17 or 27: [B, R], a patch of x and then one of the error image, both [B, H, C, W].

    Without attention only the error image: `_seen` has told the encoder of x.
    """
    if not self.attention:
      return attention.to_hwc(error).reshape(len(error), -1), None
    window = self._place(self.read_window, h_dec, self.read_size)
    patches = [attention.read_hcw(a, window, self.read_size) for a in (x, error)]
    patches = map(attention.to_hwc, patches)
    return jnp.concatenate([p.reshape(len(p), -1) for p in patches], -1), window

  def _write(self, layer, h_dec):
    """Eq. 18 or 28-29: [B, H, K C, W], what to add to the canvas."""
    height, width, channels = self.canvas.shape
    patch = linear(layer, h_dec, self.dtype)
    if not self.attention:
      return attention.to_hcw(patch.reshape(-1, height, width, channels)), None
    patch = attention.to_hcw(patch.reshape(-1, self.write_size, self.write_size, channels))
    window = self._place(self.write_window, h_dec, self.write_size)
    return attention.write_hcw(patch, window, height, width), window

  def _place(self, layer, h_dec, size: int):
    """Eqs. 21-24: the window of N x N filters that h_dec asks for."""
    # A few numbers place the window: they are not worth a loss of precision.
    raw = gradients.limit(linear(layer, h_dec), self.window_limit)
    return attention.window(raw, size, *self.image_shape[:2])

  def _linear(self, name: str, inputs: int, outputs: int, gain=1.0):
    """A parameter for `linear`; `gain` multiplies the starting weights."""
    scale = self.start.kernel_scale
    start = layers.start_linear(inputs, outputs, self.param_dtype, scale=scale, gain=gain)
    return self.param(name, start)

  def _lstm(self, name: str, inputs: int, glimpse: int = 0):
    """A parameter for `lstm`, with the learned initial h and c.

    The first `glimpse` of the inputs are a glimpse.
    """
    start, gain = self.start, np.ones(inputs)
    if start.own_glimpse_scale:
      gain[:glimpse] = np.sqrt((inputs + self.hidden) / max(glimpse, 1))
    bias, scale = start.forget_bias, start.kernel_scale
    made = layers.start_lstm(
      inputs, self.hidden, self.param_dtype, forget_bias=bias, gain=gain, scale=scale
    )
    return self.param(name, made)

  def _window(self, name: str, stride: float, sigma: float):
    """A parameter for the five raw numbers of `attention.window`."""
    scale = self.start.kernel_scale
    made = layers.start_window(
      self.hidden, self.param_dtype, stride=stride, sigma=sigma, scale=scale
    )
    return self.param(name, made)
