"""DRAW (Section 2) as a Flax module around one pure time-step and a `lax.scan`.

The letters of the shapes are those of `draw_jax.attention`; D is the number of
units of each of the two LSTMs, M that of the channels of a canvas.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float, Num

from draw_jax import attention, distributions, fields
from draw_jax.attention import Array
from draw_jax.errors import UserError
from draw_jax.models import checks, gradients, layers, recurrence, resizing
from draw_jax.models.gradients import Layer, Layers
from draw_jax.models.initialization import Initialization
from draw_jax.models.layers import linear, lstm


@dataclasses.dataclass(kw_only=True)
class DrawConfig:
  """What an experiment says of DRAW; the paper's sizes for MNIST (Table 3)."""

  # T. Parameters do not depend on it, so every method takes another number.
  glimpses: int = fields.field(64, at_least=1, at_most=fields.MOST)
  # D, units of the encoder's and of the decoder's LSTM.
  hidden: int = fields.field(256, at_least=1, at_most=fields.MOST)
  # Z, latent variables of one glimpse.
  latent: int = fields.field(100, at_least=1, at_most=fields.MOST)
  # Read and write through a grid of filters (Eqs. 27-29); False: read the whole image and
  # write the whole canvas (Eqs. 17-18).
  attention: bool = True
  # N of the reading grid of N x N filters.
  read_size: int = fields.field(2, at_least=1)
  # N of the writing grid.
  write_size: int = fields.field(5, at_least=1)
  # D(X | c_T), a name in distributions.OUTPUTS.
  output: str = fields.field('bernoulli', choices=distributions.OUTPUTS)
  # Of the mixture that an output is for each pixel; one that is no mixture has 1.
  components: int = fields.field(1, at_least=1)
  # On the norm of the gradient with respect to the five numbers that place a window, for each
  # glimpse and image; 0: none. It speeds up the first epochs; later it leads beside the minimum.
  window_limit: float = fields.field(0.0, at_least=0)
  # In which matrices are multiplied, such as 'bfloat16'. All else (sums, states, canvas, KL,
  # likelihood) stays in the type of the parameters, which None takes for the matrices too.
  dtype: str | None = fields.field(None, choices=layers.DTYPES)
  # What the backward pass keeps in memory, a name in recurrence.REMAT. The results do not depend
  # on it. Forward mode and derivatives of gradients need another than 'products', and no
  # window_limit.
  remat: str = fields.field('products', choices=recurrence.REMAT)
  # Initial values of the parameters.
  initialization: Initialization = Initialization()

  def check_image(self, height: int, width: int, prefix: str = '') -> None:
    """Raises a `UserError` unless the grids fit on images of this size, and the fields together."""
    if self.components > 1 and not distributions.is_mixture(self.output):
      raise UserError(
        f'{prefix}components={self.components} is for a mixture, and {prefix}output='
        f"{self.output!r} is none: leave it out, or take {prefix}output='discretized_logistic'."
      )
    if self.attention:
      layers.check_size(f'{prefix}read_size', self.read_size, height, width)
      layers.check_size(f'{prefix}write_size', self.write_size, height, width)


class Trace(NamedTuple):
  """Every glimpse of one pass. Windows are None without attention."""

  canvas: Array  # [T, B, H, W, M], after each glimpse
  write: attention.Window | None  # each field [T, B]
  read: attention.Window | None = None  # each field [T, B]; None in generation


class Terms(NamedTuple):
  """What one pass says about each example, in nats."""

  reconstruction: Array  # [B], Eq. 9: -log D(x | c_T)
  kl: Array  # [T, B], the terms of Eq. 10: KL of each glimpse
  log_ratio: Array  # [T, B], log q(z_t) - log p(z_t) at the draw
  kl_latents: Array  # [T, B, Z], the KL of each latent
  latents: Array  # [T, B, Z], the draws z_t
  canvas: Array  # [B, H, W, M], c_T
  trace: Trace | None  # every glimpse, if asked for

  @property
  def loss(self) -> Array:
    """[B], Eq. 12 with one draw: an upper bound on -log p(x) in expectation."""
    return self.reconstruction + self.kl.sum(0)


