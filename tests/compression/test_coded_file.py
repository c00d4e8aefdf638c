"""The format of files of coded images."""

import dataclasses
import hashlib
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draw_jax.compression import coded_file
from draw_jax.errors import UserError

HEADER = coded_file.Header(
  model='tiny', model_sha256='ab' * 32, glimpses=3, image_shape=(5, 7, 1), layout={'one': None},
  images_sha256='cd' * 32, latent_bits=12, batch_size=4, batches=[[1, 2], [4, 1]], borrowed=9,
  jax='0.0', backend='cpu', fingerprint='ef' * 32,
)  # fmt: skip


def refused(content) -> str:
  with pytest.raises(UserError) as caught:
    coded_file.unpack(content, 'FILE')
  assert '\n' not in str(caught.value)
  return str(caught.value)


@settings(max_examples=30, deadline=None)
@given(words=st.lists(st.integers(0, 2**32 - 1), max_size=20), borrowed=st.integers(0, 2**40))
def test_what_is_packed_can_be_unpacked(words, borrowed):
  header = dataclasses.replace(HEADER, borrowed=borrowed)
  found, stream = coded_file.unpack(coded_file.pack(header, np.array(words, np.uint32)), '')
  assert found == header
  np.testing.assert_array_equal(stream, np.array(words, np.uint32))


def test_sizes():
  assert HEADER.sizes == (1, 1, 4)
  assert HEADER.count == 6
  assert coded_file.run_lengths(HEADER.sizes) == HEADER.batches


def test_every_bit_counts():
  content = coded_file.pack(HEADER, np.arange(1, 30, dtype=np.uint32))
  for place in range(len(content)):
    for bit in range(8):
      changed = bytearray(content)
      changed[place] ^= 1 << bit
      refused(bytes(changed))


def test_files_that_are_cut_or_longer():
  content = coded_file.pack(HEADER, np.arange(1, 30, dtype=np.uint32))
  for length in range(len(content)):
    refused(content[:length])
    refused(content[length:] if length else content + b'\0')
  assert 'was not written by draw_jax.compress' in refused(b'')
  assert 'was not written by draw_jax.compress' in refused(b'\x89PNG\r\n\x1a\n' + bytes(100))
  assert 'damaged or cut' in refused(content[:-1])


def with_hash(body: bytes) -> bytes:
  return body + hashlib.sha256(body).digest()


def test_other_versions_and_headers():
  body = coded_file.pack(HEADER, np.zeros(0, np.uint32))[:-32]
  assert 'has the format 2, this version reads 1' in refused(with_hash(body[:8] + b'\2' + body[9:]))
  for text in (b'', b'[]', b'{}', b'{"model": 1}', b'nonsense'):
    packed = zlib.compress(text)
    content = with_hash(body[:9] + len(packed).to_bytes(4, 'little') + packed)
    assert 'does not have the header' in refused(content)
  assert 'does not have the header' in refused(with_hash(body + b'odd'))


def test_other_platforms():
  coded_file.check_platform(dataclasses.replace(HEADER, **coded_file.platform()), 'FILE')
  with pytest.raises(UserError, match=r'FILE was coded with jax 0\.0'):
    coded_file.check_platform(HEADER, 'FILE')
