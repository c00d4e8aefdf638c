"""Files that appear whole or not at all."""

import contextlib
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
    # mkstemp makes files that only their owner can read; pictures are as any file.
    temporary.chmod(0o666 & ~_umask())
    temporary.replace(path)
  except OSError as error:
    raise UserError(f'cannot write {path}: {error.strerror or error}.') from error
  finally:
    if temporary is not None:
      temporary.unlink(missing_ok=True)


def _umask() -> int:
  mask = os.umask(0)
  os.umask(mask)
  return mask
