"""Transforms: what they draw, checked by statistics."""

import dataclasses
import hashlib

import numpy as np
import pytest
from scipy import stats

from draw_jax.data import Dataset, cluttered_mnist, sources, svhn, transforms, two_digit_mnist


def generators(count, seed=0):
  return [np.random.Generator(np.random.Philox(key=[seed, i])) for i in range(count)]


def assert_uniform(places, num):
  counts = np.bincount(places, minlength=num)
  assert len(counts) == num
  assert stats.chisquare(counts).pvalue > 1e-4


def block(value, size=28):
  return np.full((size, size, 1), value, np.uint8)


def test_threshold_is_at_one_half():
  image = np.array([0, 127, 128, 255], np.uint8).reshape(2, 2, 1)
  result = transforms.threshold({'image': image}, None)['image']
  np.testing.assert_array_equal(result.ravel(), [0, 0, 255, 255])


def test_dynamic_pixels_are_on_as_often_as_their_intensity_says():
  image = np.array([0, 1, 51, 128, 254, 255], np.uint8).reshape(2, 3, 1)
  draws = np.stack(
    [transforms.dynamic({'image': image}, rng)['image'] for rng in generators(20_000)]
  )
  assert set(np.unique(draws)) == {0, 255}
  mean = (draws == 255).mean(axis=0)
  assert mean[0, 0] == 0 and mean[1, 2] == 1
  np.testing.assert_allclose(mean, image / 255, atol=0.015)


def test_crops():
  image = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64, 1)
  corners = [
    divmod(int(svhn.patches(None, True)({'image': image}, rng)['image'][0, 0, 0]), 64)
    for rng in generators(3000)
  ]
  for axis in np.transpose(corners):
    assert_uniform(axis, 11)
  center = svhn.patches(None, False)({'image': image}, None)['image']
  assert center.shape == (54, 54, 1)
  assert center[0, 0, 0] == 5 * 64 + 5


def test_two_digits_are_placed_uniformly():
  # The other digit is black, so that the first one's place can be seen.
  source = sources.MemorySource(np.stack([block(9), block(0)]))
  place = two_digit_mnist.two_digits(source, True)
  corners = []
  for rng in generators(6000):
    image = place(source[0] | {'index': 0}, rng)['image']
    assert image.shape == (60, 60, 1)
    assert (image == 9).sum() == 28 * 28
    corners.append(np.argwhere(image[..., 0])[0])
  for axis in np.transpose(corners):
    assert_uniform(axis, 33)


def test_two_digits_add_and_clip():
  source = sources.MemorySource(np.stack([block(100), block(200), block(30)]))
  place = two_digit_mnist.two_digits(source, True)
  seen = set()
  for rng in generators(200):
    image = place(source[0] | {'index': 0}, rng)['image']
    values = set(np.unique(image).tolist()) - {0}
    assert values <= {100, 200, 255} or values <= {100, 30, 130}
    seen |= values
  assert seen == {100, 200, 255, 30, 130}


def test_the_other_digit_is_never_the_same_one():
  source = sources.MemorySource(np.stack([block(v) for v in range(5)]))
  for index in range(5):
    chosen = [
      int(transforms.others(source, index, 1, rng)[0]['image'][0, 0, 0]) for rng in generators(2000)
    ]
    counts = np.bincount(chosen, minlength=5)
    assert counts[index] == 0
    assert stats.chisquare(np.delete(counts, index)).pvalue > 1e-4


@pytest.fixture(scope='module')
def cluttered():
  """4,000 examples of a digit of value 100 among pieces of value 1."""
  source = sources.MemorySource(
    np.stack([block(100)] + [block(1)] * 20), np.arange(21, dtype=np.int32)
  )
  place = cluttered_mnist.clutter(source, True)
  return [place(source[0] | {'index': 0}, rng) for rng in generators(4000)]


