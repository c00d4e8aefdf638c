"""SVHN in the publisher's structure, written small."""

import io

import numpy as np
import pytest
from data_support import digit, write_struct, written_files
from PIL import Image

from draw_jax import data
from draw_jax.data.builders import preparation, svhn
from draw_jax.errors import UserError


def prepare(folder, tmp_path):
  return preparation.prepare(svhn.DrawSvhn, str(tmp_path / 'data'), str(folder))


def refuse(folder, tmp_path, match):
  with pytest.raises(UserError, match=match) as caught:
    prepare(folder, tmp_path)
  assert len(str(caught.value).splitlines()) == 1
  assert not written_files(tmp_path / 'data')


def test_folders_and_archives_give_the_same(tiny_svhn, tiny_svhn_archives, tmp_path):
  folders = prepare(tiny_svhn, tmp_path / 'a')
  archives = prepare(tiny_svhn_archives, tmp_path / 'b')
  for split, count in (('train', 60), ('test', 4), ('extra', 40)):
    left, right = (
      np.stack([record['image'] for record in builder.as_data_source(split)])
      for builder in (folders, archives)
    )
    assert left.shape == (count, 64, 64, 3)
    np.testing.assert_array_equal(left, right)


def test_splits_and_patches(tiny_svhn, tmp_path):
  prepare(tiny_svhn, tmp_path)
  dataset = data.open_dataset('svhn', data_dir=str(tmp_path / 'data'))
  assert dataset.image_shape == (54, 54, 3)
  assert {s: dataset.num_examples(s) for s in dataset.splits} == {
    'train': 98,
    'valid': 2,
    'test': 4,
  }
  sources = dataset._sources
  images = {
    split: {source[i]['image'].tobytes() for i in range(len(source))}
    for split, source in sources.items()
  }
  assert not images['train'] & images['valid']
  assert len(images['train'] | images['valid']) == 100
  batch = next(dataset.eval_batches('valid', 2))
  np.testing.assert_array_equal(batch['image'][1], sources['valid'][1]['image'][5:59, 5:59])


def test_without_the_optional_split(tiny_svhn, tmp_path):
  (tiny_svhn / 'extra').rename(tmp_path / 'elsewhere')
  prepare(tiny_svhn, tmp_path)
  dataset = data.open_dataset('svhn', data_dir=str(tmp_path / 'data'))
  assert (dataset.num_examples('train'), dataset.num_examples('valid')) == (59, 1)
  prepare(tiny_svhn, tmp_path)  # does nothing
  (tmp_path / 'elsewhere').rename(tiny_svhn / 'extra')
  with pytest.raises(UserError, match=r'was prepared without extra\.tar\.gz: to have it, remove'):
    prepare(tiny_svhn, tmp_path)


def test_the_common_box_is_widened_by_30_percent():
  # Red inside the widened box of two digits, blue outside.
  image = np.zeros((100, 200, 3), np.uint8)
  image[..., 2] = 255
  # Digits at x 60..80 and 90..100, y 20..60 and 30..50: 40 x 40, widened by 6 on each side.
  image[14:66, 54:106] = (255, 0, 0)
  stream = io.BytesIO()
  Image.fromarray(image).save(stream, 'PNG')
  boxes = np.array([[60, 90], [20, 30], [20, 10], [40, 20]], float)
  cut = svhn.cut('x.png', stream, boxes)
  assert cut.shape == (64, 64, 3)
  # Pixels at the rim are mixed with those beyond it.
  assert (cut[1:-1, 1:-1] == (255, 0, 0)).all() and (cut[..., 0] > 128).all()
  boxes[2, 1] += 4  # two pixels of blue come in on the right, not elsewhere
  cut = svhn.cut('x.png', stream, boxes)
  assert (cut[1:-1, 1:58] == (255, 0, 0)).all() and (cut[:, -1, 2] > 128).all()


def test_a_box_at_the_border_is_cut_there():
  stream = io.BytesIO()
  Image.new('RGB', (30, 20), (7, 8, 9)).save(stream, 'PNG')
  cut = svhn.cut('x.png', stream, np.array([[-1.0], [0], [32], [20]]))
  assert (cut == (7, 8, 9)).all()


@pytest.mark.parametrize('lacking', ['entry', 'field', 'reference'])
def test_struct_that_lacks_a_box(tiny_svhn, tmp_path, lacking):
  boxes = {f'{i}.png': [digit(10, 8, 10, 20)] for i in range(1, 5)}
  if lacking == 'entry':
    del boxes['3.png']
  elif lacking == 'field':
    del boxes['3.png'][0]['height']
  else:
    boxes['3.png'] = None
  write_struct(tiny_svhn / 'test' / 'digitStruct.mat', boxes)
  refuse(tiny_svhn, tmp_path, 'test/digitStruct.mat lacks a box for 3.png')


def test_box_outside_the_image(tiny_svhn, tmp_path):
  boxes = {f'{i}.png': [digit(500, 8, 10, 20)] for i in range(1, 5)}
  write_struct(tiny_svhn / 'test' / 'digitStruct.mat', boxes)
  refuse(tiny_svhn, tmp_path, 'boxes lie outside the image')


def test_struct_that_is_not_hdf5(tiny_svhn, tmp_path):
  (tiny_svhn / 'train' / 'digitStruct.mat').write_text('MATLAB 5.0 MAT-file')
  refuse(tiny_svhn, tmp_path, 'is not a digitStruct file')


def test_missing_struct(tiny_svhn, tmp_path):
  (tiny_svhn / 'train' / 'digitStruct.mat').unlink()
  refuse(tiny_svhn, tmp_path, 'has no digitStruct.mat')


def test_image_that_does_not_decode(tiny_svhn, tmp_path):
  path = tiny_svhn / 'train' / '2.png'
  path.write_bytes(path.read_bytes()[:200])
  refuse(tiny_svhn, tmp_path, 'train/2.png does not decode')


def test_image_that_is_not_there(tiny_svhn, tmp_path):
  (tiny_svhn / 'train' / '2.png').unlink()
  refuse(tiny_svhn, tmp_path, 'train has no 2.png')


def test_archive_with_a_wrong_checksum(tiny_svhn_archives, tmp_path):
  path = tiny_svhn_archives / 'test.tar.gz'
  content = bytearray(path.read_bytes())
  content[4] ^= 1  # the time of compression
  path.write_bytes(content)
  refuse(tiny_svhn_archives, tmp_path, 'test.tar.gz has a wrong checksum')
  path.write_bytes(content[:-7])
  refuse(tiny_svhn_archives, tmp_path, r'test.tar.gz has \d+ bytes, the published file \d+')
