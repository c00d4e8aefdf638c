"""Errors that the user can put right."""


class UserError(Exception):
  """Something the user can put right; every binary shows it with no traceback.

  The message has one or two lines: what was given, what is accepted, what to do.
  """
