"""Errors that the user can put right."""


class UserError(ValueError):
  """Something the user can put right; every command shows it with no traceback.

  For code that calls the library it is the ValueError that is usual there.

  The message has one or two lines: what was given, what is accepted, what to do.
  """


def first_line(error: Exception) -> str:
  """The first line of an error's message, shortened, for a message of our own."""
  line = next(iter(str(error).splitlines()), '') or type(error).__name__
  return line if len(line) < 160 else line[:157] + '...'
