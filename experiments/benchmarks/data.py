"""Examples a second that each pipeline gives, beside what its model takes.

    python experiments/benchmarks/data.py --data_dir=DIR
    python experiments/benchmarks/data.py --data_dir=DIR --datasets=svhn --consumption=svhn=250

A model's rate is that of the loss and its gradient on one device with all cores, measured before
the pipeline's so that they do not share them.
"""

import itertools
import time

import jax
import jax.numpy as jnp
from absl import flags

from draw_jax import config as config_lib
from draw_jax import data
from draw_jax.cli import app
from draw_jax.errors import UserError
from draw_jax.tasks import registry

_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 100, 'Of both.', lower_bound=1)
_SECONDS = flags.DEFINE_float('seconds', 5.0, 'How long to measure each.', lower_bound=0.0)
_CONSUMPTION = flags.DEFINE_list('consumption', [], 'NAME=EXAMPLES_A_SECOND, instead of measuring.')

# The experiment whose model a dataset feeds.
_EXPERIMENTS = {
  'mnist_5k': 'quickstart',
  'binarized_mnist': 'mnist',
  'mnist': 'mnist',
  'two_digit_mnist': 'two_digit_mnist',
  'cluttered_mnist': 'cluttered_mnist',
  'svhn': 'svhn',
  'cifar10': 'cifar10',
}
_DATASETS = flags.DEFINE_list('datasets', list(_EXPERIMENTS), 'Which ones.')


def make_loss(dataset: data.Dataset):
  """Returns parameters and the function (params, batch, key) -> loss of a dataset's model."""
  config = config_lib.from_file(_EXPERIMENTS[dataset.name]).model
  task = registry.create(config, dataset.image_shape, dataset.num_classes)

  def loss(params, batch, key):
    noise = task.noise(key, len(batch['image']), config.glimpses)
    return task.loss(params, batch, noise)[0].mean()

  return task.init(jax.random.key(0), jnp.zeros(dataset.image_shape)), loss


def rate(step, batch_size: int) -> float:
  """Returns examples a second of a function that works through one batch."""
  step()
  count, start = 0, time.perf_counter()
  while (elapsed := time.perf_counter() - start) < _SECONDS.value or count == 0:
    step()
    count += 1
  return count * batch_size / elapsed


def consumption(dataset: data.Dataset) -> float:
  """Returns the examples a second of the loss of a dataset's model and its gradient."""
  params, loss = make_loss(dataset)
  gradient = jax.jit(jax.value_and_grad(loss))
  batch = next(dataset.train_batches(_BATCH_SIZE.value, seed=0))
  keys = (jax.random.key(i) for i in itertools.count())
  return rate(
    lambda: jax.block_until_ready(gradient(params, batch, next(keys))), len(batch['image'])
  )


def _is_rate(word: str) -> bool:
  return word.replace('.', '', 1).isdecimal() and float(word) > 0


def main() -> None:
  """Prints a row for each dataset."""
  given = dict(item.partition('=')[::2] for item in _CONSUMPTION.value)
  if not all(name in _EXPERIMENTS and _is_rate(word) for name, word in given.items()):
    raise UserError(
      f'--consumption={",".join(_CONSUMPTION.value)}: give NAME=RATE as svhn=250, with a NAME of '
      f'{", ".join(_EXPERIMENTS)}.'
    )
  if unknown := [name for name in _DATASETS.value if name not in _EXPERIMENTS]:
    raise UserError(
      f'--datasets={",".join(unknown)}: no experiment feeds on it. There are '
      f'{", ".join(_EXPERIMENTS)}.'
    )
  print(f'{"dataset":<16} {"pipeline/s":>10} {"model/s":>10} {"times":>8}')
  for name in _DATASETS.value:
    dataset = data.open_dataset(name, data_dir=_DATA_DIR.value)
    taken = float(given[name]) if name in given else consumption(dataset)
    batches = dataset.train_batches(_BATCH_SIZE.value, seed=0)
    made = rate(lambda: next(batches), _BATCH_SIZE.value)  # noqa: B023
    print(f'{name:<16} {made:>10.0f} {taken:>10.1f} {made / taken:>8.1f}', flush=True)


if __name__ == '__main__':
  app.run(main)
