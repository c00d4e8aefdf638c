"""Published files: prepared as they are, refused when they are wrong."""

import errno
import gzip
import io
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import tensorflow_datasets as tfds
from data_support import refuse, register, written_files

from draw_jax.data.builders import binarized_mnist, cifar10, mnist, preparation
from draw_jax.errors import UserError

Amat = binarized_mnist.DrawBinarizedMnist


def change(path, edit):
  path.write_bytes(gzip.compress(edit(bytearray(gzip.decompress(path.read_bytes())))))


def test_mnist(tiny_mnist, tmp_path):
  builder = preparation.prepare(mnist.DrawMnist, str(tmp_path / 'data'), str(tiny_mnist))
  assert {name: split.num_examples for name, split in builder.info.splits.items()} == {
    'train': 30,
    'test': 10,
  }
  content = gzip.decompress((tiny_mnist / 'train-images-idx3-ubyte.gz').read_bytes())
  records = builder.as_data_source('train')
  images = np.stack([records[i]['image'] for i in range(30)])
  np.testing.assert_array_equal(images.ravel(), np.frombuffer(content, np.uint8, offset=16))
  labels = gzip.decompress((tiny_mnist / 'train-labels-idx1-ubyte.gz').read_bytes())[8:]
  assert [records[i]['label'] for i in range(30)] == list(labels)


def test_binarized_mnist(tiny_amat, tmp_path):
  builder = preparation.prepare(Amat, str(tmp_path / 'data'), str(tiny_amat))
  for split, count in (('train', 6), ('valid', 3), ('test', 3)):
    bits = np.loadtxt(tiny_amat / f'binarized_mnist_{split}.amat')
    records = builder.as_data_source(split)
    assert len(records) == count
    images = np.stack([record['image'] for record in records])
    np.testing.assert_array_equal(images.reshape(count, 784), 255 * bits)


@pytest.mark.parametrize('archived', [False, True])
def test_cifar10(tiny_cifar10, tmp_path, archived):
  folder = tiny_cifar10 / 'cifar-10-batches-bin'
  contents = {path.name: path.read_bytes() for path in folder.iterdir()}
  if archived:
    _archive(tiny_cifar10 / 'cifar-10-binary.tar.gz', contents)
    for path in list(folder.iterdir()):
      path.unlink()
    folder.rmdir()
  builder = preparation.prepare(cifar10.DrawCifar10, str(tmp_path / 'data'), str(tiny_cifar10))
  assert builder.info.splits['train'].num_examples == 20
  second = builder.as_data_source('train')[5]  # the second image of data_batch_2
  raw = np.frombuffer(contents['data_batch_2.bin'], np.uint8)[3073:6146]
  assert second['label'] == raw[0]
  assert second['image'][3, 7, 2] == raw[1 + 2 * 1024 + 3 * 32 + 7]  # row 3, column 7, blue


def _archive(path, contents):
  with tarfile.open(path, 'w:gz') as archive:
    for name, content in contents.items():
      info = tarfile.TarInfo(f'cifar-10-batches-bin/{name}')
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))


def test_files_may_lie_in_a_folder_of_the_dataset(tiny_amat, tmp_path):
  tiny_amat.rename(tmp_path / 'binarized_mnist')
  builder = preparation.prepare(Amat, str(tmp_path / 'data'), str(tmp_path))
  assert builder.is_prepared()


def test_preparing_twice_does_nothing(tiny_amat, tmp_path):
  data_dir = str(tmp_path / 'data')
  preparation.prepare(Amat, data_dir, str(tiny_amat))
  before = {path: path.stat().st_mtime_ns for path in written_files(tmp_path / 'data')}
  for path in tiny_amat.iterdir():
    path.unlink()
  preparation.prepare(Amat, data_dir, str(tiny_amat))
  assert before == {path: path.stat().st_mtime_ns for path in written_files(tmp_path / 'data')}


@pytest.mark.parametrize('interruption', [KeyboardInterrupt, MemoryError])
def test_an_interrupted_preparation_leaves_nothing(tiny_amat, tmp_path, monkeypatch, interruption):
  read = Amat.read

  def interrupted(self, paths):
    splits = read(self, paths)

    def stop():
      yield from splits['train']
      raise interruption

    return {'valid': splits['valid'], 'train': stop()}

  monkeypatch.setattr(Amat, 'read', interrupted)
  with pytest.raises(interruption):
    preparation.prepare(Amat, str(tmp_path / 'data'), str(tiny_amat))
  assert not written_files(tmp_path / 'data')
  monkeypatch.setattr(Amat, 'read', read)
  builder = preparation.prepare(Amat, str(tmp_path / 'data'), str(tiny_amat))
  assert builder.info.splits['train'].num_examples == 6


