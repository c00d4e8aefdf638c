"""MNIST: 28 x 28 gray digits, 50,000 / 10,000 / 10,000."""

from draw_jax.data import sources
from draw_jax.data.spec import Spec


def builder():
  """The builder of the published files."""
  from draw_jax.data.builders import mnist

  return mnist.DrawMnist


def load(data_dir: str | None, options: None) -> dict[str, sources.Source]:
  """The splits, prepared before if need be."""
  del options
  from draw_jax.data.builders import mnist

  return mnist.load(data_dir)


SPEC = Spec(
  name='mnist',
  load=load,
  builder=builder,
  binarizations=('dynamic', 'threshold', 'none'),
  num_classes=10,
)
