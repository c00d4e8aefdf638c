"""The fixed binarization of MNIST (Salakhutdinov & Murray 2008), 50,000 / 10,000 / 10,000."""

from draw_jax.data import sources
from draw_jax.data.spec import Spec


def builder():
  """The builder of the published files."""
  from draw_jax.data.builders import binarized_mnist

  return binarized_mnist.DrawBinarizedMnist


def load(data_dir: str | None, options: None) -> dict[str, sources.Source]:
  """The splits, prepared before if need be."""
  del options
  from draw_jax.data.builders import binarized_mnist

  return binarized_mnist.load(data_dir)


SPEC = Spec(name='binarized_mnist', load=load, builder=builder, binarizations=('fixed',))
