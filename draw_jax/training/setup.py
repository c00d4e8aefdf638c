"""From a config to what is trained: task, optimizer, initial state and training step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import optax
from jax.sharding import Mesh

from draw_jax.devices import sharding
from draw_jax.tasks import registry
from draw_jax.tasks.base import Task
from draw_jax.training import optimizer, step


@dataclasses.dataclass(frozen=True)
class Setup:
  """What stays the same through a run; see `make`."""

  config: Any
  task: Task
  learning_rate: optax.Schedule
  transform: optax.GradientTransformation
  mesh: Mesh

  def init(self) -> Callable:
    """The jitted function mean_image [H, W, C] -> train state before the first step."""
    return step.make_init(self.task, self.transform, self.config.train.seed, self.mesh)

  def train_step(self, glimpses: int | None = None) -> Callable:
    """The jitted function (state, batch) -> (state, metrics) with T glimpses, the config's if None.

    The state given is donated.
    """
    return step.make_train_step(
      self.task,
      self.transform,
      self.learning_rate,
      self.mesh,
      glimpses=glimpses or self.config.model.glimpses,
      accumulate=self.config.optimizer.accumulate,
      ema_decay=self.config.optimizer.ema_decay,
      rollback_scale=self.config.rollback_scale,
    )


def make(
  config,
  image_shape: tuple[int, int, int],
  num_classes: int | None = None,
  *,
  num_steps: int = 1000,
  mesh: Mesh | None = None,
) -> Setup:
  """What a config trains on images of this shape.

  Args:
    config: of an experiment.
    image_shape: (H, W, C).
    num_classes: of the dataset's labels, where it has some.
    num_steps: of the whole run, for the learning rate.
    mesh: of the devices; None takes all.
  """
  # A trained model has found the use of its latents: a cheap KL would lead it away.
  kl_warmup = 0 if config.train.start_from else config.train.kl_warmup_steps
  learning_rate = optimizer.schedule(config.optimizer, num_steps)
  return Setup(
    config=config,
    task=registry.create(config.model, image_shape, num_classes, kl_warmup),
    learning_rate=learning_rate,
    transform=optimizer.create(config.optimizer, learning_rate),
    mesh=mesh or sharding.make_mesh(),
  )
