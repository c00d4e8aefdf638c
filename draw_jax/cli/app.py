"""The shell around every command: its flags, its logs, and errors told in one line."""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import jax
from absl import app, flags, logging

from draw_jax import files, memory
from draw_jax.cli import streams, usage
from draw_jax.devices import cores, processes
from draw_jax.errors import UserError

# Where there is no home folder, ~ stays as it is.
_CACHE = os.path.join(
  os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'draw_jax'
)

# Flags whose values are files or folders, and those of them that may be remote.
_PATHS = ('workdir', 'model', 'output', 'data_dir', 'manual_dir', 'image', 'preview', 'compare')
_REMOTE = ('workdir', 'data_dir', 'compare')

_COMPILATION_CACHE = flags.DEFINE_string(
  'compilation_cache', os.path.join(_CACHE, 'xla'), "Folder for compiled programs; '' for none."
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
  main: Callable[..., int | None],
  parse_flags: Callable[[Sequence[str]], list[str]] = parse_flags,
  arguments: Sequence[str] = (),
) -> None:
  """Runs a command; a `UserError` becomes one message and exit code 2, with no traceback.

  Args:
    main: does the work and gives the exit code.
    parse_flags: gives what is left of the command line after the flags.
    arguments: the names of what must be left then, which `main` takes.
  """
  if usage.asked_for(sys.argv):
    usage.show(main)
    return

  def guarded(argv: Sequence[str]) -> int | None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `draw_jax` left it for the start-up
      signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
      given = argv[1:]
      if len(given) > len(arguments):
        raise UserError(f'unknown argument {given[len(arguments)]!r}: options begin with --.')
      if len(given) < len(arguments) or '' in given:
        raise UserError(f'give {" and ".join(arguments)}: see --help.')
      _expand_paths()
      if not flags.FLAGS['verbosity'].present:
        logging.set_verbosity(logging.WARNING)
        streams.quiet_libraries()
      _use_compilation_cache()
      return _work(main, given)
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

  def lasting(argv: Sequence[str]) -> int | None:
    with streams.lasting() as out:
      code = guarded(argv)
      out.flush()
      if reason := streams.lost(out):
        print(f'error: cannot write to the standard output: {reason}.', file=sys.stderr)
        code = code or 2
    return code

  streams.open_closed()
  app.run(lasting, flags_parser=parse_flags)


def _work(main: Callable[..., int | None], arguments: Sequence[str]) -> int | None:
  try:
    with memory.explaining():
      return main(*arguments)
  except UserError:
    raise
  except Exception as error:
    given = os.environ.get('JAX_PLATFORMS')
    if given in (None, '', 'cpu') or _has_devices():
      raise
    raise UserError(
      f'JAX_PLATFORMS={given}: no such device can be used here. Leave JAX_PLATFORMS out, or set it '
      'to cpu.'
    ) from error


def _has_devices() -> bool:
  """Whether JAX finds a device; what it raises where there is none differs by the platform."""
  try:
    return bool(jax.local_devices())
  except Exception:
    return False


def _use_compilation_cache() -> None:
  """Keeps compiled programs, if there is a folder for it that can be written to."""
  folder = os.path.expanduser(_COMPILATION_CACHE.value)
  if not folder or folder.startswith('~'):
    return
  try:
    if not files.is_remote(folder):
      files.make_folder(folder)
  except UserError as error:
    if flags.FLAGS['compilation_cache'].present:
      raise UserError(f'--compilation_cache={folder}: {error}') from error
    return
  jax.config.update('jax_compilation_cache_dir', folder)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)


def _expand_paths() -> None:
  """Puts the home folder in place of ~, which a shell leaves as it is behind a =."""
  for flag in (flags.FLAGS[name] for name in _PATHS if name in flags.FLAGS):
    if flag.boolean:  # `compare` is a picture of one command, and a switch of another.
      continue
    values = flag.value if isinstance(flag.value, list) else [flag.value]
    if '' in values:  # such as a variable of the shell that is not set
      raise UserError(f'--{flag.name}= is empty: give a path, or leave it out.')
    for value in filter(files.is_remote, filter(None, values)):
      if flag.name not in _REMOTE:
        raise UserError(f'--{flag.name}={value} must be on this machine: copy it there afterwards.')
      files.place(value)  # refuses what it does not know
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
