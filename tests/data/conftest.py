"""Published files in miniature, and the real ones where they are at hand."""

import gzip
import io
import os
import tarfile

import numpy as np
import pytest
from data_support import digit, register, sha256, write_struct
from PIL import Image

from draw_jax.data.builders import binarized_mnist, cifar10, mnist, svhn


@pytest.fixture
def tiny_mnist(tmp_path, monkeypatch):
  """A folder with the four IDX files: 30 digits to train on and 10 to test on."""
  folder = tmp_path / 'mnist_files'
  folder.mkdir()
  rng = np.random.default_rng(0)
  contents = {}
  for prefix, count in (('train', 30), ('t10k', 10)):
    pixels = rng.integers(0, 256, (count, 28, 28), np.uint8)
    labels = rng.integers(0, 10, count, np.uint8)
    header = np.array([2051, count, 28, 28], '>u4').tobytes()
    contents[f'{prefix}-images-idx3-ubyte.gz'] = header + pixels.tobytes()
    header = np.array([2049, count], '>u4').tobytes()
    contents[f'{prefix}-labels-idx1-ubyte.gz'] = header + labels.tobytes()
  for name, content in contents.items():
    (folder / name).write_bytes(gzip.compress(content))
  monkeypatch.setattr(mnist.DrawMnist, 'content', {k: sha256(v) for k, v in contents.items()})
  register(monkeypatch, mnist.DrawMnist, folder)
  return folder


@pytest.fixture
def tiny_amat(tmp_path, monkeypatch):
  """A folder with the three .amat files: 6, 3 and 3 images."""
  folder = tmp_path / 'amat_files'
  folder.mkdir()
  rng = np.random.default_rng(1)
  for split, count in (('train', 6), ('valid', 3), ('test', 3)):
    bits = rng.integers(0, 2, (count, 784))
    lines = [' '.join(map(str, row)) + '\n' for row in bits]
    (folder / f'binarized_mnist_{split}.amat').write_text(''.join(lines))
  register(monkeypatch, binarized_mnist.DrawBinarizedMnist, folder)
  return folder


@pytest.fixture
def tiny_cifar10(tmp_path, monkeypatch):
  """A folder with cifar-10-batches-bin: six files of 4 images."""
  folder = tmp_path / 'cifar_files'
  bins = folder / 'cifar-10-batches-bin'
  bins.mkdir(parents=True)
  rng = np.random.default_rng(2)
  content = {}
  for name in cifar10.DrawCifar10.content:
    records = rng.integers(0, 256, (4, 3073), np.uint8)
    records[:, 0] %= 10
    (bins / name).write_bytes(records.tobytes())
    content[name] = sha256(records.tobytes())
  monkeypatch.setattr(cifar10.DrawCifar10, 'content', content)
  return folder


@pytest.fixture
def tiny_svhn(tmp_path):
  """A folder with train/ (60 images), test/ (4) and extra/ (40)."""
  folder = tmp_path / 'svhn_files'
  rng = np.random.default_rng(3)
  for split, count in (('train', 60), ('test', 4), ('extra', 40)):
    (folder / split).mkdir(parents=True)
    boxes = {}
    for i in range(1, count + 1):
      pixels = rng.integers(0, 256, (40, 60, 3), np.uint8)
      Image.fromarray(pixels).save(folder / split / f'{i}.png')
      boxes[f'{i}.png'] = [digit(10 + 12 * j, 8, 10, 20) for j in range(1 + i % 3)]
    write_struct(folder / split / 'digitStruct.mat', boxes)
  return folder


@pytest.fixture
def tiny_svhn_archives(tiny_svhn, tmp_path, monkeypatch):
  """The same images in {train,test,extra}.tar.gz, the struct last."""
  folder = tmp_path / 'svhn_archives'
  folder.mkdir()
  for split in ('train', 'test', 'extra'):
    with tarfile.open(folder / f'{split}.tar.gz', 'w:gz') as archive:
      for path in sorted((tiny_svhn / split).iterdir()):
        info = tarfile.TarInfo(f'{split}/{path.name}')
        content = path.read_bytes()
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
  register(monkeypatch, svhn.DrawSvhn, folder)
  return folder


@pytest.fixture(scope='session')
def raw_data():
  """The folder of the real published files."""
  if 'DRAW_JAX_RAW_DATA' not in os.environ:
    pytest.skip('needs the published files: set DRAW_JAX_RAW_DATA to their folder')
  return os.environ['DRAW_JAX_RAW_DATA']
