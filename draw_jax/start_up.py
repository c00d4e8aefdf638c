"""Ctrl-C while a command imports what it needs."""

import os
import signal
import sys

_name = os.path.basename(sys.argv[0])
_is_command = _name.startswith('draw-') or (
  _name == '-m' and any(word.startswith('draw_jax.') for word in sys.orig_argv)
)
if _is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
  # It ends the command with no traceback, until the shell around `main` puts the handler back.
  signal.signal(signal.SIGINT, signal.SIG_DFL)
