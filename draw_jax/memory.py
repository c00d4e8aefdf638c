"""Work that cannot fit into memory is refused before it begins."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import jax

from draw_jax.errors import UserError, first_line

_UNITS = ('B', 'kB', 'MB', 'GB', 'TB')
_CONTAINER = pathlib.Path('/sys/fs/cgroup/memory.max')  # of Linux, where something limits it


def there_is() -> int:
  """Bytes that this machine has, or the container around this process."""
  here = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  try:
    return min(here, int(_CONTAINER.read_text()))
  except (OSError, ValueError):  # no container, or 'max'
    return here


def check(num_bytes: float, what: str) -> None:
  """Raises a `UserError` if something takes more than there is.

  Args:
    num_bytes: the least that it takes.
    what: it is, and what to do about it: the beginning of the message.
  """
  if num_bytes > there_is():
    raise UserError(
      f'{what} takes at least {size(num_bytes)} of memory, and there are {size(there_is())}: give '
      'less.'
    )


@contextlib.contextmanager
def explaining() -> Iterator[None]:
  """Tells in one line what could be allocated no more."""
  try:
    yield
  except (MemoryError, jax.errors.JaxRuntimeError) as error:
    if not isinstance(error, MemoryError) and 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise UserError(
      f'there is not enough memory ({first_line(error)}): give smaller batches, a smaller model, '
      'or less to do at a time.'
    ) from error


def size(num_bytes: float) -> str:
  """Such as 1.5 GB."""
  for unit in _UNITS:
    if num_bytes < 1000 or unit == _UNITS[-1]:
      return f'{num_bytes:.{0 if unit == "B" else 1}f} {unit}'
    num_bytes /= 1000
  raise AssertionError
