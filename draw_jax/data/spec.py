"""What a dataset's file registers."""

import dataclasses
from collections.abc import Callable

from draw_jax.data.published import PublishedBuilder
from draw_jax.data.sources import Source
from draw_jax.data.transforms import Transform


@dataclasses.dataclass(frozen=True)
class Options:
  """What the user says about where the data is.

  Attributes:
    data_dir: where prepared datasets live; None for TFDS's own default.
    path: the user's own pictures: a folder, an .npy or an .npz file.
    image_size: (H, W) of the user's own pictures.
    channels: of the user's own pictures, 1 or 3.
  """

  data_dir: str | None = None
  path: str | None = None
  image_size: tuple[int, int] | None = None
  channels: int | None = None


@dataclasses.dataclass(frozen=True)
class Spec:
  """One dataset.

  Attributes:
    name: what users call it.
    load: gives its splits, by name.
    binarizations: the accepted ones, the default first.
    builder: prepares the published files; None if there is nothing to prepare.
    num_classes: of the labels; None if there are none.
    transform: makes the transform of a split from (the split, whether it is for training), to be
      applied before the binarization; None if there is none.
  """

  name: str
  load: Callable[[Options], dict[str, Source]]
  binarizations: tuple[str, ...]
  builder: type[PublishedBuilder] | None = None
  num_classes: int | None = None
  transform: Callable[[Source, bool], Transform] | None = None

  def binarization(self, chosen: str | None) -> str:
    """The one that was chosen, or the default."""
    return self.binarizations[0] if chosen is None else chosen