def test_the_cluttered_digit_is_wholly_inside_and_placed_uniformly(cluttered):
  corners = []
  for example in cluttered:
    digit = example['image'][..., 0] >= 100
    assert example['image'].shape == (100, 100, 1)
    assert digit.sum() == 28 * 28
    corners.append(np.argwhere(digit)[0])
  for axis in np.transpose(corners):
    assert_uniform(axis, 73)


def test_clutter_is_eight_pieces_of_other_digits(cluttered):
  for example in cluttered:
    image = example['image'].astype(int)
    assert (image - 100 * (image >= 100)).sum() == 8 * 8 * 8
    assert example['label'] == 0


def test_clutter_is_spread_uniformly(cluttered):
  middle = np.mean([example['image'][8:92, 8:92, 0] % 100 for example in cluttered], axis=0)
  # Away from the border, 64 of the 93 x 93 places of a piece cover a pixel.
  np.testing.assert_allclose(middle.mean(), 8 * 64 / 93**2, rtol=0.02)
  halves = [middle[:42].mean(), middle[42:].mean(), middle[:, :42].mean(), middle[:, 42:].mean()]
  np.testing.assert_allclose(halves, middle.mean(), rtol=0.05)


def test_pieces_come_from_all_over_the_other_digits():
  # Each pixel of the other digit has its own value, so that a piece shows where it was cut.
  other = np.zeros((28, 28, 1), np.uint8)
  other[:21, :21, 0] = np.arange(21)[:, None] * 12 + 1
  source = sources.MemorySource(np.stack([block(0), other]))
  place = cluttered_mnist.clutter(source, True)
  rows = set()
  for rng in generators(400):
    rows |= set(np.unique(place(source[0] | {'index': 0}, rng)['image']).tolist())
  assert {12 * i + 1 for i in range(21)} <= rows


@pytest.mark.parametrize(
  'make', [two_digit_mnist.two_digits, cluttered_mnist.clutter], ids=['two', 'clutter']
)
def test_digits_come_from_the_same_split_only(make):
  """Values say which split a digit is of: small in one, large in the other."""
  values = {'train': range(1, 11), 'valid': range(200, 210)}
  splits = {
    name: sources.MemorySource(np.stack([block(v) for v in of_split]))
    for name, of_split in values.items()
  }
  spec = dataclasses.replace(two_digit_mnist.SPEC, transform=make)
  dataset = Dataset(spec, splits, 'none')
  train = next(dataset.train_batches(300, seed=0))['image']
  assert 0 < train.max() <= 9 * 10
  valid = [batch['image'][batch['mask']] for batch in dataset.eval_batches('valid', 10)]
  ink = np.concatenate(valid)
  assert ink[ink > 0].min() >= 200


def digits(count):
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (count, 28, 28, 1), np.uint8) * (rng.random((count, 1, 1, 1)) < 0.7)
  return sources.MemorySource(images.astype(np.uint8), np.arange(count, dtype=np.int32))


@pytest.mark.parametrize('unsure', [False, True])
@pytest.mark.parametrize('count', [2, 3, 40])
@pytest.mark.parametrize('binarization', ['none', 'threshold', 'dynamic'])
def test_clutter_made_a_batch_at_a_time_is_that_made_one_by_one(
  monkeypatch, binarization, count, unsure
):
  """Also where NumPy may draw once more, so that an example is made alone."""
  if unsure:
    exact = transforms.below
    monkeypatch.setattr(
      transforms, 'below', lambda bound, drawn: (0 * exact(bound, drawn)[0], drawn % 16 > 0)
    )
  source = digits(count)
  dataset = Dataset(cluttered_mnist.SPEC, {'train': source}, binarization)
  place = cluttered_mnist.clutter(source, True)
  batches = dataset.train_batches(30, seed=2**32 - 1, start_step=7)
  for step in (7, 8):
    batch = next(batches)
    for i in range(30):
      rng = np.random.Generator(np.random.Philox(key=[2**32 - 1, 30 * step + i]))
      index = int(batch['label'][i])
      alone = transforms.BINARIZERS[binarization](place(source[index] | {'index': index}, rng), rng)
      if not unsure or binarization == 'dynamic' or count == 2 or is_unsure(30 * step + i):
        np.testing.assert_array_equal(batch['image'][i], alone['image'])


