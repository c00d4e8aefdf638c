"""What --help and a flag that is wrong or missing say: this command's words, in few lines."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence

from absl import flags

_HELP = ('-h', '-?', '-help', '--help', '-helpshort', '--helpshort')
_SHARED = 'draw_jax.cli.app'  # defines what several commands have in common
_MISSING = 'must have a value other than None'  # absl's words for a required flag
_WIDTH = 100


def asked_for(argv: Sequence[str]) -> bool:
  """Whether a command line asks for help."""
  return any(argument in _HELP for argument in argv[1:])


def show(main: Callable) -> None:
  """Prints the help of the command that has this `main`."""
  try:
    print(text(main), flush=True)
  except BrokenPipeError:  # Whoever reads, such as `head`, has read enough.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def text(main: Callable) -> str:
  """Docstring and flags of the command that has this `main`, and the flags it shares.

  absl looks for both in the file that Python was started with, which for an installed
  command is not the command.
  """
  name = main.__module__
  by_module = flags.FLAGS.flags_by_module_dict()
  # absl files the flags of the module that was started under the name it was started by.
  own = by_module.get(sys.argv[0] if name == '__main__' else name, [])
  lines = [(sys.modules[name].__doc__ or '').strip(), '', 'Flags:', *map(_describe, own)]
  if shared := by_module.get(_SHARED):
    lines += ['', 'Flags of several commands:', *map(_describe, shared)]
  return '\n'.join([*lines, '', '--helpfull lists those of every library too.'])


def explain(error: Exception) -> str:
  """An error of the flags in one line; one from inside a config file carries its traceback."""
  if missing := re.findall(rf'Flag (--\w+) {_MISSING}', str(error)):
    return f'{" and ".join(missing)} must be given: see --help.'
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  return lines[-1] if lines else type(error).__name__


def _describe(flag: flags.Flag) -> str:
  name = f'  --{"[no]" if flag.boolean else ""}{flag.name}'
  words = ' '.join((flag.help or '').split())
  if any(_MISSING in validator.message for validator in flag.validators):
    words += ' Required.'
  elif flag.default not in (None, '', []):
    words += f' Default: {flag.default_as_str.strip(chr(39))}.'
  width = min(shutil.get_terminal_size((_WIDTH, 0)).columns, _WIDTH)
  # Names have a column of their own; a longer one pushes its words to the right.
  return textwrap.fill(f'{name:<24} {words}', width, subsequent_indent=' ' * 25,
                       break_long_words=False, break_on_hyphens=False)  # fmt: skip
