"""The shell around every command: its flags, its logs, and errors told in one line."""

import argparse
import contextlib
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import jax
from absl import app, flags, logging

from draw_jax.cli import usage
from draw_jax.devices import cores, processes
from draw_jax.errors import UserError

_CACHE = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser() / 'draw_jax'

# Flags whose values are files or folders.
_PATHS = ('workdir', 'model', 'output', 'data_dir', 'manual_dir', 'image', 'preview', 'compare')

_COMPILATION_CACHE = flags.DEFINE_string(
  'compilation_cache', str(_CACHE / 'xla'), "Folder for compiled programs; '' for none."
)


def parse_flags(argv: Sequence[str]) -> list[str]:
  """The `flags_parser` of `app.run`; ends with one line and exit code 2 if it fails."""
  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    refuse(argv, usage.explain(error))


def refuse(argv: Sequence[str], message: str) -> NoReturn:
  """Ends for a command line that is wrong, and the other processes with it."""
  sys.exit(_refuse(argv, UserError(message)))


def run(
  main: Callable[[], int | None],
  parse_flags: Callable[[Sequence[str]], list[str]] = parse_flags,
) -> None:
  """Runs a command; a `UserError` becomes one message and exit code 2, with no traceback.

  Args:
    main: does the work and gives the exit code.
    parse_flags: gives what is left of the command line after the flags.
  """
  if usage.asked_for(sys.argv):
    usage.show(main)
    return

  def guarded(argv: Sequence[str]) -> int | None:
    try:
      if len(argv) > 1:
        raise UserError(f'unknown argument {argv[1]!r}: options begin with --.')
      _expand_paths()
      if not flags.FLAGS['verbosity'].present:
        logging.set_verbosity(logging.WARNING)
      if _COMPILATION_CACHE.value:
        folder = os.path.expanduser(_COMPILATION_CACHE.value)
        jax.config.update('jax_compilation_cache_dir', folder)
        jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
      return main()
    except UserError as error:
      processes.fail(error)
      return _refuse(sys.argv, error)
    except KeyboardInterrupt as error:
      processes.fail(error)
      print('stopped.', file=sys.stderr)
      return 128 + signal.SIGINT
    except Exception as error:
      processes.fail(error)
      raise

  app.run(guarded, flags_parser=parse_flags)


def _expand_paths() -> None:
  """Puts the home folder in place of ~, which a shell leaves as it is behind a =."""
  for flag in (flags.FLAGS[name] for name in _PATHS if name in flags.FLAGS):
    values = flag.value if isinstance(flag.value, list) else [flag.value]
    if '' in values:  # such as a variable of the shell that is not set
      raise UserError(f'--{flag.name}= is empty: give a path, or leave it out.')
    values = [value and os.path.expanduser(value) for value in values]
    flag.value = values if isinstance(flag.value, list) else values[0]


def define_process_flags() -> None:
  """Flags for a command that several processes can share; see `start_devices`."""
  flags.DEFINE_string(
    'coordinator_address', None, 'host:port of process 0, where no scheduler tells it.'
  )
  flags.DEFINE_integer('num_processes', None, 'Number of processes.')
  flags.DEFINE_integer('process_id', None, 'Which process this is, from 0.')
  flags.DEFINE_integer(
    'join_seconds',
    None,
    'How long to wait for the other processes; if left out 20, and under a scheduler 300.',
    lower_bound=1,
  )


def start_devices(batch_sizes: Sequence[int]) -> None:
  """Joins this process to the others of the run, as the flags or the scheduler say.

  A run of one process has all cores of a CPU to itself. The program may start anew here, see
  `cores.use_huge_pages`: only a command, whose process is its own, calls this.

  Args:
    batch_sizes: every size of a batch that devices are to share.
  """
  cores.use_huge_pages()
  values = flags.FLAGS
  processes.join(
    values.coordinator_address, values.num_processes, values.process_id, values.join_seconds
  )
  if not jax.distributed.is_initialized():
    cores.use_cores(batch_sizes)
  cores.keep_memory()


def _refuse(argv: Sequence[str], error: UserError) -> int:
  """Prints an error, and joins the processes of a run, if there are several, only to tell it.

  Returns:
    The exit code.
  """
  print(f'error: {error}', file=sys.stderr, flush=True)
  if 'process_id' not in flags.FLAGS or jax.distributed.is_initialized():
    return 2
  # Of flags that are wrong, absl may have read none.
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
  parser.add_argument('--coordinator_address')
  for name in ('num_processes', 'process_id', 'join_seconds'):
    parser.add_argument(f'--{name}', type=int)
  with contextlib.suppress(argparse.ArgumentError, UserError):
    values = parser.parse_known_args(argv)[0]
    if values.process_id is not None or processes.scheduled(os.environ):
      processes.join(*vars(values).values(), told=error)
  return 2
