"""The user's own arrays: which are taken, what their numbers mean, and what is said of both."""

import gzip
import struct

import h5py
import numpy as np
import pytest
import scipy.io
from PIL import Image

from draw_jax import data
from draw_jax.data import idx
from draw_jax.errors import UserError

RNG = np.random.default_rng(0)
# Not square, so that axes cannot be mixed up unseen; binary.
X = RNG.integers(0, 2, (20, 5, 7), np.uint8)
Y = np.repeat([3, 1], 10)


def open_(path, **options):
  return data.open_dataset('images', path=str(path), **options)


def every(dataset, split) -> dict[str, np.ndarray]:
  return next(dataset.eval_batches(split, dataset.num_examples(split)))


def by_content(images, labels) -> list:
  return sorted((image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True))


def npz(tmp_path, **arrays):
  np.savez(tmp_path / 'x.npz', **arrays)
  return tmp_path / 'x.npz'


def holds(dataset, images, labels, splits=('train', 'valid')):
  """Whether these images are there with their labels, in any order."""
  found = [every(dataset, split) for split in splits]
  shown = np.concatenate([batch['image'] for batch in found])
  numbers = np.concatenate([batch['label'] for batch in found])
  return by_content(shown[..., 0], numbers) == by_content(np.asarray(images, np.uint8), labels)


@pytest.mark.parametrize(
  'array,times,words',
  [
    (X, 255, 'uint8 of 0 to 1: binary, 1 for white'),
    (X.astype('int64'), 255, 'int64 of 0 to 1: binary'),
    (X.astype(bool), 255, 'bool: binary'),
    (X.astype('float64'), 255, 'float64 of 0 to 1: intensities'),
    (X * np.uint8(200), 200, 'uint8 of 0 to 200: intensities of 8 bits'),
    (X * np.int64(200), 200, 'int64 of 0 to 200: intensities of 8 bits'),
    (X * np.float32(254.6), 255, 'float32 of 0 to 254.6: intensities of 8 bits'),
    (X * np.uint16(51400), 200, 'uint16 of 0 to 51400: intensities of 16 bits'),
  ],
)
def test_what_numbers_mean(tmp_path, array, times, words):
  dataset = open_(npz(tmp_path, images=array, labels=Y))
  assert holds(dataset, times * X.astype(int), np.repeat([1, 0], 10))
  assert any(f'values: {words}' in note for note in dataset.notes)
  binary = any('every pixel is black or white' in note for note in dataset.notes)
  assert binary == (times == 255)


@pytest.mark.parametrize(
  'array,words',
  [
    (X * np.uint8(15), 'uint8 of 0 to 15, so what is white cannot be told'),
    (X * np.int64(300), 'int64 of 0 to 300, so what is white'),
    (X * np.uint16(1023), 'uint16 of 0 to 1023, so what is white'),
    (X * 1.5, 'float64 of 0 to 1.5, so what is white'),
    (X * 0.01, 'float64 of 0 to 0.01, so what is white'),
    (X * 300.0, 'float64 of 0 to 300, so what is white'),
    (X * 0, 'all of them black'),
    (X * 2.0 - 1, r'float64 of -1 to 1, .* as \(x \+ 1\) / 2'),
    (X.astype(int) - 5, 'int64 of -5 to -4, and no intensity is below 0'),
    (np.where(X, np.inf, 0.0), 'no numbers'),
    (X * 1j, 'not complex128'),
  ],
)
def test_what_cannot_be_told_is_refused(tmp_path, array, words):
  with pytest.raises(UserError, match=words) as caught:
    open_(npz(tmp_path, images=array))
  assert '\n' not in str(caught.value)


def test_the_range_is_that_of_all_splits(tmp_path):
  """A test split of black images is black, and not a reason to take ones for white."""
  dataset = open_(npz(tmp_path, x_train=X * np.uint8(255), x_test=0 * X[:4]))
  assert dataset.splits == ('train', 'valid', 'test')
  assert every(dataset, 'test')['image'].max() == 0
  with pytest.raises(UserError, match='are float64 and uint8: give arrays of one type'):
    open_(npz(tmp_path, x_train=X, x_test=X / 1.0))


