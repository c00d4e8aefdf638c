"""The real published files: counts, shapes and means.

They are looked for in the folder that DRAW_JAX_RAW_DATA names. DRAW_JAX_TEST_DATA_DIR may name a
folder that keeps what was prepared from one run of the tests to the next; SVHN, which takes
minutes, is only prepared there.
"""

import hashlib
import os

import numpy as np
import pytest

from draw_jax import data
from draw_jax.data import registry
from draw_jax.data.builders import preparation


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  return os.environ.get('DRAW_JAX_TEST_DATA_DIR') or str(tmp_path_factory.mktemp('prepared'))


def prepare(name, data_dir, raw_data):
  builder = preparation.prepare(registry.find(name).builder, data_dir, raw_data)
  return {split: info.num_examples for split, info in builder.info.splits.items()}


def mean(dataset, split):
  total = sum(
    batch['image'][batch['mask']].mean() * batch['mask'].sum()
    for batch in dataset.eval_batches(split, 1000)
  )
  return total / dataset.num_examples(split) / 255


def test_binarized_mnist(data_dir, raw_data):
  counts = prepare('binarized_mnist', data_dir, raw_data)
  assert counts == {'train': 50_000, 'valid': 10_000, 'test': 10_000}
  dataset = data.open_dataset('binarized_mnist', data_dir=data_dir)
  assert (dataset.image_shape, dataset.binarization) == ((28, 28, 1), 'fixed')
  means = [round(mean(dataset, split), 4) for split in ('train', 'valid', 'test')]
  assert means == [0.1306, 0.1311, 0.1325]
  assert set(np.unique(next(dataset.train_batches(50, seed=0))['image'])) == {0, 255}


def test_mnist_and_what_is_made_of_it(data_dir, raw_data):
  assert prepare('mnist', data_dir, raw_data) == {'train': 60_000, 'test': 10_000}
  gray = data.open_dataset('mnist', data_dir=data_dir, binarization='none')
  counts = [gray.num_examples(split) for split in ('train', 'valid', 'test')]
  assert counts == [50_000, 10_000, 10_000]
  assert (gray.image_shape, gray.num_classes) == ((28, 28, 1), 10)
  assert round(mean(gray, 'train'), 3) == 0.131
  dynamic = data.open_dataset('mnist', data_dir=data_dir)
  np.testing.assert_allclose(mean(dynamic, 'test'), mean(gray, 'test'), rtol=2e-3)
  for name, shape in (('two_digit_mnist', (60, 60, 1)), ('cluttered_mnist', (100, 100, 1))):
    dataset = data.open_dataset(name, data_dir=data_dir)
    assert dataset.image_shape == shape
    assert dataset.num_examples('test') == 10_000
  # Of cluttered_mnist, the images that results in README.md are about.
  digest = hashlib.sha256()
  for batch in dataset.eval_batches('test', 100):
    digest.update(batch['image'].tobytes())
  assert digest.hexdigest() == 'dddf9a8813cdbf4239978258dbb0b4231af3be59e20bdbd7d4bf8fdb16dbd223'


def test_cifar10(data_dir, raw_data):
  assert prepare('cifar10', data_dir, raw_data) == {'train': 50_000, 'test': 10_000}
  dataset = data.open_dataset('cifar10', data_dir=data_dir)
  counts = [dataset.num_examples(split) for split in dataset.splits]
  assert counts == [45_000, 5_000, 10_000]
  np.testing.assert_allclose(
    dataset.mean_image().mean(axis=(0, 1)), [0.491, 0.482, 0.447], atol=0.005
  )
  labels = np.concatenate([b['label'][b['mask']] for b in dataset.eval_batches('test', 1000)])
  np.testing.assert_array_equal(np.bincount(labels), np.full(10, 1000))


@pytest.mark.skipif(
  'DRAW_JAX_TEST_DATA_DIR' not in os.environ,
  reason='takes minutes: set DRAW_JAX_TEST_DATA_DIR to keep what is prepared',
)
def test_svhn(data_dir, raw_data):
  counts = prepare('svhn', data_dir, raw_data)
  assert (counts['train'], counts['test']) == (33_402, 13_068)
  dataset = data.open_dataset('svhn', data_dir=data_dir)
  training = counts['train'] + counts.get('extra', 0)
  assert dataset.num_examples('valid') == round(0.02 * training)
  assert dataset.num_examples('train') + dataset.num_examples('valid') == training
  assert dataset.image_shape == (54, 54, 3)
  assert 0.40 < dataset.mean_image().mean() < 0.50
