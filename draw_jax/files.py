"""Files that appear whole or not at all, here or remote; and folders that may be closed to us."""

import contextlib
import errno
import os
import pathlib
import tempfile
from collections.abc import Iterator

from etils import epath

from draw_jax.errors import UserError, first_line

# What begins a remote path, and the package that reads and writes there. Orbax writes checkpoints
# to this machine and to buckets of Google alone.
_REMOTE = {'gs': 'gcsfs'}


def place(path: str | os.PathLike) -> pathlib.Path:
  """A path on this machine, or one such as gs://BUCKET/FOLDER with the same methods."""
  scheme, colon, _ = os.fspath(path).partition('://')
  if not colon:
    return pathlib.Path(path)
  if scheme not in _REMOTE:
    raise UserError(f'{path} is not known: give a folder, or one that begins with gs://.')
  return epath.Path(path)


def is_remote(path: str | os.PathLike) -> bool:
  return '://' in os.fspath(path)


def absolute(path: str | os.PathLike) -> pathlib.Path:
  """The place, whatever the current folder."""
  return place(path) if is_remote(path) else pathlib.Path(path).absolute()


def name(path: str | os.PathLike) -> str:
  """That of a folder, also if it is given as '.'."""
  return (place(path) if is_remote(path) else pathlib.Path(path).resolve()).name


def write_text(path: pathlib.Path, text: str) -> None:
  """Replaces what a file holds; what stands elsewhere appears whole by itself."""
  if is_remote(path):
    path.write_text(text)
    return
  partial = path.with_suffix('.tmp')
  partial.write_text(text)
  partial.replace(path)


@contextlib.contextmanager
def reaching(path: str | os.PathLike) -> Iterator[None]:
  """Tells in one line what keeps us from a remote place, whichever library it comes from."""
  try:
    yield
  except Exception as error:
    if isinstance(error, UserError) or not is_remote(path):
      raise
    package = _REMOTE[os.fspath(path).partition('://')[0]]
    todo = f' It takes the package {package}.' if isinstance(error, ImportError) else ''
    raise UserError(f'cannot use {path}: {first_line(error)}{todo}') from error


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
  path = place(path)
  try:
    with reaching(path):
      return path.exists()
  except OSError as error:  # such as a folder of someone else
    raise UserError(f'cannot look into {path.parent}: {error.strerror}.') from error


def check_room(folder: pathlib.Path, size: int) -> None:
  """Raises the error of a full disk where so many bytes cannot be written; writes none of them."""
  if not hasattr(os, 'posix_fallocate') or not size:
    return
  with tempfile.TemporaryFile(dir=folder) as file:
    try:
      os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
      if is_full(error):
        raise
      # Some file systems cannot tell.


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
