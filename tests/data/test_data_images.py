"""The user's own images."""

import struct

import numpy as np
import pytest
from PIL import Image

from draw_jax import data
from draw_jax.data import images
from draw_jax.errors import UserError


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'images' / 'more').mkdir(parents=True)
  for i in range(20):
    name = f'more/{i}.png' if i % 2 else f'{i}.jpg'
    Image.new('RGB', (40, 30), (10 * i, 100, 0)).save(tmp_path / 'images' / name)
  (tmp_path / 'images' / 'notes.txt').write_text('not an image')
  return tmp_path / 'images'


def test_folder(folder):
  dataset = data.open_dataset('images', path=str(folder), image_size=16)
  assert dataset.image_shape == (16, 16, 3)
  assert dataset.binarization == 'none' and dataset.num_classes is None
  assert {s: dataset.num_examples(s) for s in dataset.splits} == {'train': 18, 'valid': 2}
  batch = next(dataset.train_batches(4, seed=0))
  assert batch.keys() == {'image'}
  np.testing.assert_allclose(batch['image'][..., 1], 100, atol=2)


def test_folder_in_gray_and_oblong_and_binarized(folder):
  dataset = data.open_dataset(
    'images', path=str(folder), image_size=(12, 20), channels=1, binarization='threshold'
  )
  assert dataset.image_shape == (12, 20, 1)
  assert set(np.unique(next(dataset.train_batches(18, seed=0))['image'])) <= {0, 255}


def test_the_middle_is_kept(tmp_path):
  image = np.zeros((10, 30, 3), np.uint8)
  image[:, 10:20] = 255
  for i in range(2):
    Image.fromarray(image).save(tmp_path / f'{i}.png')
  dataset = data.open_dataset('images', path=str(tmp_path), image_size=10)
  assert (next(dataset.eval_batches('valid', 1))['image'] == 255).all()


@pytest.mark.parametrize('kind', ['uint8', 'bool', 'float32'])
@pytest.mark.parametrize('suffix', ['npy', 'npz'])
def test_array(tmp_path, kind, suffix):
  bits = np.random.default_rng(0).integers(0, 2, (10, 8, 6)).astype(bool)
  array = bits * np.uint8(255) if kind == 'uint8' else bits.astype(kind)
  path = tmp_path / f'images.{suffix}'
  np.save(path, array) if suffix == 'npy' else np.savez(path, array)
  dataset = data.open_dataset('images', path=str(path))
  assert dataset.image_shape == (8, 6, 1)
  images = np.concatenate(
    [next(dataset.eval_batches(s, dataset.num_examples(s)))['image'] for s in dataset.splits]
  )
  assert sorted(i.tobytes() for i in images) == sorted(
    (255 * b.astype(np.uint8)).tobytes() for b in bits
  )


def test_array_of_another_size_and_channels(tmp_path):
  np.save(tmp_path / 'x.npy', np.full((4, 8, 8, 1), 77, np.uint8))
  path = str(tmp_path / 'x.npy')
  dataset = data.open_dataset('images', path=path, image_size=5, channels=3)
  assert dataset.image_shape == (5, 5, 3)
  assert (next(dataset.train_batches(2, seed=0))['image'] == 77).all()


def test_image_that_does_not_decode(folder):
  (folder / 'broken.png').write_bytes(b'\x89PNG not really')
  with pytest.raises(UserError, match=r'broken\.png does not decode'):
    data.open_dataset('images', path=str(folder), image_size=8)


def test_photo_whose_exif_is_wrong(folder):
  """To turn it, Pillow packs its tags again, here a width of -1."""
  tags = [(256, 9, 1, -1), (274, 3, 1, 6)]  # width; orientation, a quarter turn
  content = struct.pack('<2sHIH', b'II', 42, 8, len(tags))
  content += b''.join(struct.pack('<HHIi', *tag) for tag in tags) + bytes(4)
  Image.new('RGB', (40, 30)).save(folder / 'odd.jpg', exif=b'Exif\0\0' + content)
  with pytest.raises(UserError, match=r'odd\.jpg does not decode'):
    data.open_dataset('images', path=str(folder), image_size=8)


def read_one(path, channels=3):
  """The pixel [C] of a folder's only kind of image."""
  pixels, _ = images.read_folder(path, (4, 4), channels)
  assert (pixels == pixels[0, 0, 0]).all()
  return pixels[0, 0, 0].tolist()


@pytest.mark.parametrize('suffix', ['png', 'tif', 'pgm'])
def test_16_bits_of_gray_are_scaled(tmp_path, suffix):
  Image.fromarray(np.full((4, 4), 257 * 100 + 200, np.uint16)).save(tmp_path / f'x.{suffix}')
  assert read_one(tmp_path) == [101, 101, 101]
  assert read_one(tmp_path, 1) == [101]