def is_unsure(position):
  words = np.random.Philox(key=[2**32 - 1, position]).random_raw(12)
  return (transforms.halves(words) % 16 == 0).any()


def test_a_transform_works_on_batches_only_if_it_says_so():
  class Marks:
    draws = 1

    def __call__(self, example, rng):
      return example

    def together(self, indices, words):
      raise AssertionError('it has the name by accident')

  class MarksTogether(Marks, transforms.Together):
    def together(self, indices, words):
      return np.full((len(indices), 28, 28, 1), 7, np.uint8), np.ones(len(indices), bool)

  def first_batch(transform):
    spec = dataclasses.replace(cluttered_mnist.SPEC, transform=lambda *_: transform)
    return next(Dataset(spec, {'train': digits(5)}, 'none').train_batches(4, seed=0))['image']

  assert (first_batch(MarksTogether()) == 7).all()
  assert not (first_batch(Marks()) == 7).all()


def test_cluttered_images_to_evaluate_never_change():
  """In evaluation, where each result in README.md was measured: drawn once and for all."""
  dataset = Dataset(cluttered_mnist.SPEC, {'train': digits(40), 'test': digits(64)}, 'none')
  (batch,) = dataset.eval_batches('test', 64)
  digest = hashlib.sha256(batch['image'].tobytes()).hexdigest()
  assert digest == '3b3c37992b99458fbe73fcf7fdaee6b442a651f643de8fbdb4d9afd13a790088'


@pytest.mark.parametrize('bound', [2, 3, 21, 49_999, 2**31 + 1, 2**32 - 1])
def test_whole_numbers_are_those_of_numpy(bound):
  """Up to the first that it may refuse, and none but these is said to be unsure."""
  refused = 0
  for seed in range(200):
    drawn = transforms.halves(np.random.Philox(key=[seed, 1]).random_raw(8)[None])[0]
    values, sure = transforms.below(bound, drawn)
    num = 16 if sure.all() else int(sure.argmin())
    refused += num < 16
    expected = generators(2, seed)[1].integers(0, bound, 16)
    np.testing.assert_array_equal(values[:num], expected[:num])
  assert (refused > 0) == (bound > 2**30)


def test_fractions_are_those_of_numpy():
  words = np.random.Philox(key=[0, 1]).random_raw(20)
  np.testing.assert_array_equal(transforms.fractions(words), generators(2)[1].random(20))


def test_sums_of_a_batch_are_clipped():
  canvas = np.zeros((2, 3, 4, 1), np.uint8)
  pieces = np.full((2, 2, 2, 1), 200, np.uint8)
  transforms.add(canvas, pieces, np.array([[0, 0], [1, 2]]))
  transforms.add(canvas, pieces, np.array([[1, 1], [0, 0]]))
  expected = [
    [[200, 200, 0, 0], [200, 255, 200, 0], [0, 200, 200, 0]],
    [[200, 200, 0, 0], [200, 200, 200, 200], [0, 0, 200, 200]],
  ]
  np.testing.assert_array_equal(canvas[..., 0], expected)


def test_the_same_generator_gives_the_same_example():
  source = sources.MemorySource(np.random.default_rng(0).integers(0, 256, (9, 28, 28, 1), np.uint8))
  place = cluttered_mnist.clutter(source, True)
  first, second, third = (
    place(source[3] | {'index': 3}, rng)['image']
    for rng in (generators(1)[0], generators(1)[0], generators(1, seed=1)[0])
  )
  np.testing.assert_array_equal(first, second)
  assert (first != third).any()
