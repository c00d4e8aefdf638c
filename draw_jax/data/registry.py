"""The names of the datasets, and opening one by its name."""

import dataclasses
import difflib
from typing import Any

from draw_jax import fields
from draw_jax.data import (
  binarized_mnist,
  cifar10,
  cluttered_mnist,
  images,
  mnist,
  mnist_5k,
  omniglot,
  svhn,
  two_digit_mnist,
)
from draw_jax.data.dataset import Dataset
from draw_jax.data.spec import Spec
from draw_jax.errors import UserError

_SPECS = {
  spec.name: spec
  for spec in (
    mnist_5k.SPEC,
    binarized_mnist.SPEC,
    mnist.SPEC,
    two_digit_mnist.SPEC,
    cluttered_mnist.SPEC,
    omniglot.SPEC,
    svhn.SPEC,
    cifar10.SPEC,
    images.SPEC,
  )
}

NAMES = tuple(_SPECS)


@dataclasses.dataclass
class DataConfig:
  """The section `data` of a config, without the options that one dataset has alone."""

  # The dataset.
  name: str = fields.field('binarized_mnist', choices=NAMES)
  # One that the dataset has; None: its default.
  binarization: str | None = None


def find(name: str) -> Spec:
  """Returns what is registered under a name."""
  if name not in _SPECS:
    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0)[0]
    raise UserError(
      f'unknown dataset {name!r}: did you mean {near!r}? There are {", ".join(NAMES)}'
    )
  return _SPECS[name]


def options() -> list[dataclasses.Field]:
  """The options of all datasets, each once."""
  found = {
    option.name: option
    for spec in _SPECS.values()
    for option in (dataclasses.fields(spec.options) if spec.options else ())
  }
  return list(found.values())


def config() -> type:
  """The dataclass of the section `data` of a config, with the options of every dataset."""
  own = [
    (option.name, option.type, dataclasses.field(default=None, metadata=option.metadata))
    for option in options()
  ]
  return dataclasses.make_dataclass('DataAndOptionsConfig', own, bases=(DataConfig,))


def takers(option: str) -> list[str]:
  """The datasets that have an option."""
  return [
    spec.name
    for spec in _SPECS.values()
    if spec.options and option in (field.name for field in dataclasses.fields(spec.options))
  ]


def open_dataset(
  name: str, *, data_dir: str | None = None, binarization: str | None = None, **options: Any
) -> Dataset:
  """Opens a dataset, after preparing it if that was not done before.

  Args:
    name: one of `NAMES`.
    data_dir: where prepared datasets live; TFDS's own default if None.
    binarization: 'fixed', 'dynamic', 'threshold' or 'none', as far as the dataset allows it; None
      for its default. Dynamic pixels are drawn again at each visit in training, and once and for
      all in evaluation.
    **options: of this dataset, as path, image_size and channels of 'images'; see its file. Those
      that are None are as if they were not given.

  Returns:
    The dataset.
  """
  spec = find(name)
  binarization = spec.binarization(binarization)
  if binarization not in spec.binarizations:
    raise UserError(
      f'{name} cannot have the binarization {binarization!r}: it takes '
      f'{", ".join(spec.binarizations)}'
    )
  given = {key: value for key, value in options.items() if value is not None}
  if wrong := [key for key in given if name not in takers(key)]:
    others = ' and '.join(repr(other) for other in takers(wrong[0])) or 'none'
    raise UserError(f'{name} takes no {", ".join(wrong)}: only the dataset {others} does')
  chosen = spec.options and spec.options(**given)
  return Dataset(spec, spec.load(data_dir, chosen), binarization, resized=spec.resized(chosen))
