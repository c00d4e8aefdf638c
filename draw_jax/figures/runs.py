"""A trained network with its data, from a workdir or by the name of a shipped model."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import numpy as np

from draw_jax import data
from draw_jax.evaluation import evaluator
from draw_jax.pretrained import model_file
from draw_jax.tasks import registry as tasks


@dataclasses.dataclass(frozen=True)
class Run:
  """What pictures are made from.

  Attributes:
    name: to be shown.
    model: the network, DRAW or a classifier, with the T that it was trained with.
    params: its parameters.
    config: of the run.
    binarization: of the data it was trained on.
    workdir: where it was trained, or None for a shipped model.
    data_dir: where prepared datasets live; None for TFDS's own default.
  """

  name: str
  model: nn.Module
  params: Any
  config: Any
  binarization: str
  workdir: pathlib.Path | None
  data_dir: str | None = None

  @functools.cached_property
  def dataset(self) -> data.Dataset:
    """The dataset that the network was trained on."""
    return evaluator.open_data(
      self.config, self.binarization, self.model.image_shape, self.data_dir
    )

  def pictures(self, num: int, seed: int) -> np.ndarray:
    """Some pictures [num, H, W, C] in [0, 1] that the network was not trained on."""
    # Shuffled: a split may be sorted by class.
    batches = self.dataset.train_batches(num, seed=seed, split=self.config.eval.split)
    return next(batches)['image'].astype(np.float32) / 255

  def training_pictures(self, size: int = 2048) -> Iterator[np.ndarray]:
    """All training pictures, uint8, in chunks of at most `size`.

    Those that are made on the fly, as two digits, are made as for an evaluation: as many,
    of the same digits, and not the very ones that the network saw.
    """
    for batch in self.dataset.eval_batches('train', size):
      yield batch['image'][batch['mask']]


def find(
  workdir: str | None, model: str | None, which: str = 'best', data_dir: str | None = None
) -> Run:
  """The run of a workdir, or a shipped model by its name: one of them must be given.

  Args:
    workdir: of a training run.
    model: the name of a shipped model, or the path of one in a file.
    which: checkpoint of the workdir: 'best', 'latest' or a step.
    data_dir: where prepared datasets live.
  """
  loaded, _ = model_file.find(workdir, model, which)
  task = tasks.create(loaded.config.model, loaded.image_shape, loaded.num_classes)
  return Run(
    name=pathlib.Path(workdir).resolve().name if workdir else pathlib.Path(model).stem,
    model=task.model.clone(steps=loaded.steps),
    params=loaded.params,
    config=loaded.config,
    binarization=loaded.binarization,
    workdir=pathlib.Path(workdir) if workdir else None,
    data_dir=data_dir,
  )
