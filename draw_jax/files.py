"""Files that appear whole or not at all, and folders that may be closed to us."""

import contextlib
import errno
import os
import pathlib
import tempfile
from collections.abc import Iterator

from draw_jax.errors import UserError


@contextlib.contextmanager
def writing(path) -> Iterator[pathlib.Path]:
  """Gives a temporary name beside `path` that becomes `path` when the block ends well.

  The name keeps the suffix, by which Pillow and ffmpeg choose a format. Missing
  folders are made.

  Args:
    path: where the file is to be.

  Yields:
    The path to write to.
  """
  path = pathlib.Path(path)
  temporary = None
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(path.suffix, f'.{path.stem}.', path.parent)
    os.close(handle)
    temporary = pathlib.Path(name)
    yield temporary
    # mkstemp makes files that only their owner can read; images are as any file.
    temporary.chmod(0o666 & ~_umask())
    temporary.replace(path)
  except OSError as error:
    raise UserError(f'cannot write {path}: {error.strerror or error}.') from error
  finally:
    if temporary is not None:
      temporary.unlink(missing_ok=True)


def make_folder(path) -> None:
  """Makes a folder to write into, unless it is there."""
  path = pathlib.Path(path)
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise UserError(f'cannot make the folder {path}: {error.strerror}.') from error
  if not os.access(path, os.W_OK | os.X_OK):
    raise UserError(f'cannot write into {path}: {os.strerror(errno.EACCES)}.')


def is_there(path) -> bool:
  """Whether a file or folder exists; refuses where that cannot be seen."""
  path = pathlib.Path(path)
  try:
    return path.exists()
  except OSError as error:  # such as a folder of someone else
    raise UserError(f'cannot look into {path.parent}: {error.strerror}.') from error


def is_full(error: BaseException | None) -> bool:
  """Whether a write failed for want of space; the cause may be deep in a chain."""
  while error is not None:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
      return True
    message = str(error)
    if any(os.strerror(code) in message for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)):
      return True
    error = error.__cause__ or error.__context__
  return False


def _umask() -> int:
  mask = os.umask(0)
  os.umask(mask)
  return mask
