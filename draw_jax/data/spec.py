"""What a dataset's file registers."""

import dataclasses
from collections.abc import Callable
from typing import Any

from draw_jax.data.sources import Source
from draw_jax.data.transforms import Transform


@dataclasses.dataclass(frozen=True)
class Spec:
  """One dataset.

  Attributes:
    name: what users call it.
    load: gives its splits, by name, from the folder of prepared datasets (None for TFDS's own
      default) and the options.
    binarizations: the accepted ones, the default first.
    builder: gives the class that prepares the published files; None if there is nothing to
      prepare.
    num_classes: of the labels, or what tells it of the splits; None if there are none.
    transform: makes the transform of a split from (the split, whether it is for training), to be
      applied before the binarization; None if there is none.
    resized: from the options, whether images of another size than that of the batches are resized.
    options: a dataclass of what the user can say of this dataset alone, all None by default: in
      the section `data` of a config, and as flags of draw_jax.prepare.
  """

  name: str
  load: Callable[[str | None, Any], dict[str, Source]]
  binarizations: tuple[str, ...]
  builder: Callable[[], type] | None = None
  num_classes: int | Callable[[dict[str, Source]], int | None] | None = None
  transform: Callable[[Source, bool], Transform] | None = None
  resized: Callable[[Any], bool] = lambda options: False
  options: type | None = None

  def binarization(self, chosen: str | None) -> str:
    """The one that was chosen, or the default."""
    return self.binarizations[0] if chosen is None else chosen
