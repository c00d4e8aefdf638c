"""Examples a second that each pipeline gives, beside what its model takes in training.

    python experiments/benchmark_data.py --data_dir=DIR
    python experiments/benchmark_data.py --data_dir=DIR --datasets=svhn --consumption=svhn=250

A model's rate is that of the loss and its gradient, measured before the pipeline's so that they do
not share cores.
"""

import itertools
import pathlib
import runpy
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
from absl import flags

from draw_jax import attention, binary, data, tasks

_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')
_DATASETS = flags.DEFINE_list(
  'datasets', [name for name in data.NAMES if name != 'images'], 'Which ones.'
)
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 100, 'Of both.', lower_bound=1)
_SECONDS = flags.DEFINE_float('seconds', 5.0, 'How long to measure each.', lower_bound=0.0)
_CONSUMPTION = flags.DEFINE_list('consumption', [], 'NAME=EXAMPLES_A_SECOND, instead of measuring.')

# The experiment whose model a dataset feeds; the classifier stands below.
_EXPERIMENTS = {
  'mnist_5k': 'quickstart',
  'binarized_mnist': 'mnist',
  'mnist': 'mnist',
  'two_digit_mnist': 'two_digit_mnist',
  'svhn': 'svhn',
  'cifar10': 'cifar10',
}


class Glimpses(nn.Module):
  """What the classifier of Section 4.1 costs: 8 glimpses of 12 x 12 and an LSTM of 256 units."""

  steps: int = 8
  hidden: int = 256
  size: int = 12

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Scores [B, 10] of pictures [B, H, W, C]."""
    num, height, width, _ = x.shape
    cell, look = nn.OptimizedLSTMCell(self.hidden), nn.Dense(5)
    carry = cell.initialize_carry(jax.random.key(0), (num, self.size**2))
    for _ in range(self.steps):
      window = attention.window(look(carry[1]), self.size, height, width)
      glimpse = attention.read(x, window, self.size).reshape(num, -1)
      carry, _ = cell(carry, glimpse)
    return nn.Dense(10)(carry[1])


def make_loss(name: str, image_shape: tuple[int, int, int]):
  """Returns parameters and the function (params, batch, key) -> loss of a dataset's model."""
  key = jax.random.key(0)
  x = jnp.zeros((1, *image_shape))
  if name == 'cluttered_mnist':
    classifier = Glimpses()

    def loss(params, batch, key):
      scores = classifier.apply(params, data.to_device_float(batch['image']))
      chosen = jax.nn.log_softmax(scores)[jnp.arange(len(scores)), batch['label']]
      return -chosen.mean()

    return classifier.init(key, x), loss
  experiment = pathlib.Path(__file__).with_name(f'{_EXPERIMENTS[name]}.py')
  config = runpy.run_path(str(experiment))['get_config']().model
  task = tasks.create(config, image_shape)

  def bound(params, batch, key):
    noise = task.noise(key, len(batch['image']), config.steps)
    return task.loss(params, batch, noise)[0].mean()

  return task.init(key, x[0]), bound


def rate(step, batch_size: int) -> float:
  """Returns examples a second of a function that works through one batch."""
  step()
  count, start = 0, time.perf_counter()
  while (elapsed := time.perf_counter() - start) < _SECONDS.value or count == 0:
    step()
    count += 1
  return count * batch_size / elapsed


def consumption(dataset: data.Dataset) -> float:
  """Returns the examples a second that the model of a dataset works through in training."""
  params, loss = make_loss(dataset.name, dataset.image_shape)
  gradient = jax.jit(jax.value_and_grad(loss))
  batch = next(dataset.train_batches(_BATCH_SIZE.value, seed=0))
  keys = (jax.random.key(i) for i in itertools.count())
  return rate(
    lambda: jax.block_until_ready(gradient(params, batch, next(keys))), len(batch['image'])
  )


def main() -> None:
  """Prints a row for each dataset."""
  given = dict(item.split('=') for item in _CONSUMPTION.value)
  print(f'{"dataset":<16} {"pipeline/s":>10} {"model/s":>10} {"times":>8}')
  for name in _DATASETS.value:
    dataset = data.open_dataset(name, data_dir=_DATA_DIR.value)
    taken = float(given[name]) if name in given else consumption(dataset)
    batches = dataset.train_batches(_BATCH_SIZE.value, seed=0)
    made = rate(lambda: next(batches), _BATCH_SIZE.value)  # noqa: B023
    print(f'{name:<16} {made:>10.0f} {taken:>10.1f} {made / taken:>8.1f}', flush=True)


if __name__ == '__main__':
  binary.run(main)
