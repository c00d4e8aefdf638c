"""OMNIGLOT: 28 x 28 characters, 23,000 / 1,345 / 8,070."""

from draw_jax.data import sources
from draw_jax.data.spec import Spec


def builder():
  """The builder of the published file."""
  from draw_jax.data.builders import omniglot

  return omniglot.DrawOmniglot


def load(data_dir: str | None, options: None) -> dict[str, sources.Source]:
  """The splits, prepared before if need be."""
  del options
  from draw_jax.data.builders import omniglot

  return omniglot.load(data_dir)


SPEC = Spec(
  name='omniglot',
  load=load,
  builder=builder,
  binarizations=('dynamic', 'threshold', 'none'),
  num_classes=50,
)
