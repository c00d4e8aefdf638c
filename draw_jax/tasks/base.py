"""All that the training loop, the evaluator, the figures and the report ask of a model.

The letters of the shapes are those of `draw_jax.attention`; S is the number of draws of a chunk
for each example, L how many numbers of glimpses are asked for.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from draw_jax.errors import UserError

Params = Any
Batch = Mapping[str, jax.Array]

# Images at a time in an evaluation, unless the user or the memory says otherwise.
EVALUATION_BATCH = 100


def to_device_float(image: jax.Array) -> jax.Array:
  """Turns bytes into intensities in [0, 1], on the device; what is in floats has them already.

  Args:
    image: any shape; uint8, 255 for an intensity of one, or floats.

  Returns:
    float32 of the same shape.
  """
  scale = 1 if jnp.issubdtype(image.dtype, jnp.floating) else 255
  return image.astype(jnp.float32) / scale


@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
  """What to compute, and how.

  Attributes:
    split: of the dataset.
    importance_samples: numbers of samples of importance-weighted bounds; the largest is K.
    repeats: R. Each image gets R x K draws; a bound with fewer samples than K uses as
      many of them as it divides.
    latents: also give the KL of each latent at each glimpse.
    seed: of the draws.
    batch_size: images at a time on all devices together; None to choose.
    memory: MiB for the draws that one device works on at a time.
  """

  split: str = 'test'
  importance_samples: tuple[int, ...] = ()
  repeats: int = 1
  latents: bool = False
  seed: int = 0
  batch_size: int | None = None
  memory: int = 128

  def __post_init__(self):
    counts = {'repeats': self.repeats, 'memory': self.memory, 'batch_size': self.batch_size}
    for name, value in counts.items():
      if value is not None and value < 1:
        raise UserError(f'--{name}={value} must be at least 1.')
    if not 0 <= self.seed < 2**32:
      raise UserError(f'--seed={self.seed} must be from 0 to 2**32 - 1.')

  @property
  def draws(self) -> int:
    """R x K, for each image."""
    return self.repeats * max(self.importance_samples, default=1)


class Evaluation(Protocol):
  """What the devices compute of a split, and what the host keeps of it."""

  def on_device(self, params: Params, batch: Batch, keys: jax.Array, part: jax.Array) -> dict:
    """Values by name, [B, ...] each, of the draws of one chunk; `keys` [B] are the examples'."""

  def add(self, batch: int, used: int, values: Mapping[str, Any]) -> None:
    """Takes in the first `used` draws of a chunk of a batch."""

  def examples(self) -> int:
    """How many there are figures of."""

  def draws(self) -> int:
    """Of each of these examples, at least."""

  def done(self) -> int:
    """Draws of all examples together."""

  def results(self) -> list[dict[str, Any]]:
    """A row for each number of glimpses, see `draw_jax.evaluation.report`."""

  def metrics(self) -> dict[str, float]:
    """The means of the largest number of glimpses by the names of `Task.loss`, finite or not."""


class Table(NamedTuple):
  """What a report for people says of results beside what it says of every model."""

  draws: list[str]  # how they were made
  blocks: list[list[str]]  # the figures, with an empty line between blocks
  notes: list[str]  # what to know of them


