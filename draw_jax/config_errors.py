"""Errors in the flags of a config file, told in one line."""

import difflib
import inspect
import pathlib
import re
import runpy
import sys
from collections.abc import Sequence

from absl import flags

from draw_jax import config as config_lib
from draw_jax import usage


def parse_flags(argv: Sequence[str]) -> list[str]:
  """The `flags_parser` of `app.run`; ends with one line and exit code 2 if it fails.

  Args:
    argv: the command line, the program's name first.

  Returns:
    What is left of it after the flags.
  """
  try:
    left = flags.FLAGS(argv)
    # A file that cannot be read is noticed only when it is looked into.
    config_lib.field_names(flags.FLAGS.config)
  except Exception as error:  # The flags of a config file raise whatever they come upon.
    print(f'error: {explain(argv, error)}', file=sys.stderr)
    sys.exit(2)
  return left


def explain(argv: Sequence[str], error: Exception) -> str:
  """What is wrong with a command line that raised an error, in one line."""
  return _missing_file(argv) or _no_variants(argv) or _unknown_field(argv) or usage.explain(error)


def _file(argv: Sequence[str]) -> tuple[pathlib.Path, str]:
  """The config's file and its variant."""
  for word, following in zip(argv, [*argv[1:], ''], strict=True):
    match = re.fullmatch(r'--?config(?:=(.*))?', word)
    if match:
      path, _, variant = (following if match[1] is None else match[1]).partition(':')
      return pathlib.Path(path), variant
  return pathlib.Path(), ''


def _missing_file(argv: Sequence[str]) -> str | None:
  path, _ = _file(argv)
  if path.exists():
    return None
  others = sorted(str(p) for p in path.parent.glob('*.py')) or ['none']
  near = difflib.get_close_matches(str(path), others, n=1)
  hint = f'did you mean {near[0]}? ' if near else ''
  return f'no experiment {path}: {hint}There are {", ".join(others)}.'


def _no_variants(argv: Sequence[str]) -> str | None:
  path, variant = _file(argv)
  if not variant:
    return None
  try:
    takes = inspect.signature(runpy.run_path(str(path))['get_config']).parameters
  except Exception:  # Then that is the error to tell.
    return None
  return None if takes else f'{path} has no variants: leave out :{variant}.'


def _unknown_field(argv: Sequence[str]) -> str | None:
  path, variant = _file(argv)
  try:
    config = runpy.run_path(str(path))['get_config'](*[variant] if variant else [])
  except Exception:  # Then that is the error to tell.
    return None
  names = config_lib.field_names(config)
  for match in (re.match(r'--?config\.([\w.]+)', arg) for arg in argv):
    if match and match[1] not in names:
      near = difflib.get_close_matches(match[1], names, n=1, cutoff=0)[0]
      return f'no field config.{match[1]}: did you mean config.{near}?'
  return None
