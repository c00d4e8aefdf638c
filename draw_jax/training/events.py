"""Files of TensorBoard in any workdir, here or remote."""

import io
import itertools
import pathlib
from collections.abc import Callable

import tensorboardX
from tensorboardX import record_writer

from draw_jax import files

_NUMBERS = itertools.count()


class EventFile:
  """What tensorboardX writes to in the background.

  An error there would end its thread, for which training would then wait for ever: it is kept
  until `check` raises it. A remote file is sent as a whole, as often as tensorboardX flushes.
  """

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._path = self._file = self._error = None

  def writer(self, **options) -> tensorboardX.SummaryWriter:
    """A writer to this file."""
    # What stands before the first colon of a folder is for tensorboardX the name of such a class.
    name = f'draw_jax_{next(_NUMBERS)}'
    record_writer.register_writer_factory(name, self)
    return tensorboardX.SummaryWriter(f'{name}:', **options)

  def check(self) -> None:
    """Raises what went wrong, if something did."""
    if self._error is not None:
      raise self._error

  def directory_check(self, path: str) -> None:
    del path
    self._folder.mkdir(parents=True, exist_ok=True)

  def open(self, path: str) -> 'EventFile':
    self._path = self._folder / path.rpartition('/')[2]
    self._file = io.BytesIO() if files.is_remote(self._path) else self._path.open('wb')
    return self

  def write(self, content: bytes) -> None:
    self._keep_error(lambda: self._file.write(content))

  def flush(self) -> None:
    self._keep_error(self._send)

  def close(self) -> None:
    self._keep_error(self._send)
    self._keep_error(self._file.close)

  def _send(self) -> None:
    if files.is_remote(self._path):
      with files.reaching(self._path):
        self._path.write_bytes(self._file.getvalue())
    else:
      self._file.flush()

  def _keep_error(self, function: Callable[[], object]) -> None:
    if self._error is None:
      try:
        function()
      except Exception as error:
        self._error = error
