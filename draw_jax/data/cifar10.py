"""CIFAR-10: 32 x 32 color images, 45,000 / 5,000 / 10,000."""

from draw_jax.data import sources
from draw_jax.data.spec import Spec


def builder():
  """The builder of the published files."""
  from draw_jax.data.builders import cifar10

  return cifar10.DrawCifar10


def load(data_dir: str | None, options: None) -> dict[str, sources.Source]:
  """The splits, prepared before if need be."""
  del options
  from draw_jax.data.builders import cifar10

  return cifar10.load(data_dir)


SPEC = Spec(name='cifar10', load=load, builder=builder, binarizations=('none',), num_classes=10)
