"""Errors in the flags of a config file, told in one line."""

import difflib
import re
from collections.abc import Sequence

from absl import flags, logging

from draw_jax import config as config_lib
from draw_jax import renamed
from draw_jax.cli import app, usage
from draw_jax.errors import UserError


def parse_flags(argv: Sequence[str]) -> list[str]:
  """The `flags_parser` of `app.run`; ends with one line and exit code 2 if it fails.

  Args:
    argv: the command line, the program's name first.

  Returns:
    What is left of it after the flags.
  """
  # It warns of what is refused in our own words.
  logging.get_absl_logger().addFilter(lambda record: '/ml_collections/' not in record.pathname)
  try:
    left = flags.FLAGS(argv)
    # A file that cannot be read is noticed only when it is looked into.
    getattr(flags.FLAGS.config, 'items', None)
  except Exception as error:  # The flags of a config file raise whatever they come upon.
    app.refuse(argv, explain(argv, error))
  return left


def explain(argv: Sequence[str], error: Exception) -> str:
  """What is wrong with a command line that raised an error, in one line."""
  experiment = _experiment(argv)
  if not experiment:
    return usage.explain(error)
  try:
    config = config_lib.from_file(experiment)
  except UserError as mistake:
    return str(mistake)
  return _unknown_field(argv, config) or usage.explain(error)


def _experiment(argv: Sequence[str]) -> str:
  """The value of --config."""
  for word, following in zip(argv, [*argv[1:], ''], strict=True):
    match = re.fullmatch(r'--?config(?:=(.*))?', word)
    if match:
      return following if match[1] is None else match[1]
  return ''


def _unknown_field(argv: Sequence[str], config) -> str | None:
  names = config_lib.field_names(config)
  for match in (re.match(r'--?config\.([\w.]+)', arg) for arg in argv):
    if match and match[1] not in names:
      near = renamed.CONFIG.get(match[1])
      near = near or difflib.get_close_matches(match[1], names, n=1, cutoff=0)[0]
      return f'no field config.{match[1]}: did you mean config.{near}?'
  return None
