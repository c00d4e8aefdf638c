"""Standard streams that outlast whoever reads them."""

import contextlib
import errno
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator

from absl import logging as absl_logging

_NAMES = ('stdin', 'stdout', 'stderr')  # by their descriptors


class _Stream:
  """A stream to write to. After an error what is written is lost, and the work goes on."""

  def __init__(self, stream):
    self._stream = stream
    self.error = None

  def write(self, text: str) -> int:
    self._try(lambda: self._stream.write(text))
    return len(text)

  def flush(self) -> None:
    self._try(self._stream.flush)

  def _try(self, function) -> None:
    if self.error is not None:
      return
    try:
      function()
    except OSError as error:
      self.error = error
      # What is left in buffers must go somewhere.
      os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

  def __getattr__(self, name: str):
    return getattr(self._stream, name)


def open_closed() -> None:
  """Opens the null device in place of streams that are closed.

  The next file to be opened would have the number of one, and get what is written to it.
  """
  for number, name in enumerate(_NAMES):
    try:
      os.fstat(number)
    except OSError:
      os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if getattr(sys, name) is None:
      setattr(sys, name, os.fdopen(number, 'r' if number == 0 else 'w', closefd=False))


@contextlib.contextmanager
def lasting() -> Iterator[_Stream]:
  """Lets the work go on when stdout or stderr can be written to no more; gives the former."""
  before = sys.stdout, sys.stderr
  sys.stdout, sys.stderr = (_Stream(stream) for stream in before)
  try:
    yield sys.stdout
  finally:
    for stream in (sys.stdout, sys.stderr):
      stream.flush()
    sys.stdout, sys.stderr = before


def lost(stream: _Stream) -> str | None:
  """Why something written was lost, unless its reader had enough, as `head` has."""
  error = stream.error
  return None if error is None or error.errno == errno.EPIPE else error.strerror


def quiet_libraries() -> None:
  """Keeps libraries from telling of errors that they raise as well, with their tracebacks."""
  absl_logging.get_absl_logger().addFilter(lambda record: '/orbax/' not in record.pathname)
  logging.getLogger('asyncio').setLevel(logging.CRITICAL)
  logging.getLogger('matplotlib').setLevel(logging.ERROR)
  logging.raiseExceptions = False
  warnings.filterwarnings('ignore', 'coroutine .* was never awaited', RuntimeWarning)
  warnings.filterwarnings('ignore', 'Sharding info not provided', UserWarning)
  hooks = sys.unraisablehook, threading.excepthook

  def raised_elsewhere(hook):
    def shown(args) -> None:
      # The second is said by what Orbax still writes when it has given up.
      if not _is_of_orbax(args.exc_traceback) and str(args.exc_value) != 'Event loop is closed':
        hook(args)

    return shown

  sys.unraisablehook, threading.excepthook = map(raised_elsewhere, hooks)


def _is_of_orbax(traceback) -> bool:
  """Whether a traceback goes through Orbax."""
  while traceback is not None:
    if '/orbax/' in traceback.tb_frame.f_code.co_filename:
      return True
    traceback = traceback.tb_next
  return False