def test_another_process_may_be_quicker(tiny_amat, tmp_path, monkeypatch):
  read, given = Amat.read, (str(tmp_path / 'data'), str(tiny_amat))

  def overtaken(self, paths):
    monkeypatch.setattr(Amat, 'read', read)
    preparation.prepare(Amat, *given)
    return read(self, paths)

  monkeypatch.setattr(Amat, 'read', overtaken)
  builder = preparation.prepare(Amat, *given)
  assert Amat.read is read and builder.info.splits['train'].num_examples == 6
  assert len(builder.as_data_source('train')) == 6
  assert not list((tmp_path / 'data').rglob('*incomplete*'))


def test_what_a_killed_preparation_leaves_is_not_read_later(tiny_amat, tmp_path, monkeypatch):
  read, left = Amat.read, tmp_path / 'left'

  def watched(self, paths):
    splits = read(self, paths)

    def late():
      yield from splits['train']
      shutil.copytree(tmp_path / 'data', left)

    return {'valid': splits['valid'], 'train': late()}

  with monkeypatch.context() as context:
    context.setattr(Amat, 'read', watched)
    preparation.prepare(Amat, str(tmp_path / 'data'), str(tiny_amat))
  assert written_files(left)
  assert not Amat(data_dir=str(left)).is_prepared()
  builder = preparation.prepare(Amat, str(left), str(tiny_amat))
  assert builder.info.splits['train'].num_examples == 6


def test_process_0_prepares_while_the_others_wait(tiny_amat, tmp_path):
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{probe.getsockname()[1]}'
  environment = os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
  script = pathlib.Path(__file__).with_name('prepare_together.py')
  processes = [
    subprocess.Popen(
      [sys.executable, script, address, str(i), tiny_amat, tmp_path / 'data'],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      env=environment,
    )
    for i in range(2)
  ]
  for i, process in enumerate(processes):
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    refusal, prepared_here, examples, tensorflow = json.loads(output.splitlines()[-1])
    assert refusal.startswith('no such file' if i == 0 else 'process 0 could not prepare')
    assert prepared_here == (i == 0)
    assert examples == 6
    assert not tensorflow


def test_missing_file_names_it_the_page_and_the_command(tiny_amat, tmp_path):
  (tiny_amat / 'binarized_mnist_valid.amat').unlink()
  match = (
    rf'binarized_mnist_valid.amat from {Amat.page} into DIR, then run\n'
    '  python -m draw_jax.prepare --dataset=binarized_mnist --manual_dir=DIR'
  )
  refuse(Amat, tmp_path, match, tiny_amat)


def test_manual_dir_that_is_not_a_folder(tmp_path):
  refuse(Amat, tmp_path, 'is not a folder', tmp_path / 'nowhere')


@pytest.mark.parametrize('below', ['', 'data'])
def test_data_dir_that_is_a_file(tiny_amat, tmp_path, below):
  (tmp_path / 'file').write_text('')
  data_dir = tmp_path / 'file' / below
  with pytest.raises(UserError) as caught:
    preparation.prepare(Amat, str(data_dir), str(tiny_amat))
  reason = os.strerror(errno.ENOTDIR)
  assert str(caught.value).startswith(f'cannot write into --data_dir={data_dir}: {reason}.')


@pytest.mark.parametrize('code', [errno.EACCES, errno.EROFS])
def test_data_dir_that_is_read_only(tmp_path, monkeypatch, code):
  # The one who runs the tests may be root, whom no folder refuses.
  mkdir = os.mkdir

  def refuse_here(path, *args, **kwargs):
    if str(path).startswith(str(tmp_path)):
      raise OSError(code, os.strerror(code), path)
    mkdir(path, *args, **kwargs)

  monkeypatch.setattr(os, 'mkdir', refuse_here)
  refuse(Amat, tmp_path, f'cannot write into --data_dir={tmp_path}/data: {os.strerror(code)}')


def test_full_disk(tiny_amat, tmp_path, monkeypatch):
  bits = np.random.default_rng(0).integers(0, 2, (400, 784))
  np.savetxt(tiny_amat / 'binarized_mnist_train.amat', bits, '%d')
  register(monkeypatch, Amat, tiny_amat)
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  # Less than 400 x 98 bytes of random bits, and more than the test prints to a file of pytest.
  resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
  try:
    refuse(Amat, tmp_path, 'cannot write into --data_dir=.*: File too large', tiny_amat)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_in_the_words_of_tfds(tiny_amat, tmp_path, monkeypatch):
  def fail(self):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(tfds.core.writer.Writer, 'finalize', fail)
  match = rf'cannot write into --data_dir={tmp_path}/data: No space left on device\.'
  refuse(Amat, tmp_path, match, tiny_amat)


