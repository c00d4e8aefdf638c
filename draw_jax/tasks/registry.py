"""What the training loop asks of a model, DRAW's answer, and the task of a config.

The letters of the shapes are those of `draw_jax.attention`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from draw_jax import data
from draw_jax.errors import UserError
from draw_jax.models import differentiable_ram
from draw_jax.models.convnet import Convolutional
from draw_jax.models.draw import DRAW, Start
from draw_jax.models.ram import RAM
from draw_jax.tasks.classification import Classification, Reinforced

# The module that each name in a config stands for.
MODELS = {
  'draw': DRAW,
  'differentiable_ram': differentiable_ram.DifferentiableRAM,
  'ram': RAM,
  'convolutional': Convolutional,
}
_STARTS = {'draw': Start, 'differentiable_ram': differentiable_ram.Start}

Params = Any
Batch = Mapping[str, jax.Array]


class Task(Protocol):
  """A model and its loss, as the training loop sees them."""

  # The metric, the lower the better, that chooses the best checkpoint.
  metric: str

  def init(self, key: jax.Array, mean_image) -> Params:
    """Parameters to start from; `mean_image` [H, W, C] is that of the training set."""

  def noise(self, key: jax.Array, num: int, steps: int):
    """All the randomness of one batch: arrays [T, B, ...]."""

  def loss(self, params: Params, batch: Batch, noise, step: jax.Array | None = None):
    """The loss [B] to be descended after `step` steps, and metrics by name, each [B].

    The metrics are the same at every step; without a step only they matter.
    """

  def pictures(self, params: Params, batch: Batch, key: jax.Array, steps: int):
    """Pictures to look at by name, each [B, H, W, C] in [0, 1]."""


@dataclasses.dataclass(frozen=True)
class Draw:
  """Generation with DRAW; the loss is the bound of Eq. 12 in nats.

  Attributes:
    model: the network.
    kl_warmup: steps of training in which the weight of the KL in the loss rises from
      0 to 1. Without it the network first learns to let its latents carry nothing,
      to be rid of their noise, and takes hundreds of steps to find their use.
  """

  model: DRAW
  kl_warmup: int = 0
  metric: ClassVar[str] = 'bound'

  def init(self, key: jax.Array, mean_image) -> Params:
    """Parameters whose first canvas is the mean picture."""
    x = jnp.zeros((1, *self.model.image_shape))
    params = self.model.init(key, x, key, steps=1)['params']
    return self.model.start_canvas_at(params, mean_image)

  def noise(self, key: jax.Array, num: int, steps: int) -> jax.Array:
    """[T, B, Z]."""
    return self.model.noise(key, num, steps)

  def loss(self, params: Params, batch: Batch, noise, step: jax.Array | None = None):
    """The bound [B] with its KL weighted by `kl_warmup`; the bound itself and its parts."""
    x = data.to_device_float(batch['image'])
    terms = self.model.apply({'params': params}, x, noise, method='infer')
    kl = terms.kl.sum(0)
    metrics = {'bound': terms.loss, 'reconstruction': terms.reconstruction, 'kl': kl}
    if step is None or not self.kl_warmup:
      return terms.loss, metrics
    return terms.reconstruction + jnp.minimum(step / self.kl_warmup, 1) * kl, metrics

  def pictures(self, params: Params, batch: Batch, key: jax.Array, steps: int):
    """Samples from the prior; pictures, each followed by its reconstruction."""
    variables = {'params': params}
    x = data.to_device_float(batch['image'])
    drawn, _ = self.model.apply(variables, len(x), key, steps=steps, method='generate')
    seen, _ = self.model.apply(variables, x, key, steps=steps, method='reconstruct')
    pairs = jnp.stack([x, self.model.mean(seen)], 1).reshape(-1, *x.shape[1:])
    return {'samples': self.model.mean(drawn), 'reconstructions': pairs}


def create(
  config,
  image_shape: tuple[int, int, int],
  num_classes: int | None = None,
  kl_warmup: int = 0,
) -> Task:
  """The task of a config's `model` section, for pictures of this shape.

  Args:
    config: the `model` section; its `name` says which model it describes.
    image_shape: (H, W, C).
    num_classes: of the dataset's labels, where it has some.
    kl_warmup: see `Draw`.
  """
  fields = {k: v for k, v in config.items() if k != 'name'}
  fields['image_shape'] = tuple(image_shape)
  if 'start' in fields:
    fields['start'] = _STARTS[config.name](**config.start)
  if 'dtype' in fields:
    fields['dtype'] = None if config.dtype == 'float32' else jnp.dtype(config.dtype)
  if config.name == 'draw':
    return Draw(DRAW(**fields), kl_warmup)
  if num_classes is None:
    raise UserError(
      f'model.name={config.name!r} classifies, and these data have no labels: give a data.name '
      'that has, such as cluttered_mnist.'
    )
  network = MODELS[config.name](num_classes=num_classes, **fields)
  return Reinforced(network) if config.name == 'ram' else Classification(network)
