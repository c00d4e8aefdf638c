"""Generation of images whose classes are given; the loss is a bound on -log p(x | y)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from draw_jax.errors import UserError
from draw_jax.models.class_conditional import ClassConditional
from draw_jax.tasks import base, generation


@dataclasses.dataclass(frozen=True)
class ConditionalGeneration(generation.Generation):
  """A network that draws images of classes that it is told."""

  model: ClassConditional

  @property
  def classes(self) -> int:
    return self.model.num_classes

  def given(self, batch: base.Batch) -> dict[str, jax.Array]:
    """The classes, one-hot: between two of them there are lines."""
    return {'label': jax.nn.one_hot(batch['label'], self.classes)}

  def chosen(self, num: int, label: int | None) -> dict[str, jax.Array]:
    labels = np.arange(num) % self.classes
    if label is not None:
      if not 0 <= label < self.classes:
        raise UserError(f'--label={label} must be from 0 to {self.classes - 1}, a class.')
      labels = np.full(num, label)
    return self.given({'label': labels})

  @property
  def title(self) -> str:
    return f'{super().title}, given the label'

  def metric_name(self, binarization: str) -> str:
    return f'{super().metric_name(binarization)} given the label'

  def check_codes(self) -> None:
    raise UserError(
      f'a model {self.name!r} codes no images: it has to be told their classes, and a file would '
      'hold none. Take a model of images alone.'
    )

  def check_completes(self) -> None:
    raise UserError(
      f'a model {self.name!r} completes no images: its draws are of one class. Take a model of '
      'images alone.'
    )

  def _notes(self, result: Mapping[str, Any]) -> list[str]:
    note = (
      'note        given the label y of each image: of p(x | y), not of p(x); '
      f'{np.log(self.classes):.2f} nats more, for\n            one of {self.classes} labels at '
      'random, make it one of p(x, y), and so of p(x)'
    )
    return [*super()._notes(result), note]
