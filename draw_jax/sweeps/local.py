"""The runs of a sweep: read from an experiment, checked, and run as processes of their own."""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import runpy
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import config_dict

from draw_jax import config as config_lib
from draw_jax import sweeps
from draw_jax.cli import config_errors, config_flag
from draw_jax.errors import UserError
from draw_jax.training import workdir as workdir_lib

_PAUSE = 0.2  # seconds between two looks at the processes
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass
class Run:
  """One run of a sweep, and how far it is.

  Attributes:
    name: from its overrides; that of its folder.
    overrides: what is special about it, 'section.field' to a value.
    workdir: its folder.
    arguments: of `draw_jax.train`.
    config: what these arguments say.
    state: 'waiting', 'running', 'stopping', 'finished', 'stopped' or 'failed'.
    problem: why it failed.
    begin: size of its log before it was started.
  """

  name: str
  overrides: sweeps.Overrides
  workdir: pathlib.Path
  arguments: list[str]
  config: config_dict.ConfigDict
  state: str = 'waiting'
  problem: str = ''
  begin: int = 0

  @property
  def log(self) -> pathlib.Path:
    """What the run printed, at all its starts."""
    return self.workdir / 'log.txt'

  @property
  def result(self) -> dict[str, Any] | None:
    """How it ended; None if it did not."""
    return workdir_lib.read_end(self.workdir, self.config)

  @property
  def is_finished(self) -> bool:
    """Whether all its steps are done."""
    result = self.result
    return result is not None and result['step'] >= result['num_steps']

  def last_lines(self, num: int, beginning: str = '') -> list[str]:
    """The last lines with a beginning that it printed since its last start."""
    if not self.log.exists():
      return []
    with self.log.open('rb') as file:
      file.seek(max(self.begin, file.seek(0, os.SEEK_END) - 4096))
      lines = file.read().decode(errors='replace').splitlines()
    return [line for line in lines if line.strip() and line.startswith(beginning)][-num:]


def make(
  experiment: str,
  common: Mapping[str, Any],
  workdir: str,
  more: Sequence[str] = (),
  words: Sequence[str] = (),
) -> list[Run]:
  """The runs of an experiment's sweep, each of them checked.

  Args:
    experiment: its name or file, with its variant if there is one: 'FILE:VARIANT'.
    common: overrides for all of them.
    workdir: each run has a folder in it.
    more: further arguments of `draw_jax.train` for all of them.
    words: 'FIELD=VALUE,VALUE,...' of the command line, in place of the experiment's `get_sweep()`.
  """
  path = config_lib.find_experiment(experiment).partition(':')[0]
  sweep = sweeps.from_words(words) if words else _read(path)
  runs = []
  for name, overrides in zip(sweeps.names(sweep), sweep, strict=True):
    if twice := sorted(common.keys() & overrides.keys()):
      raise UserError(
        f'the sweep sets {twice[0]}: it cannot be set for all runs by --config.{twice[0]} too.'
      )
    folder = pathlib.Path(workdir) / name
    arguments = [
      *(f'--config={experiment}', f'--workdir={folder}', *more),
      *(f'--config.{field}={value}' for field, value in {**common, **overrides}.items()),
    ]
    runs.append(Run(name, overrides, folder, arguments, _check(name, overrides, arguments)))
  return runs


def _read(path: str) -> list[sweeps.Overrides]:
  try:
    function = runpy.run_path(path).get('get_sweep')
    sweep = function() if function else None
  except UserError:
    raise
  except Exception as error:
    raise UserError(f'get_sweep() of {path} fails: {error!r}.') from error
  if function is None:
    raise UserError(
      f'{path} has no get_sweep(): write one, as draw_jax/sweeps/overrides.py shows, or give '
      'values such as --sweep.optimizer.learning_rate=1e-3,2e-3.'
    )
  if not isinstance(sweep, list) or not all(isinstance(run, dict) for run in sweep) or not sweep:
    raise UserError(f'get_sweep() of {path} must return a list of dicts, not {sweep!r}.')
  return sweep


