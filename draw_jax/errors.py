"""Errors that the user can put right, and the shell around every binary that shows them."""

import sys
from collections.abc import Callable, Sequence

from absl import app


class UserError(Exception):
  """Something the user can put right.

  The message has one or two lines: what was given, what is accepted, what to do.
  """


def run(main: Callable[[Sequence[str]], int | None]) -> None:
  """Runs an absl binary; a `UserError` becomes one message and exit code 2, with no traceback.

  Args:
    main: the binary's main function, which takes the arguments left after flag parsing.
  """

  def guarded(argv: Sequence[str]) -> int | None:
    try:
      return main(argv)
    except UserError as error:
      print(f'error: {error}', file=sys.stderr)
      return 2

  app.run(guarded)
