"""OMNIGLOT from a file of the published structure."""

import dataclasses
import hashlib

import numpy as np
import pytest
import scipy.io
from data_support import refuse

from draw_jax import data
from draw_jax.data.builders import omniglot, preparation
from draw_jax.errors import UserError

Omniglot = omniglot.DrawOmniglot
COUNTS = {'': 60, 'test': 7}


def write(path, **changes):
  """As the published file: double columns of 784 pixels, and one of 50 alphabets marked."""
  rng = np.random.default_rng(0)
  arrays = {}
  for prefix, count in COUNTS.items():
    arrays[f'{prefix}data'] = rng.integers(0, 256, (784, count)) / 255
    arrays[f'{prefix}target'] = np.eye(50)[:, rng.integers(0, 50, count)]
    arrays[f'{prefix}targetchar'] = np.ones((1, count))
  arrays |= changes
  scipy.io.savemat(path, {k: v for k, v in arrays.items() if v is not None}, do_compression=True)
  return arrays


def register(monkeypatch, path):
  md5 = hashlib.md5(path.read_bytes()).hexdigest()
  monkeypatch.setattr(Omniglot, 'files', (dataclasses.replace(Omniglot.files[0], md5=md5),))


def test_columns_are_images_in_column_major_order(tmp_path, monkeypatch):
  path = tmp_path / 'chardata.mat'
  arrays = write(path)
  register(monkeypatch, path)
  builder = preparation.prepare(Omniglot, str(tmp_path / 'data'), str(tmp_path))
  for split, prefix in (('train', ''), ('test', 'test')):
    records = builder.as_data_source(split)
    assert len(records) == COUNTS[prefix]
    for n in (0, 5):
      record, column = records[n], arrays[f'{prefix}data'][:, n]
      for row, across in ((0, 0), (3, 7), (27, 26)):
        assert record['image'][row, across, 0] == round(255 * column[across * 28 + row])
      assert record['label'] == arrays[f'{prefix}target'][:, n].argmax()


def test_splits_share_no_image(tmp_path, monkeypatch):
  path = tmp_path / 'chardata.mat'
  arrays = write(path)
  register(monkeypatch, path)
  data_dir = str(tmp_path / 'data')
  preparation.prepare(Omniglot, data_dir, str(tmp_path))
  dataset = data.open_dataset('omniglot', data_dir=data_dir, binarization='none')
  sizes = {split: dataset.num_examples(split) for split in ('train', 'valid', 'test')}
  assert sizes == {'train': 54, 'valid': 6, 'test': 7}
  batches = [next(dataset.eval_batches(s, sizes[s])) for s in ('train', 'valid')]
  images = np.concatenate([batch['image'].reshape(-1, 784) for batch in batches])
  published = np.round(255 * arrays['data'].T).reshape(-1, 28, 28).swapaxes(1, 2).reshape(-1, 784)
  assert sorted(map(bytes, images)) == sorted(map(bytes, published.astype(np.uint8)))


@pytest.mark.parametrize(
  ('changes', 'match'),
  [
    ({'testdata': None}, "no array 'testdata'"),
    ({'data': np.zeros((783, 60))}, r'data is \(783, 60\) and target \(50, 60\), not \[784, N\]'),
    ({'target': np.zeros((50, 59))}, r'data is \(784, 60\) and target \(50, 59\)'),
    ({'data': np.full((784, 60), 255.0)}, 'data has values outside of 0 to 1'),
    ({'data': np.full((784, 60), np.nan)}, 'data has values outside of 0 to 1'),
  ],
)
def test_another_structure_is_refused(tmp_path, changes, match):
  write(tmp_path / 'chardata.mat', **changes)
  with pytest.raises(UserError, match=match):
    omniglot.parse_mat(tmp_path / 'chardata.mat')


def test_a_file_of_another_kind_is_refused(tmp_path):
  (tmp_path / 'chardata.mat').write_bytes(b'<html>' * 100)
  with pytest.raises(UserError, match='is not a sound MATLAB file'):
    omniglot.parse_mat(tmp_path / 'chardata.mat')


def test_a_file_with_another_checksum_is_refused(tmp_path):
  write(tmp_path / 'chardata.mat')
  refuse(Omniglot, tmp_path, 'wrong checksum: md5 .*, registered 21ecaf343735', tmp_path)