@pytest.mark.parametrize(
  'names',
  [
    ('x_train', 'y_train', 'x_test', 'y_test'),
    ('train_images', 'train_labels', 'test_images', 'test_labels'),
    ('data', 'target', 'testdata', 'testtarget'),
    ('X', 'y', 'X_test', 'y_test'),
  ],
)
@pytest.mark.parametrize('suffix', ['npz', 'mat', '7.3'])
def test_arrays_by_name(tmp_path, names, suffix):
  """As NumPy has them, and as MATLAB does: the images last, labels in a matrix of floats."""
  images, labels, test, test_labels = names
  if suffix == 'npz':
    arrays = {images: X[:16], labels: Y[:16], test: X[16:], test_labels: Y[16:]}
    path = npz(tmp_path, **arrays, other=np.zeros(3))
  else:
    last = np.moveaxis(X, 0, -1)
    arrays = {
      images: last[..., :16], labels: Y[:16, None] / 1.0, test: last[..., 16:],
      test_labels: Y[16:, None] / 1.0,
    }  # fmt: skip
    path = tmp_path / 'x.mat'
    if suffix == 'mat':
      scipy.io.savemat(path, {**arrays, 'words': 'x', 'number': 3.0})
    else:
      with h5py.File(path, 'w') as file:
        for name, array in arrays.items():
          file[name] = array.T  # as MATLAB does
  dataset = open_(path)
  assert dataset.num_classes == 2 and dataset.image_shape == (5, 7, 1)
  assert holds(dataset, 255 * X[:16], (Y == 3)[:16])
  assert holds(dataset, 255 * X[16:], np.zeros(4, int), splits=['test'])
  first, second, *_, last = dataset.notes
  assert first == f'train: {images} with {labels} of {path}, 16 images of 5 x 7 x 1'
  assert second.startswith(f'test: {test} with {test_labels}')
  assert last == 'labels: 2 classes, 0 for 1, 1 for 3'


def test_images_of_matlab_in_rows_of_pixels(tmp_path):
  """Each row goes down the columns; classes are one number of several."""
  square = X[:, :, :5]
  rows = np.stack([image.ravel(order='F') for image in square], 1)  # [25, 20]
  one_hot = np.eye(4)[Y].T
  scipy.io.savemat(tmp_path / 'x.mat', {'data': rows / 1.0, 'target': one_hot})
  assert holds(open_(tmp_path / 'x.mat'), 255 * square, (Y == 3).astype(int))
  scipy.io.savemat(tmp_path / 'x.mat', {'data': rows.T / 1.0, 'target': one_hot})
  assert holds(open_(tmp_path / 'x.mat'), 255 * square, (Y == 3).astype(int))
  oblong = np.stack([image.ravel(order='F') for image in X])
  scipy.io.savemat(tmp_path / 'x.mat', {'data': oblong, 'labels': Y})
  assert holds(open_(tmp_path / 'x.mat', image_size=(5, 7)), 255 * X, (Y == 3).astype(int))


def test_color_of_matlab(tmp_path):
  color = RNG.integers(0, 256, (6, 4, 5, 3), np.uint8)
  for array in (color, np.moveaxis(color, 0, -1)):
    scipy.io.savemat(tmp_path / 'x.mat', {'X': array})
    dataset = open_(tmp_path / 'x.mat')
    found = np.concatenate([every(dataset, split)['image'] for split in dataset.splits])
    assert sorted(i.tobytes() for i in found) == sorted(i.tobytes() for i in color)


def test_what_sample_writes(tmp_path):
  gray = RNG.uniform(size=(6, 4, 5, 1)).astype(np.float32)
  dataset = open_(npz(tmp_path, images=gray))
  assert dataset.image_shape == (4, 5, 1) and dataset.num_classes is None
  assert 'label' not in every(dataset, 'train')


def write_idx(path, array):
  content = struct.pack('>HBB', 0, 8, array.ndim) + struct.pack(f'>{array.ndim}I', *array.shape)
  content += array.astype(np.uint8).tobytes()
  path.write_bytes(gzip.compress(content) if path.suffix == '.gz' else content)


@pytest.mark.parametrize('end,test', [('.gz', 't10k'), ('', 'test')])
def test_idx(tmp_path, end, test):
  for name, array in (
    ('train-images-idx3-ubyte', 255 * X[:16].astype(int)), ('train-labels-idx1-ubyte', Y[:16]),
    (f'{test}-images-idx3-ubyte', 255 * X[16:].astype(int)), (f'{test}-labels-idx1-ubyte', Y[16:]),
  ):  # fmt: skip
    write_idx(tmp_path / f'{name}{end}', array)
  for path in (tmp_path, tmp_path / f'train-images-idx3-ubyte{end}'):
    dataset = open_(path)
    assert holds(dataset, 255 * X[:16], (Y == 3)[:16])
    assert holds(dataset, 255 * X[16:], np.zeros(4, int), splits=['test'])
  alone = open_(tmp_path / f'{test}-images-idx3-ubyte{end}')
  assert alone.splits == ('train', 'valid') and alone.num_classes == 1


