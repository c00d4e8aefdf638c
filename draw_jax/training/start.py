"""A trained model as the start of a run, in place of random weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from draw_jax import config as config_lib
from draw_jax import trained
from draw_jax.errors import UserError
from draw_jax.pretrained import file_format
from draw_jax.tasks import base, registry
from draw_jax.training import workdir as workdir_lib


def take_model(config, name: str, workdir: str, given: Mapping[str, Any]) -> None:
  """Makes a config one that starts from a trained model, with its section `model`.

  A run that goes on does not need the model any more: what it took is in its workdir.

  Args:
    config: to be changed.
    name: see `draw_jax.trained.load`.
    workdir: of the run.
    given: 'section.field' to values of the command line, which stay.
  """
  there = None
  if workdir_lib.saved_steps(workdir):
    there = workdir_lib.read_config(workdir)
  if there is None or there.train.get('start_from') != name:
    there = trained.load_config(name)
  with config.unlocked():
    config.model = there.model.copy_and_resolve_references()
    config.update_from_flattened_dict(
      {field: value for field, value in given.items() if field.startswith('model.')}
    )
  config.train.start_from = name


def load(config, dataset, like: base.Params, neutral: Sequence[str] = ()) -> trained.TrainedModel:
  """The trained model that `train.start_from` of a config names.

  Args:
    config: of the run.
    dataset: that it is trained on.
    like: the parameters of the network to be trained, or their shapes and types.
    neutral: names of those that the trained model may lack, see `base.Task`.
  """
  name = config.train.start_from
  found = trained.load(name)
  lacking = {n for n in neutral if n not in found.params}
  like = {n: arrays for n, arrays in like.items() if n not in lacking}
  if wrong := file_format.difference(like, found.params):
    raise UserError(f'{name} is {_remedy(config, dataset, found) or f"another network: {wrong}."}')
  return found


def _remedy(config, dataset, found: trained.TrainedModel) -> str | None:
  """What to set so that the config describes the network of a trained model."""
  name, shape, here = config.train.start_from, found.image_shape, dataset.image_shape
  if shape != here:
    by, ours = (' x '.join(map(str, size)) for size in (shape, here))
    own = config.data.path and shape[0] == shape[1]
    flags = f' (--config.data.image_size={shape[0]} --config.data.channels={shape[2]})'
    return f'of images of {by}, and these are {ours}: give images of that size{flags * bool(own)}.'
  flag = f'--start_from={name} in place of --config.train.start_from takes its section model.'
  changed = config_lib.differences(found.config.model, config.model)
  if 'name' in changed:
    return f'a model {changed["name"][0]!r}, and the config describes another: {flag}'
  needed = [
    f'--config.model.{field}={theirs}'
    for field, (theirs, ours) in changed.items()
    if _matters(found, dataset.num_classes, field, ours)
  ]
  if not needed:
    return None
  return f'of another network than the config describes: give {" ".join(needed)}, or: {flag}'


def _matters(found: trained.TrainedModel, num_classes: int | None, field: str, value: Any) -> bool:
  """Whether the arrays of a trained model are others with another value of a field of `model`."""
  section = found.config.model.copy_and_resolve_references()
  with section.unlocked():
    section.update_from_flattened_dict({field: value})
  try:
    task = registry.create(section, found.image_shape, num_classes)
    image = jax.ShapeDtypeStruct(found.image_shape, jnp.float32)
    shapes = jax.eval_shape(task.init, jax.random.key(0), image)
  except (UserError, ValueError):  # It fits no other field.
    return True
  return file_format.difference(shapes, found.params) is not None