@dataclasses.dataclass(frozen=True)
class Task:
  """A model, its loss, and all else that is asked of it.

  What a kind of model does not have is refused here, with a `UserError`.

  Attributes:
    model: the network.
    name: of the model, as configs call it.
    kl_warmup: training steps in which the weight of the KL in the loss, if there is one, rises
      from 0 to 1. Without it a network first learns to let its latents carry nothing, to be rid
      of their noise, and takes hundreds of steps to find their use.
  """

  model: nn.Module
  name: str = 'model'
  kl_warmup: int = 0

  # What results call it, `task` in the JSON of `draw_jax.evaluation.report`; only readers ask.
  kind: ClassVar[str]
  # Whether it draws images through latents, and so may be evaluated with many draws of each.
  draws: ClassVar[bool] = False
  # The metric, the lower the better, that chooses the best checkpoint.
  metric: ClassVar[str]
  # The command that shows what the model does.
  shown_by: ClassVar[str] = 'figures'

  def init(self, key: jax.Array, mean_image: jax.Array) -> Params:
    """Initial parameters; `mean_image` [H, W, C] is that of the training set."""
    raise NotImplementedError

  @property
  def neutral(self) -> tuple[str, ...]:
    """Names of parameters that have no effect at first, and that a model to start from may lack."""
    return ()

  def noise(self, key: jax.Array, num: int, glimpses: int) -> Any:
    """All the randomness of one batch: arrays [T, B, ...]."""
    raise NotImplementedError

  def loss(
    self, params: Params, batch: Batch, noise: Any, step: jax.Array | None = None
  ) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss [B] to be minimized after `step` training steps, and metrics by name, each [B].

    The metrics are the same at every step; without a step only they matter.
    """
    raise NotImplementedError

  @property
  def classes(self) -> int | None:
    """Of how many the network is told that of an image that it draws; None: it is told nothing."""
    return None

  def given(self, batch: Batch) -> dict[str, jax.Array]:
    """What the network is told of the images of a batch: keyword arguments, [B, ...] each.

    Of images between two others it is told what lies between.
    """
    del batch
    return {}

  def chosen(self, num: int, label: int | None) -> dict[str, jax.Array]:
    """The same of images that it is to draw: of this class, or if None of all classes in turns."""
    del num
    if label is not None:
      raise UserError(f'--label={label}: a model {self.name!r} is told of no classes.')
    return {}

  def images(self, params: Params, batch: Batch, key: jax.Array, glimpses: int) -> dict:
    """Images to look at during training by name, each [N, H, W, C] in [0, 1]."""
    del params, batch, key, glimpses
    return {}

  def evaluation(
    self,
    options: EvaluationOptions,
    glimpses: Sequence[int],
    chunk: int,
    num_classes: int | None,
  ) -> Evaluation:
    """An evaluation that nothing was added to yet.

    Args:
      options: what to compute; those that this kind of model does not have are refused.
      glimpses: the numbers of glimpses; at least one.
      chunk: draws for each example at a time.
      num_classes: of the dataset's labels, if it has some.
    """
    raise NotImplementedError

  def rows_that_fit(self, options: EvaluationOptions, glimpses: Sequence[int]) -> int:
    """How many draws a device can work on at a time."""
    del glimpses
    return options.batch_size or EVALUATION_BATCH

  def table(self, result: Mapping[str, Any]) -> Table:
    """The results of an evaluation for people; `result` is what `report.describe` gave."""
    raise NotImplementedError

  @property
  def title(self) -> str:
    """The model in the words of a report; the paper's numbers are found by it."""
    return self.name

  def metric_name(self, binarization: str) -> str:
    """What people are told that the metric is, on data of this binarization."""
    del binarization
    return self.metric

  def metric_label(self, binarization: str) -> str:
    """What the axis of a plot calls the metric on data of this binarization."""
    raise NotImplementedError

  def weights(self, step: int) -> dict[str, float]:
    """Those that are not 1 after `step` training steps, of parts of the loss, by name."""
    del step
    return {}

  def is_likelihood(self, binarization: str) -> bool | None:
    """Whether the figures are bounds on a likelihood of the data; None if they are no bounds."""
    del binarization
    return None

  def weights_used_once(self, params: Params) -> int:
    """How many weights of the matrices are used once a pass, not once a glimpse."""
    del params
    return 0

  def check_draws(self) -> None:
    """Raises a `UserError` unless the model draws images."""
    raise UserError(
      f'a model {self.name!r} draws no images; it classifies them. '
      '`python -m draw_jax.figures --figure=glimpses` shows where a classifier looks.'
    )

  def check_codes(self) -> None:
    """Raises a `UserError` unless the images alone are enough to code them."""
    self.check_draws()

  def check_completes(self) -> None:
    """Raises a `UserError` unless pixels of an image alone are enough to draw the others."""
    self.check_draws()

  def check_classifies(self) -> None:
    """Raises a `UserError` unless the model classifies."""
    raise UserError(f'a model {self.name!r} classifies nothing; it draws images.')

  def check_looks(self) -> None:
    """Raises a `UserError` unless the model takes glimpses to classify."""
    raise UserError(f'a model {self.name!r} classifies nothing.')

  def with_latents(self, params: Params, num: int) -> Params:
    """The parameters of the same model with another number of latents."""
    raise UserError(f'--latents={num}: a model {self.name!r} has no latents.')


def noise_of_each(task: Task, keys: jax.Array, glimpses: int) -> Any:
  """The noise of each of N draws from a key of its own, [T, N, ...]."""
  noise = jax.vmap(lambda key: task.noise(key, 1, glimpses), out_axes=1)(keys)
  return jax.tree.map(lambda a: a.squeeze(2), noise)
