"""The user's own pictures."""

import numpy as np
import pytest
from PIL import Image

from draw_jax import data
from draw_jax.errors import UserError


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'pictures' / 'more').mkdir(parents=True)
  for i in range(20):
    name = f'more/{i}.png' if i % 2 else f'{i}.jpg'
    Image.new('RGB', (40, 30), (10 * i, 100, 0)).save(tmp_path / 'pictures' / name)
  (tmp_path / 'pictures' / 'notes.txt').write_text('not a picture')
  return tmp_path / 'pictures'


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
  picture = np.zeros((10, 30, 3), np.uint8)
  picture[:, 10:20] = 255
  for i in range(2):
    Image.fromarray(picture).save(tmp_path / f'{i}.png')
  dataset = data.open_dataset('images', path=str(tmp_path), image_size=10)
  assert (next(dataset.eval_batches('valid', 1))['image'] == 255).all()


@pytest.mark.parametrize('kind', ['uint8', 'bool', 'float32'])
@pytest.mark.parametrize('suffix', ['npy', 'npz'])
def test_array(tmp_path, kind, suffix):
  bits = np.random.default_rng(0).integers(0, 2, (10, 8, 6)).astype(bool)
  array = bits * np.uint8(255) if kind == 'uint8' else bits.astype(kind)
  path = tmp_path / f'pictures.{suffix}'
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


def test_picture_that_does_not_decode(folder):
  (folder / 'broken.png').write_bytes(b'\x89PNG not really')
  with pytest.raises(UserError, match=r'broken\.png does not decode'):
    data.open_dataset('images', path=str(folder), image_size=8)


def test_bad_input(folder, tmp_path):
  def refuse(match, **options):
    with pytest.raises(UserError, match=match) as caught:
      data.open_dataset('images', **options)
    assert len(str(caught.value).splitlines()) == 1

  def array(name, value):
    np.savez(tmp_path / name, **value)
    return str(tmp_path / name)

  refuse('needs a path')
  refuse('neither a folder nor', path=str(tmp_path / 'nowhere'))
  refuse('needs an image_size', path=str(folder))
  refuse('pictures have 1 or 3', path=str(folder), image_size=8, channels=2)
  (tmp_path / 'empty').mkdir()
  refuse('holds 0 pictures', path=str(tmp_path / 'empty'), image_size=8)
  refuse('it must hold one', path=array('two.npz', {'a': np.zeros(1), 'b': np.zeros(1)}))
  refuse('has the shape', path=array('flat.npz', {'a': np.zeros((4, 9))}))
  refuse('floats from 0 to 1', path=array('large.npz', {'a': np.full((4, 2, 2), 9.0)}))
  (tmp_path / 'bad.npy').write_text('no')
  refuse('not a sound file of NumPy', path=str(tmp_path / 'bad.npy'))
