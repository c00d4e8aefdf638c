"""Files that are made to do harm, or are of another kind than their names say: one line each."""

import gzip
import io
import os
import pathlib
import struct
import tarfile
import zipfile
import zlib

import h5py
import numpy as np
import pytest
from PIL import Image

from draw_jax.data import array_files, idx, images
from draw_jax.data.builders import cifar10, svhn
from draw_jax.errors import UserError


def refused(function, *args) -> str:
  with pytest.raises(UserError) as caught:
    function(*args)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def npy(shape: str, content: bytes = b'') -> bytes:
  """An .npy file with any words in the place of its shape."""
  header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
  return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header + content


@pytest.mark.parametrize(
  'shape',
  [
    '(1000000000000, 28, 28)',
    '(99999999999999999999,)',
    '(-1, 28, 28)',
    '(2,',
    '"many"',
    '[' * 5000,
  ],
)
def test_absurd_shapes(shape, tmp_path):
  path = tmp_path / 'a.npy'
  path.write_bytes(npy(shape))
  assert 'is not a sound file of NumPy' in refused(array_files.read, path)
  path = tmp_path / 'a.npz'
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr('images.npy', npy(shape))
  assert 'is not a sound file of NumPy' in refused(array_files.read, path)


def encrypt(content: bytearray) -> None:
  content[content.index(b'PK\x01\x02') + 8] |= 1
  content[content.index(b'PK\x03\x04') + 6] |= 1


def compress_oddly(content: bytearray) -> None:
  content[content.index(b'PK\x01\x02') + 10] = 99
  content[content.index(b'PK\x03\x04') + 8] = 99


def claim_much(content: bytearray) -> None:
  """Its directory says that it becomes 4 GB."""
  begin = content.index(b'PK\x01\x02')
  content[begin + 24 : begin + 28] = b'\xfe\xff\xff\xff'


@pytest.mark.parametrize('change', [encrypt, compress_oddly, claim_much])
def test_odd_archives(change, tmp_path, monkeypatch):
  monkeypatch.setattr('draw_jax.memory.there_is', lambda: 2**31)
  path = tmp_path / 'a.npz'
  np.savez(path, images=np.zeros((4, 8, 8), np.uint8))
  content = bytearray(path.read_bytes())
  change(content)
  path.write_bytes(content)
  refused(array_files.read, path)


def test_an_archive_of_other_things(tmp_path):
  path = tmp_path / 'a.npz'
  with zipfile.ZipFile(path, 'w') as archive:
    archive.mkdir('images.npy')
    archive.writestr('notes.txt', 'hello')
  refused(array_files.read, path)


def test_a_small_gzip_file_that_becomes_large(tmp_path):
  """It is read as far as its header asks, and not on."""
  header = bytes([0, 0, 8, 3]) + struct.pack('>3I', 2, 8, 8)
  bomb = gzip.compress(header + bytes(10**7), 1)
  path = tmp_path / 'train-images-idx3-ubyte.gz'
  assert len(idx.decompress(path, bomb)) < 2000
  path.write_bytes(bomb)
  assert '128' in refused(array_files.read, path)
  header = bytes([0, 0, 8, 3]) + b'\xff' * 12
  path.write_bytes(gzip.compress(header + bytes(10**6), 1))
  assert 'of memory, and there are' in refused(array_files.read, path)
  path.write_bytes(header)
  assert 'header asks for' in refused(array_files.read, path)


def png(width: int, height: int) -> bytes:
  """One whose header alone is there."""

  def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = struct.pack('>I', zlib.crc32(kind + content))
    return struct.pack('>I', len(content)) + kind + content + checksum

  head = struct.pack('>2I5B', width, height, 8, 0, 0, 0, 0)
  return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + chunk(b'IDAT', zlib.compress(bytes(99)))


@pytest.mark.parametrize('side', [10_000, 100_000])  # Pillow warns of the first, refuses the second
def test_an_image_of_too_many_pixels(side, tmp_path, recwarn):
  (tmp_path / 'a.png').write_bytes(png(side, side))
  assert 'decompression bomb' in refused(images.read_folder, tmp_path, (8, 8), 1)
  assert not list(recwarn)


def test_pipes_and_folders_are_no_images(tmp_path):
  os.mkfifo(tmp_path / 'a.png')
  (tmp_path / 'b.png').mkdir()
  Image.new('L', (8, 8), 200).save(tmp_path / 'c.png')
  found, names = images.read_folder(tmp_path, (8, 8), 1)
  assert len(found) == 1 and [path.name for path in names] == ['c.png']
  os.mkfifo(tmp_path / 'a.npy')
  assert 'is not a folder' in refused(
    images.load, None, images.ImagesOptions(str(tmp_path / 'a.npy'))
  )


def test_folders_and_pipes_in_an_archive(tmp_path):
  path = tmp_path / 'cifar-10-binary.tar.gz'
  with tarfile.open(path, 'w:gz') as archive:
    for name, kind in (('a.bin', tarfile.DIRTYPE), ('b.bin', tarfile.FIFOTYPE)):
      member = tarfile.TarInfo(name)
      member.type = kind
      archive.addfile(member)
    member = tarfile.TarInfo('../../c.bin')
    member.size = 3
    archive.addfile(member, io.BytesIO(b'abc'))
  assert cifar10._read_archive(path) == {'c.bin': b'abc'}
  assert {file.name for file in pathlib.Path(tmp_path).iterdir()} == {path.name}


@pytest.mark.parametrize('kind', ['numbers', 'groups', 'nothing'])
def test_a_file_of_matlab_without_references(kind, tmp_path):
  path = tmp_path / 'digitStruct.mat'
  with h5py.File(path, 'w') as file:
    if kind != 'nothing':
      file['digitStruct/name'] = np.ones((2, 1))
    if kind == 'numbers':
      file['digitStruct/bbox'] = np.ones((2, 1))
    elif kind == 'groups':
      file.create_group('digitStruct/bbox')
  assert 'is not a digitStruct file' in refused(svhn.read_boxes, path, path.read_bytes())
