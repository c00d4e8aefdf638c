"""The names of the datasets, and opening one by its name."""

import difflib
from typing import Any

from draw_jax.data import (
  binarized_mnist,
  cifar10,
  cluttered_mnist,
  images,
  mnist,
  mnist_5k,
  svhn,
  two_digit_mnist,
)
from draw_jax.data.dataset import Dataset
from draw_jax.data.spec import Options, Spec
from draw_jax.errors import UserError

_SPECS = {
  spec.name: spec
  for spec in (
    mnist_5k.SPEC,
    binarized_mnist.SPEC,
    mnist.SPEC,
    two_digit_mnist.SPEC,
    cluttered_mnist.SPEC,
    svhn.SPEC,
    cifar10.SPEC,
    images.SPEC,
  )
}

NAMES = tuple(_SPECS)


def find(name: str) -> Spec:
  """Returns what is registered under a name."""
  if name not in _SPECS:
    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0)[0]
    raise UserError(
      f'unknown dataset {name!r}: did you mean {near!r}? There are {", ".join(NAMES)}'
    )
  return _SPECS[name]


def open_dataset(
  name: str,
  *,
  data_dir: str | None = None,
  binarization: str | None = None,
  path: str | None = None,
  image_size: int | tuple[int, int] | None = None,
  channels: int | None = None,
) -> Dataset:
  """Opens a dataset, after preparing it if that was not done before.

  Args:
    name: one of `NAMES`.
    data_dir: where prepared datasets live; TFDS's own default if None.
    binarization: 'fixed', 'dynamic', 'threshold' or 'none', as far as the dataset allows it; None
      for its default. Dynamic pixels are drawn again at each visit in training, and once and for
      all in evaluation.
    path: only for 'images': a folder, an .npy or an .npz file. What is transparent in the pictures
      of a folder becomes white.
    image_size: only for 'images': its height and width, or one number for both.
    channels: only for 'images': 1 or 3.

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
  own: dict[str, Any] = {'path': path, 'image_size': image_size, 'channels': channels}
  given = [key for key, value in own.items() if value is not None]
  if given and name != 'images':
    raise UserError(f"{name} takes no {', '.join(given)}: only the dataset 'images' does")
  if isinstance(image_size, int):
    own['image_size'] = (image_size, image_size)
  if own['image_size'] is not None and min(own['image_size']) < 1:
    raise UserError(f'image_size={image_size}: height and width must be at least 1')
  return Dataset(spec, spec.load(Options(data_dir, **own)), binarization)