def test_idx_of_other_types_and_damaged(tmp_path):
  path = tmp_path / 'a.idx2'
  values = np.array([[1, -2], [300, 4]], '>i2')
  path.write_bytes(struct.pack('>HBBII', 0, 11, 2, 2, 2) + values.tobytes())
  np.testing.assert_array_equal(idx.read(path), values)
  whole = path.read_bytes()
  for content, words in (
    (whole[:-1], 'holds 7 bytes of data where its header asks for 8'),
    (whole[:9], 'ends before its header does'),
    (b'no' + whole, 'is no IDX file'),
    (b'', 'is no IDX file'),
    (gzip.compress(whole)[:-9], 'is truncated'),
  ):
    path.write_bytes(content)
    with pytest.raises(UserError, match=words):
      idx.read(path)


def test_folders_are_classes_and_splits(tmp_path):
  for split, num in (('train', 6), ('test', 3)):
    for i, name in enumerate(('cat', 'dog')):
      (tmp_path / split / name).mkdir(parents=True)
      for k in range(num):
        Image.new('L', (6, 4), 100 * i + 50).save(tmp_path / split / name / f'{k}.png')
  (tmp_path / '.hidden').write_text('')
  options = {'image_size': 4, 'channels': 1}
  whole, train = open_(tmp_path, **options), open_(tmp_path / 'train', **options)
  assert whole.splits == ('train', 'valid', 'test') and whole.num_classes == 2
  assert train.splits == ('train', 'valid') and train.num_examples('train') == 11
  for batch in (every(whole, 'test'), every(whole, 'train'), every(train, 'train')):
    assert ((batch['image'][:, 0, 0, 0] == 150) == batch['label']).all()
  assert whole.notes[-1] == 'labels: 2 classes, 0 for cat, 1 for dog'
  assert 'scaled and cut to 4 x 4 x 1, values: 50 to 150' in whole.notes[0]
  # With an image beside the folders they are no longer all that there is.
  Image.new('L', (6, 4), 7).save(tmp_path / 'train' / 'other.png')
  assert open_(tmp_path / 'train', **options).num_classes is None


def test_masks_of_0_and_1(tmp_path):
  """Made white before they are scaled, so that halves are gray."""
  for i in range(3):
    Image.fromarray(np.tile(np.array([0, 1], np.uint8), (4, 2))).save(tmp_path / f'{i}.png')
  images = every(open_(tmp_path, image_size=4, channels=1), 'train')['image']
  assert set(np.unique(images)) == {0, 255}
  assert abs(int(every(open_(tmp_path, image_size=2), 'train')['image'][0, 0, 0, 0]) - 127) <= 1


def test_bad_arrays(tmp_path):
  def refuse(words, path, **options):
    with pytest.raises(UserError, match=words) as caught:
      open_(path, **options)
    assert '\n' not in str(caught.value)

  refuse('holds both x and images', npz(tmp_path, x=X, images=X))
  refuse('holds the arrays x_test: call one', npz(tmp_path, x_test=X))
  refuse(r'y has the shape \(3,\) for 20 images', npz(tmp_path, x=X, y=Y[:3]))
  refuse('images of .* and .*: they must all have one size', npz(tmp_path, x=X, x_test=X[:, 1:]))
  refuse('are object: |not a sound file', npz(tmp_path, x=X.astype(object)))
  mat = tmp_path / 'x.mat'
  scipy.io.savemat(mat, {'x': np.zeros((4, 5, 6))})
  refuse(r'which axis of x \(4, 5, 6\) counts the images cannot be told', mat)
  scipy.io.savemat(mat, {'x': np.zeros((4, 9))})
  refuse('which axis of x', mat)
  mat.write_bytes(b'MATLAB 5.0 MAT-file' + bytes(200))
  refuse('is not a sound .mat file', mat)
  refuse('labels: left out|at least 2', npz(tmp_path, x=X[:1], y=Y[:1]))


@pytest.mark.parametrize('labels', [Y + 0.5, RNG.uniform(size=(20, 3))])
def test_labels_that_are_no_classes_are_left_out(tmp_path, labels):
  dataset = open_(npz(tmp_path, x=X, y=labels))
  assert dataset.num_classes is None and 'labels: left out' in dataset.notes[-1]