def test_16_bits_with_the_first_byte_in_front(tmp_path):
  pixels = np.full((4, 4), 257 * 100, '>u2')
  Image.frombytes('I;16B', (4, 4), pixels.tobytes()).save(tmp_path / 'x.tif')
  with Image.open(tmp_path / 'x.tif') as image:
    assert image.mode == 'I;16B'
  assert read_one(tmp_path, 1) == [100]


@pytest.mark.parametrize('mode', ['I', 'F'])
def test_pixels_of_no_fixed_range_are_refused(tmp_path, mode):
  Image.new(mode, (4, 4), 100).save(tmp_path / 'x.tif')
  with pytest.raises(UserError, match=rf'x\.tif .*mode {mode}.* 8 or 16 bits'):
    images.read_folder(tmp_path, (4, 4), 1)


@pytest.mark.parametrize('mode', ['RGBA', 'LA', 'PA', 'P', 'RGB', 'L', '1', 'I;16'])
def test_what_is_transparent_is_white(tmp_path, mode):
  options = {}
  if mode == 'RGBA':
    image = Image.new(mode, (4, 4), (200, 0, 0, 0))
  elif mode == 'LA':
    image = Image.new(mode, (4, 4), (30, 0))
  elif mode == 'PA':
    image, options = Image.new('P', (4, 4), 3), {'transparency': bytes([255, 255, 255, 0])}
    image.putpalette(range(12))
  else:
    image = Image.new(mode, (4, 4))
    options['transparency'] = (0, 0, 0) if mode == 'RGB' else 0
  image.save(tmp_path / 'x.png', **options)
  assert read_one(tmp_path) == [255, 255, 255]
  assert read_one(tmp_path, 1) == [255]


def test_half_transparent(tmp_path):
  Image.new('RGBA', (4, 4), (255, 0, 0, 128)).save(tmp_path / 'x.png')
  assert read_one(tmp_path) == [255, 127, 127]


def test_opaque_pixels_keep_their_colors(tmp_path):
  Image.new('RGBA', (4, 4), (10, 20, 30, 255)).save(tmp_path / 'x.png')
  assert read_one(tmp_path) == [10, 20, 30]


def test_image_too_large_to_be_trusted(folder, monkeypatch):
  monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 100)
  with pytest.raises(UserError, match=r'does not decode \(Image size'):
    data.open_dataset('images', path=str(folder), image_size=8)


def test_damaged_npz(tmp_path):
  path = tmp_path / 'x.npz'
  np.savez_compressed(path, np.random.default_rng(0).integers(0, 256, (8, 9, 9), np.uint8))
  content = bytearray(path.read_bytes())
  content[100:200] = b'\xff' * 100  # in the middle of the compressed bytes
  path.write_bytes(content)
  with pytest.raises(UserError, match=r'x\.npz is not a sound file of NumPy'):
    data.open_dataset('images', path=str(path))


@pytest.mark.parametrize('size', [0, -3, (0, 8), (8, -1)])
def test_sizes_below_1(folder, tmp_path, size):
  np.save(tmp_path / 'x.npy', np.zeros((4, 8, 8), np.uint8))
  for path in (folder, tmp_path / 'x.npy'):
    with pytest.raises(UserError, match=r'image_size=.* must be at least 1'):
      data.open_dataset('images', path=str(path), image_size=size)


def test_bad_input(folder, tmp_path):
  def refuse(match, **options):
    with pytest.raises(UserError, match=match) as caught:
      data.open_dataset('images', **options)
    assert len(str(caught.value).splitlines()) == 1

  def array(name, value):
    np.savez(tmp_path / name, **value)
    return str(tmp_path / name)

  refuse('needs a path')
  refuse('needs a path', path='')
  refuse(
    'nowhere does not exist: give a folder of images, or an .npy', path=str(tmp_path / 'nowhere')
  )
  refuse('needs an image_size', path=str(folder))
  refuse('images have 1 or 3', path=str(folder), image_size=8, channels=2)
  (tmp_path / 'empty').mkdir()
  refuse('holds 0 images', path=str(tmp_path / 'empty'), image_size=8)
  two = {'a': np.zeros(1), 'b': np.zeros(1)}
  refuse('holds the arrays a, b: call one images', path=array('two.npz', two))
  refuse('has the shape', path=array('flat.npz', {'a': np.zeros((4, 9))}))
  refuse('has the shape', path=array('none.npz', {'a': np.zeros((0, 4, 4), int)}))
  refuse('has the shape', path=array('no_height.npz', {'a': np.zeros((4, 0, 4), np.uint8)}))
  refuse('floats from 0 to 1', path=array('large.npz', {'a': np.full((4, 2, 2), 9.0)}))
  refuse('floats from 0 to 1, not <U1', path=array('words.npz', {'a': np.full((4, 2, 2), 'a')}))
  (tmp_path / 'bad.npy').write_text('no')
  refuse('not a sound file of NumPy', path=str(tmp_path / 'bad.npy'))
