"""Buckets on this machine."""

import contextlib
import os
import pathlib

from etils.epath import testing


@contextlib.contextmanager
def buckets(folder: pathlib.Path):
  """While it is open gs://NAME is NAME in a folder, for all that etils.epath does."""

  def there(path) -> str:
    return os.fspath(path).replace('gs://', f'{folder}/')

  def one(function, path, *args, **kwargs):
    return function(there(path), *args, **kwargs)

  def two(function, path, other, **kwargs):
    return function(there(path), there(other), **kwargs)

  def glob(function, path):
    return [found.replace(f'{folder}/', 'gs://', 1) for found in function(there(path))]

  ones = ('exists', 'isdir', 'listdir', 'makedirs', 'mkdir', 'remove', 'rmtree', 'stat')
  twos = ('copy', 'rename', 'replace')

  # In a bucket there is no appending, and what is written is there once it is whole.
  def opened(function, path, mode):
    if mode[0] not in 'rw':
      raise NotImplementedError(mode)
    if mode[0] == 'w':
      os.makedirs(os.path.dirname(there(path)), exist_ok=True)
    return function(there(path), mode)

  with testing.mock_epath(
    **dict.fromkeys(ones, one), **dict.fromkeys(twos, two), glob=glob, open=opened
  ):
    yield
