"""The only place that knows the models by their names."""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
from ml_collections import config_dict

from draw_jax import fields, renamed
from draw_jax.errors import UserError
from draw_jax.models import (
  class_conditional,
  convnet,
  convolutional_draw,
  dependent_latents,
  differentiable_ram,
  draw,
  ram,
)
from draw_jax.tasks import base, classification, conditional_generation, generation


class Entry(NamedTuple):
  """What a name stands for."""

  module: type[nn.Module]
  config: type  # the dataclass of its fields in the section `model` of a config
  task: type[base.Task]


MODELS = {
  'draw': Entry(draw.DRAW, draw.DrawConfig, generation.Generation),
  'dependent_latents': Entry(
    dependent_latents.DependentLatents,
    dependent_latents.DependentLatentsConfig,
    generation.Generation,
  ),
  'class_conditional': Entry(
    class_conditional.ClassConditional,
    draw.DrawConfig,
    conditional_generation.ConditionalGeneration,
  ),
  'convolutional_draw': Entry(
    convolutional_draw.ConvolutionalDraw,
    convolutional_draw.ConvolutionalDrawConfig,
    generation.Generation,
  ),
  'differentiable_ram': Entry(
    differentiable_ram.DifferentiableRAM,
    differentiable_ram.DifferentiableRamConfig,
    classification.GlimpseClassification,
  ),
  'ram': Entry(ram.RAM, ram.RamConfig, classification.ReinforcedClassification),
  'convolutional': Entry(convnet.Convnet, convnet.ConvnetConfig, classification.Classification),
}


def section(name: str) -> config_dict.ConfigDict:
  """The section `model` of a config for the model of this name, with its defaults."""
  fields.check_choice('model.name', name, MODELS)
  made = config_dict.ConfigDict({'name': name})
  made.update(fields.section(MODELS[name].config))
  return made


def check(section) -> None:
  """Raises a `UserError` for the first field of a section `model` that cannot work."""
  fields.check_choice('model.name', section.name, MODELS)
  declared = MODELS[section.name].config
  for name in fields.unknown(declared, section):
    if name != 'name':
      if now := renamed.CONFIG.get(f'model.{name}'):
        raise UserError(f'no field model.{name}: it is now {now}.')
      raise UserError(
        f'model.name={section.name!r} has no field {name!r}: choose an experiment with this '
        'model, which brings the whole section; the name alone does not change it.'
      )
  fields.check(declared, section, 'model.')


def check_image(section, height: int, width: int) -> None:
  """Raises a `UserError` for a field of a section `model` that does not fit the images."""
  fields.build(MODELS[section.name].config, section).check_image(height, width, 'model.')


def create(
  section,
  image_shape: tuple[int, int, int],
  num_classes: int | None = None,
  kl_warmup: int = 0,
) -> base.Task:
  """The task of a config's section `model`, for images of this shape.

  Args:
    section: its `name` says which model it describes.
    image_shape: (H, W, C).
    num_classes: of the dataset's labels, where it has some.
    kl_warmup: see `base.Task`.
  """
  entry = MODELS[section.name]
  own = fields.build(entry.config, section)
  values = {field.name: getattr(own, field.name) for field in dataclasses.fields(own)}
  values['image_shape'] = tuple(image_shape)
  if 'num_classes' in (field.name for field in dataclasses.fields(entry.module)):
    if num_classes is None:
      raise UserError(
        f'model.name={section.name!r} takes labels, and these data have none: give a data.name '
        'that has them, such as mnist or cluttered_mnist.'
      )
    values['num_classes'] = num_classes
  return entry.task(entry.module(**values), section.name, kl_warmup)
