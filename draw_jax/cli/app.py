"""The shell around every command: its flags, its logs, and errors told in one line."""

import os
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence

import jax
from absl import app, flags, logging

from draw_jax.cli import usage
from draw_jax.devices import cores, sharding
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
    print(f'error: {usage.explain(error)}', file=sys.stderr)
    sys.exit(2)


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
      print(f'error: {error}', file=sys.stderr)
      return 2
    except KeyboardInterrupt:
      print('stopped.', file=sys.stderr)
      return 128 + signal.SIGINT

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


def start_devices(batch_sizes: Sequence[int]) -> None:
  """Joins this process to the others of the run, as the flags or the scheduler say.

  A run of one process has all cores of a CPU to itself. The program may start anew here, see
  `cores.use_huge_pages`: only a command, whose process is its own, calls this.

  Args:
    batch_sizes: every size of a batch that devices are to share.
  """
  cores.use_huge_pages()
  values = flags.FLAGS
  sharding.start_processes(values.coordinator_address, values.num_processes, values.process_id)
  if not jax.distributed.is_initialized():
    cores.use_cores(batch_sizes)
  cores.keep_memory()