def test_manual_file_that_is_a_folder(tiny_mnist, tmp_path):
  path = tiny_mnist / 'train-labels-idx1-ubyte.gz'
  path.unlink()
  path.mkdir()
  refuse(mnist.DrawMnist, tmp_path, f'cannot use {path}: Is a directory', tiny_mnist)


def test_wrong_checksum(tiny_mnist, tmp_path):
  def edit(content):
    content[-1] ^= 1
    return content

  change(tiny_mnist / 't10k-images-idx3-ubyte.gz', edit)
  refuse(mnist.DrawMnist, tmp_path, 't10k-images-idx3-ubyte.gz has a wrong checksum', tiny_mnist)


def test_wrong_checksum_of_a_text(tiny_amat, tmp_path):
  path = tiny_amat / 'binarized_mnist_test.amat'
  content = bytearray(path.read_bytes())
  content[0] ^= 1  # from 0 to 1 or back
  path.write_bytes(content)
  refuse(Amat, tmp_path, 'binarized_mnist_test.amat has a wrong checksum', tiny_amat)


def test_a_file_that_was_compressed_again_is_as_good(tiny_mnist, tmp_path):
  path = tiny_mnist / 'train-images-idx3-ubyte.gz'
  path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1))
  assert preparation.prepare(mnist.DrawMnist, str(tmp_path / 'd'), str(tiny_mnist)).is_prepared()


def test_truncated_gzip(tiny_mnist, tmp_path):
  path = tiny_mnist / 'train-images-idx3-ubyte.gz'
  path.write_bytes(path.read_bytes()[:5000])
  refuse(mnist.DrawMnist, tmp_path, 'train-images-idx3-ubyte.gz is truncated', tiny_mnist)


def test_not_gzip(tiny_mnist, tmp_path):
  (tiny_mnist / 'train-labels-idx1-ubyte.gz').write_text('<html>not found</html>')
  refuse(mnist.DrawMnist, tmp_path, 'is not a sound gzip file', tiny_mnist)


def test_wrong_magic_number(tiny_mnist, tmp_path):
  labels = (tiny_mnist / 'train-labels-idx1-ubyte.gz').read_bytes()
  (tiny_mnist / 'train-images-idx3-ubyte.gz').write_bytes(labels)
  refuse(mnist.DrawMnist, tmp_path, 'starts with the magic number 2049, not 2051', tiny_mnist)


def test_header_that_does_not_fit_its_data(tiny_mnist, tmp_path):
  change(tiny_mnist / 'train-images-idx3-ubyte.gz', lambda content: content[:-3])
  refuse(mnist.DrawMnist, tmp_path, 'bytes of data where its header asks for', tiny_mnist)


def test_wrong_column_count(tiny_amat, tmp_path):
  path = tiny_amat / 'binarized_mnist_train.amat'
  lines = path.read_text().splitlines()
  lines[2] = lines[2][:-2]
  path.write_text('\n'.join(lines))
  refuse(Amat, tmp_path, 'train.amat, line 3: 783 columns, not 784', tiny_amat)


@pytest.mark.parametrize('word', ['2', '10', '0.5', 'x'])
def test_value_that_is_not_0_or_1(tiny_amat, tmp_path, word):
  path = tiny_amat / 'binarized_mnist_valid.amat'
  lines = path.read_text().splitlines()
  lines[1] = f'{word}{lines[1][1:]}'
  path.write_text('\n'.join(lines))
  refuse(Amat, tmp_path, f"valid.amat, line 2: '{word}' is not 0 or 1", tiny_amat)


def test_cifar10_file_of_a_wrong_length(tiny_cifar10, tmp_path):
  path = tiny_cifar10 / 'cifar-10-batches-bin' / 'data_batch_3.bin'
  path.write_bytes(path.read_bytes()[:-1])
  refuse(cifar10.DrawCifar10, tmp_path, 'not a multiple of 3073', tiny_cifar10)


def test_cifar10_file_that_is_not_there(tiny_cifar10, tmp_path):
  (tiny_cifar10 / 'cifar-10-batches-bin' / 'test_batch.bin').unlink()
  refuse(cifar10.DrawCifar10, tmp_path, 'has no test_batch.bin', tiny_cifar10)


def test_truncated_archive(tiny_cifar10, tmp_path):
  folder = tiny_cifar10 / 'cifar-10-batches-bin'
  archive = tiny_cifar10 / 'cifar-10-binary.tar.gz'
  _archive(archive, {path.name: path.read_bytes() for path in folder.iterdir()})
  archive.write_bytes(archive.read_bytes()[:9000])
  folder.rename(tmp_path / 'elsewhere')
  refuse(cifar10.DrawCifar10, tmp_path, 'is not a sound .tar.gz file', tiny_cifar10)
