"""Multi-digit SVHN, 64 x 64; batches are 54 x 54 patches."""

from draw_jax.data import sources, transforms
from draw_jax.data.spec import Spec

_PATCH = 54


def builder():
  """The builder of the published files."""
  from draw_jax.data.builders import svhn

  return svhn.DrawSvhn


def load(data_dir: str | None, options: None) -> dict[str, sources.Source]:
  """The splits, prepared before if need be."""
  del options
  from draw_jax.data.builders import svhn

  return svhn.load(data_dir)


def patches(source: sources.Source, training: bool) -> transforms.Transform:
  """Patches at random places in training, at the center in evaluation."""
  del source
  return transforms.random_crop(_PATCH) if training else transforms.center_crop(_PATCH)


SPEC = Spec(
  name='svhn',
  load=load,
  builder=builder,
  binarizations=('none',),
  transform=patches,
  resized=lambda options: True,
)
