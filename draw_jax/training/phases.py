"""When a run does what, in steps: a pure function of the config and the dataset's size."""

from typing import NamedTuple

from draw_jax.errors import UserError


class Plan(NamedTuple):
  """The course of a run. Steps are counted from 1 where they are done."""

  num_steps: int
  steps_per_epoch: float
  eval_every: int
  checkpoint_every: int
  log_every: int
  phases: tuple[tuple[int, int], ...]  # (first step not in it, T), one after the other

  def phase(self, step: int) -> int:
    """The phase of the curriculum in which the step after this number of steps is."""
    return sum(step >= end for end, _ in self.phases[:-1])

  def glimpses(self, step: int) -> int:
    """T of the step after this number of steps."""
    return self.phases[self.phase(step)][1]

  def phases_left(self, step: int) -> int:
    """How many phases come after that of the step just done."""
    return len(self.phases) - 1 - self.phase(step - 1)

  def evaluates(self, step: int) -> bool:
    """Whether the model is evaluated once this step is done."""
    return step % self.eval_every == 0 or step == self.num_steps

  def saves(self, step: int) -> bool:
    """Whether a checkpoint is written once this step is done."""
    return step % self.checkpoint_every == 0 or self.evaluates(step)

  def epoch(self, step: int) -> float:
    """Passes over the data once this step is done."""
    return step / self.steps_per_epoch

  def work(self, first: int, last: int) -> int:
    """Glimpses of the steps after `first`, up to `last`."""
    total, begin = 0, 0
    for end, glimpses in self.phases:
      total += glimpses * max(0, min(last, end) - max(first, begin))
      begin = end
    return total


def make(config, num_examples: int) -> Plan:
  """The plan of a config, for a training set of this size."""
  steps_per_epoch = num_examples / config.train.batch_size

  def to_steps(epochs: float) -> int:
    return max(1, round(epochs * steps_per_epoch))

  num_steps = config.train.num_steps or to_steps(config.train.epochs)
  if num_steps >= 2**31:  # They are counted in 32 bits.
    raise UserError(
      f'train.epochs={config.train.epochs} are {num_steps:.1e} steps: give at most '
      f'{2**31 / steps_per_epoch:.1e} epochs.'
    )
  phases, epochs = [], 0.0
  for glimpses, length in config.train.curriculum:
    epochs += length
    phases.append((min(to_steps(epochs), num_steps), int(glimpses)))
  phases.append((num_steps, config.model.glimpses))
  return Plan(
    num_steps=num_steps,
    steps_per_epoch=steps_per_epoch,
    eval_every=to_steps(config.eval.every_epochs),
    checkpoint_every=config.checkpoint.every_steps,
    log_every=config.log.every_steps,
    phases=tuple(phases),
  )