def _check(name: str, overrides: sweeps.Overrides, arguments: list[str]):
  """The config of a run, read from its arguments as `draw_jax.train` will do it."""
  if nothing := [field for field, value in overrides.items() if value is None]:
    raise UserError(f'run {name}: {nothing[0]} cannot be set to None, which is no word for flags.')
  argv = ['train', *(word for word in arguments if word.startswith('--config'))]
  values = flags.FlagValues()
  holder = config_flag.define('', values, argv)
  try:
    values(argv)
    config_lib.validate(holder.value)
  except UserError as error:
    raise UserError(f'run {name}: {error}') from error
  except Exception as error:  # The flags of a config file raise whatever they come upon.
    raise UserError(f'run {name}: {config_errors.explain(argv, error)}') from error
  return holder.value


class _Interrupt:
  """Counts the signals that ask to end; the handlers of before come back afterwards."""

  def __init__(self):
    self.signal, self.count = None, 0

  def __enter__(self):
    # What is ignored, as under nohup, stays so.
    numbers = [n for n in _SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    self._before = {number: signal.signal(number, self._caught) for number in numbers}
    return self

  def _caught(self, number: int, frame) -> None:
    del frame
    self.signal, self.count = number, self.count + 1

  def __exit__(self, *error):
    for number, handler in self._before.items():
      signal.signal(number, handler)


def run_all(
  runs: Sequence[Run],
  num_local: int,
  program: Sequence[str],
  show: Callable[[Sequence[Run]], None],
) -> int | None:
  """Runs what is not finished yet, some at a time, and goes on when one fails.

  Args:
    runs: whose `state` and `problem` are kept up to date.
    num_local: how many at a time. Each has its share of the cores.
    program: to which the arguments of a run are given.
    show: is called with the runs again and again.

  Returns:
    The signal that ended it, after which all processes have saved and ended.
  """
  for run in runs:
    run.state = 'finished' if run.is_finished else 'waiting'
  slots: list[tuple[Run, subprocess.Popen] | None] = [None] * num_local
  told = 0
  with _Interrupt() as interrupt:
    while True:
      for slot, running in enumerate(slots):
        if running and running[1].poll() is not None:
          _end(*running, interrupt.signal is not None)
          slots[slot] = None
        waiting = [run for run in runs if run.state == 'waiting']
        if slots[slot] is None and waiting and not interrupt.signal:
          slots[slot] = _start(waiting[0], program, _cores(slot, num_local))
      if told < interrupt.count:
        told = interrupt.count
        # Training saves on the first signal; whoever sends a second cannot wait.
        _signal(slots, signal.SIGTERM if told == 1 else signal.SIGKILL)
      show(runs)
      waiting = any(run.state == 'waiting' for run in runs)
      if not any(slots) and (interrupt.signal or not waiting):
        return interrupt.signal
      time.sleep(_PAUSE)


def _start(
  run: Run, program: Sequence[str], cores: Sequence[int]
) -> tuple[Run, subprocess.Popen] | None:
  """Starts a run; None if that is not possible, which its state then says."""
  try:
    run.workdir.mkdir(parents=True, exist_ok=True)
    with run.log.open('ab') as log:
      # The process keeps the lock with its standard output, even if this one is killed.
      fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
      run.begin = log.tell()
      process = subprocess.Popen(
        [*program, *run.arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        # Ctrl-C reaches this process only, which passes it on: once, not twice.
        start_new_session=True,
      )
  except BlockingIOError:
    run.state, run.problem = 'failed', 'another process is at work on it'
    return None
  except OSError as error:
    run.state, run.problem = 'failed', f'cannot be started: {error}'
    return None
  if cores:
    with contextlib.suppress(ProcessLookupError):
      os.sched_setaffinity(process.pid, cores)
  run.state = 'running'
  return run, process


def _end(run: Run, process: subprocess.Popen, stopping: bool) -> None:
  code = process.returncode
  if run.is_finished:
    run.state = 'finished'
  elif stopping:
    run.state = 'stopped'
  else:
    run.state = 'failed'
    run.problem = f'exit code {code}' if code >= 0 else f'ended by {signal.Signals(-code).name}'


def _cores(slot: int, num: int) -> list[int]:
  """The share of one of `num` processes; nothing where they cannot be divided."""
  cores = sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else []
  if num == 1 or len(cores) < num:
    return []
  return cores[len(cores) * slot // num : len(cores) * (slot + 1) // num]


def _signal(slots, number: int) -> None:
  for running in slots:
    if running:
      running[0].state = 'stopping'
      running[1].send_signal(number)