# c_T, and every glimpse if asked for.
Drawn = tuple[Float[Array, 'b h w m'], Trace | None]
# In the scan: h of an LSTM, and images as `attention.to_hcw` lays them out.
_Hidden = Float[Array, 'b d']
_Rows = Float[Array, 'b h c w']
_Window = attention.Window | None


class State(NamedTuple):
  """What one glimpse hands to the next."""

  canvas: Array  # [B, H, M, W]: as `attention.to_hcw` lays it out
  encoder: tuple[Array, Array]  # h, c: [B, D] each
  decoder: tuple[Array, Array]  # h, c: [B, D] each


def _trace(traced: tuple[Any, ...]) -> Trace:
  """From the canvas as `State` has it, and windows or None."""
  canvas, *windows = traced
  return Trace(attention.to_hwc(canvas), *windows)


class DRAW(nn.Module, DrawConfig):
  """The DRAW network, with the fields of `DrawConfig`.

      model = DRAW(image_shape=(28, 28, 1))
      params = model.init(key, x, key)['params']
      terms = model.apply({'params': params}, x, key)

  Attributes:
    image_shape: (H, W, C).
    param_dtype: of the parameters.
  """

  image_shape: tuple[int, int, int]
  param_dtype: jax.typing.DTypeLike = jnp.float32

  # Parameters that have no effect at first: training that starts from a model without them is
  # training of a model that does the same.
  neutral: ClassVar[tuple[str, ...]] = ()

  def __post_init__(self) -> None:
    checks.arguments(self)
    super().__post_init__()

  def setup(self) -> None:
    """Makes the parameters, the same for inference and generation."""
    height, width, channels = self.image_shape
    init, hidden, dtype = self.initialization, self.hidden, self.param_dtype
    out_channels = self.distribution.canvas_channels
    if self.attention:
      read, patch = self.read_size**2, self.write_size**2
      self.read_window = self.param('read_window', init.read_window(hidden, dtype))
      self.write_window = self.param('write_window', init.write_window(hidden, dtype))
    else:
      read = patch = height * width
    glimpse = 2 * read * channels
    posterior = init.linear(hidden, 2 * self.latent, dtype)
    write = init.linear(hidden, patch * out_channels, dtype, gain=init.write_scale)
    self.encoder = self.param('encoder', init.lstm(glimpse + hidden, hidden, dtype, glimpse))
    self.decoder = self.param('decoder', init.lstm(self.latent, hidden, dtype))
    self.posterior = self.param('posterior', posterior)
    self.write = self.param('write', write)
    zeros = nn.initializers.zeros
    self.canvas = self.param('canvas', zeros, (height, width, out_channels), dtype)

  @property
  def distribution(self) -> distributions.Output:
    """D(X | c_T)."""
    if self.output not in distributions.OUTPUTS:
      names = ', '.join(distributions.OUTPUTS)
      raise ValueError(f'output is {self.output!r}; it must be one of {names}')
    return distributions.OUTPUTS[self.output](self.image_shape[-1], self.components)

  def __call__(
    self,
    x: Num[Array, 'b h w c'],
    key: jax.Array,
    *,
    glimpses: int | None = None,
    trace: bool = False,
    **given: Any,
  ) -> Terms:
    """The terms of the loss for a batch, with noise drawn from a key.

    Args:
      x: [B, H, W, C], values in [0, 1].
      key: a PRNG key.
      glimpses: T; None takes the module's own.
      trace: also return every glimpse.
      **given: what `layers_given` takes; nothing in DRAW itself.
    """
    num = checks.batch(x, self.image_shape)
    return self.infer(x, self.noise(key, num, glimpses), trace=trace, **given)

  def noise(
    self, key: jax.Array, num: int, glimpses: int | None = None
  ) -> Float[Array, 't {num} z']:
    """[T, B, Z] standard normal, independent over glimpses, examples and latents."""
    glimpses = self.glimpses if glimpses is None else glimpses
    checks.count('glimpses', glimpses)
    return jax.random.normal(key, (glimpses, num, self.latent), self.param_dtype)

  def prior(self, h_dec: _Hidden) -> distributions.Gaussian | None:
    """p(z_t | h_dec of the glimpse before), each field [B, Z]; None: the standard normal.

    All latents that are drawn without an image, and the KL, are those of this prior.
    """
    del h_dec
    return None

  def posterior_given(self, layer: Layer, h_enc: _Hidden) -> distributions.Gaussian:
    """Eqs. 1-2: q(z_t | h_enc), from the layer `posterior` as the scan over glimpses has it."""
    return distributions.Gaussian(*jnp.split(linear(layer, h_enc, self.dtype), 2, -1))

  def layers_given(self, num: int) -> Layers:
    """The layers whose gradients are large, for `num` images.

    A network that is told more of its images than their noise takes it here, as keyword arguments
    that every method below hands on; a bias may then be [B, O], one for each image.
    """
    del num
    names = ('encoder', 'posterior', 'decoder', 'write')
    return {name: getattr(self, name) for name in names}

  def first(self, num: int) -> State:
    """c_0, h_0 and cells, the same learned values for each of `num` examples."""
    learned = State(
      attention.to_hcw(self.canvas),
      (self.encoder['h'], self.encoder['c']),
      (self.decoder['h'], self.decoder['c']),
    )
    return layers.repeat_initial(learned, num)

  def observe(
    self, x: Num[Array, 'b h w c'], state: State, **given: Any
  ) -> tuple[State, distributions.Gaussian]:
    """Eqs. 3-6, half a glimpse: the encoder's next state, and q(z_t) of x."""
    x = x.astype(self.param_dtype)
    large = self._seen(self.layers_given(len(x), **given), x)
    encoder, posterior, _ = self._look(large, state, attention.to_hcw(x))
    return state._replace(encoder=encoder), posterior

  def advance(self, state: State, z: Float[Array, 'b z'], **given: Any) -> State:
    """Eqs. 7-8, the other half: the decoder's next state and the canvas, given the latents."""
    return self._draw(self.layers_given(len(z), **given), state, z)[0]

  def infer(
    self,
    x: Num[Array, 'b h w c'],
    noise: Float[Array, 't b z'],
    *,
    trace: bool = False,
    **given: Any,
  ) -> Terms:
    """Eqs. 3-12 with the noise of the latents given: [B, H, W, C], [T, B, Z]."""
    num = checks.batch(x, self.image_shape)
    checks.latents('noise', noise, num, self.latent)
    x = x.astype(self.param_dtype)
    rows = attention.to_hcw(x)

    def step(large, state, noise):
      prior = self.prior(state.decoder[0])
      state, posterior, windows = self._step(large, state, rows, noise)
      return state, (posterior, prior, (state.canvas, *windows) if trace else None)

    large = self._seen(self.layers_given(num, **given), x)
    state, (posterior, prior, traced) = recurrence.scan(
      step, large, self.first(len(x)), noise, self.remat, self.dtype
    )
    canvas = attention.to_hwc(state.canvas)
    mean, log_std, mixing = posterior
    kl = distributions.gaussian_kl(mean, log_std, prior, mixing)
    return Terms(
      reconstruction=-self.log_prob(canvas, x),
      kl=kl.sum(-1),
      log_ratio=distributions.gaussian_log_ratio(mean, log_std, noise, prior, mixing).sum(-1),
      kl_latents=kl,
      latents=distributions.gaussian_sample(mean, log_std, noise, mixing),
      canvas=canvas,
      trace=_trace(traced) if trace else None,
    )

  def generate(
    self,
    num: int,
    key: jax.Array,
    *,
    glimpses: int | None = None,
    trace: bool = False,
    **given: Any,
  ) -> Drawn:
    """Eqs. 13-15: canvases drawn from the prior, with noise drawn from a key; see `decode`."""
    checks.count('num', num)
    return self.draw(self.noise(key, num, glimpses), trace=trace, **given)

  def draw(self, noise: Float[Array, 't b z'], *, trace: bool = False, **given: Any) -> Drawn:
    """Eqs. 13-15: canvases drawn from the prior with this noise [T, B, Z]; see `decode`."""

    def latents(state, noise):
      prior = self.prior(state.decoder[0])
      if prior is None:
        return noise
      return distributions.gaussian_sample(prior.mean, prior.log_std, noise)

    return self._decode(noise, latents, trace, given)

  def decode(self, latents: Float[Array, 't b z'], *, trace: bool = False, **given: Any) -> Drawn:
    """Eqs. 14-15: the canvas that latents lead to; the encoder takes no part.

    Args:
      latents: [T, B, Z].
      trace: also return every glimpse.
      **given: see `layers_given`.

    Returns:
      c_T [B, H, W, M], and a Trace or None. `mean` and `sample` turn canvases
      into images.
    """
    return self._decode(latents, lambda _, z: z, trace, given)

  def _decode(
    self,
    inputs: Float[Array, 't b z'],
    latents: Callable[[State, Array], Array],
    trace: bool,
    given: Mapping[str, Any],
  ) -> Drawn:
    """Eqs. 14-15 with the latents that (state, one input) give."""
    checks.latents('latents', inputs, None, self.latent)
    num = inputs.shape[1]
    large = self.layers_given(num, **given)

    def step(state, inputs):
      state, window = self._draw(large, state, latents(state, inputs))
      return state, (state.canvas, window) if trace else None

    state, traced = jax.lax.scan(step, self.first(num), inputs)
    return attention.to_hwc(state.canvas), _trace(traced) if trace else None

  def reconstruct(
    self,
    x: Num[Array, 'b h w c'],
    key: jax.Array,
    *,
    glimpses: int | None = None,
    trace: bool = False,
    **given: Any,
  ) -> Drawn:
    """The canvas that the encoder's latents for x lead to, and a Trace or None."""
    terms = self(x, key, glimpses=glimpses, trace=trace, **given)
    return terms.canvas, terms.trace

  def log_prob(
    self, canvas: Float[Array, '*#b h w m'], x: Num[Array, '*#b h w c']
  ) -> Float[Array, '*#b']:
    """Log D(x | c) of whole images in nats, [...]."""
    checks.ends_in('x', x, self.image_shape)
    return self.distribution.log_prob(canvas, x)

  def mean(self, canvas: Float[Array, '*b h w m']) -> Float[Array, '*b h w c']:
    """Mean images of canvases, [..., H, W, C] in [0, 1]: sigma(c) for Bernoullis."""
    return self.distribution.mean(canvas)

  def sample(self, canvas: Float[Array, '*b h w m'], key: jax.Array) -> Num[Array, '*b h w c']:
    """Eq. 16: images drawn from D(X | c), [..., H, W, C]."""
    return self.distribution.sample(canvas, key)

  def start_canvas_at(
    self, params: Mapping[str, Any], image: Num[Array, 'h w c']
  ) -> dict[str, Any]:
    """Parameters whose first canvas has this mean, [H, W, C] in [0, 1].

    Started at the mean training image, the network spends no time on learning
    it. The paper starts from an unspecified learned canvas, here zero by default.
    """
    checks.image(image, self.image_shape)
    canvas = self.distribution.from_mean(jnp.asarray(image, self.param_dtype))
    return {**params, 'canvas': canvas}

  def with_latents(self, params: Mapping[str, Any], num: int) -> dict[str, Any]:
    """Parameters of the same network with `num` latents in place of Z.

    Of fewer, those stay whose mean depends most on the encoder; one that carries nothing
    is noise to the decoder. More are added that are as their prior and that the decoder
    does not hear: the bound stays the same in expectation.

    Args:
      params: of this module.
      num: for a module with this number of `latent`.
    """
    return resizing.with_latents(params, self.latent, num)

  def latents_in_use(self, params: Mapping[str, Any]) -> int:
    """How many latents `with_latents` has to keep so that nothing changes but the noise."""
    posterior = params['posterior']
    mean, log_std = jnp.split(jnp.vstack([posterior['kernel'], posterior['bias']]), 2, -1)
    heard = params['decoder']['kernel'][: self.latent]
    used = jnp.any(mean != 0, 0) | jnp.any(log_std != 0, 0) | jnp.any(heard != 0, 1)
    # `with_latents` chooses by the weights of the means.
    chosen = jnp.any(mean[:-1] != 0, 0)
    return max(1, int(used.sum())) if bool((used == chosen).all()) else self.latent

  def _seen(self, large: Layers, x: Float[Array, 'b h w c']) -> Layers:
    """The large layers, without attention their encoder knowing x [B, H, W, C] already.

    The glimpse is then x, the same at every step, and the error image: multiplied once,
    before the steps, x is a bias [B, 4 D] of its own for each example.
    """
    if self.attention:
      return large
    encoder, x = large['encoder'], x.reshape(len(x), -1)
    of_x, rest = jnp.split(encoder['kernel'], [x.shape[-1]])
    bias = encoder['bias'] + gradients.product(self.dtype, x, of_x)
    return {**large, 'encoder': {**encoder, 'kernel': rest, 'bias': bias}}

  def _step(
    self, large: Layers, state: State, x: _Rows, noise: Float[Array, 'b z']
  ) -> tuple[State, distributions.Gaussian, tuple[_Window, ...]]:
    """Eqs. 3-8: one step of inference for x [B, H, C, W].

    Returns the next state, the posterior, and the windows it wrote and read through.
    """
    encoder, posterior, read_window = self._look(large, state, x)
    z = distributions.gaussian_sample(posterior.mean, posterior.log_std, noise, posterior.mixing)
    state, write_window = self._draw(large, state._replace(encoder=encoder), z)
    return state, posterior, (write_window, read_window)

  def _look(
    self, large: Layers, state: State, x: _Rows
  ) -> tuple[tuple[_Hidden, _Hidden], distributions.Gaussian, _Window]:
    """Eqs. 3-6: the encoder's h and c, the posterior, and the window it read through."""
    h_dec = state.decoder[0]
    mean = attention.to_hcw(self.distribution.mean(attention.to_hwc(state.canvas)))
    glimpse, window = self._read(x, x - mean, h_dec)
    inputs = jnp.concatenate([glimpse, h_dec], -1)
    encoder = lstm(large['encoder'], state.encoder, inputs, self.dtype)
    return encoder, self.posterior_given(large['posterior'], encoder[0]), window

  def _draw(self, large: Layers, state: State, z: Float[Array, 'b z']) -> tuple[State, _Window]:
    """Eqs. 7-8: one step of the decoder; the next state and the window."""
    decoder = lstm(large['decoder'], state.decoder, z, self.dtype)
    change, window = self._write(large['write'], decoder[0])
    return state._replace(decoder=decoder, canvas=state.canvas + change), window

  def _read(self, x: _Rows, error: _Rows, h_dec: _Hidden) -> tuple[Float[Array, 'b r'], _Window]:
    """Eq. 17 or 27: [B, R], a patch of x and then one of the error image, both [B, H, C, W].

    Without attention only the error image: `_seen` has told the encoder of x.
    """
    if not self.attention:
      return attention.to_hwc(error).reshape(len(error), -1), None
    window = self._place(self.read_window, h_dec, self.read_size)
    patches = [attention.read_hcw(a, window, self.read_size) for a in (x, error)]
    patches = map(attention.to_hwc, patches)
    return jnp.concatenate([p.reshape(len(p), -1) for p in patches], -1), window

  def _write(self, layer: Layer, h_dec: _Hidden) -> tuple[Float[Array, 'b h m w'], _Window]:
    """Eq. 18 or 28-29: [B, H, M, W], what to add to the canvas."""
    height, width, channels = self.canvas.shape
    patch = linear(layer, h_dec, self.dtype)
    if not self.attention:
      return attention.to_hcw(patch.reshape(-1, height, width, channels)), None
    patch = attention.to_hcw(patch.reshape(-1, self.write_size, self.write_size, channels))
    window = self._place(self.write_window, h_dec, self.write_size)
    return attention.write_hcw(patch, window, height, width), window

  def _place(self, layer: Layer, h_dec: _Hidden, size: int) -> attention.Window:
    """Eqs. 21-24: the window of N x N filters that h_dec asks for."""
    # A few numbers place the window: they are not worth a loss of precision.
    raw = gradients.limit(linear(layer, h_dec), self.window_limit)
    return attention.window(raw, size, *self.image_shape[:2])
