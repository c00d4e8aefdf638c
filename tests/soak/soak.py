"""Runs that are killed, damaged and cramped, one after the other, and a table of them."""

import collections
import pathlib
import queue
import random
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import training_support as support

# Twenty-four steps, saved at every fifth and evaluated at two.
FLAGS = (
  *('--config.train.num_steps=24', '--config.checkpoint.every_steps=5', '--join_seconds=60'),
  *('--config.eval.every_epochs=1.334', '--config.log.every_steps=1', '--config.eval.images=1'),
)
# When a process is killed, and what else is done to a run.
KILLS = ('at start-up', 'in a step', 'at evaluation', 'in saving')
# A kill at start-up that comes before the processes know of each other: until --join_seconds have
# passed the others cannot tell it from one that is slow.
_UNJOINED = 'before joining'
_KILLED = (*KILLS, _UNJOINED)
OTHERS = ('file damaged', 'disk full')
_KILLS_A_RUN = 6
# What ends an attempt that nothing ends.
_TIMEOUT = 600


class Attempt:
  """The processes of one run, from their start to their end."""

  def __init__(self, experiment, workdir, num: int, most_bytes: int | None = None):
    """Starts them; with `most_bytes` no file can grow beyond that, as on a full disk."""
    flags = [*FLAGS]
    if num > 1:
      with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{listener.getsockname()[1]}'
      flags += [f'--coordinator_address={address}', f'--num_processes={num}']

    self.started = time.monotonic()
    self.processes = [
      subprocess.Popen(
        support.command(experiment, workdir, *flags, *([f'--process_id={i}'] * (num > 1))),
        env=support.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
      for i in range(num)
    ]
    if most_bytes is not None:
      for process in self.processes:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    self.output: list[list[str]] = [[] for _ in self.processes]
    self._lines: queue.Queue[str | None] = queue.Queue()
    self._ends: dict[int, float] = {}
    self._threads = [
      threading.Thread(target=self._follow, args=(i,), daemon=True) for i in range(num)
    ]
    for thread in self._threads:
      thread.start()

  def lines(self) -> Iterator[str]:
    """What process 0 prints, as it comes."""
    while (line := self._lines.get(timeout=_TIMEOUT)) is not None:
      yield line

  def kill(self, index: int) -> float | None:
    """Kills one process; gives the time, or None if it was at its end."""
    if self.processes[index].poll() is not None:
      return None
    self.processes[index].kill()
    return time.monotonic()

  def end(self) -> list[int]:
    """Waits for all; gives their exit codes."""
    for thread in self._threads:
      thread.join(_TIMEOUT)
    if any(thread.is_alive() for thread in self._threads):
      for process in self.processes:
        process.kill()
      raise AssertionError(f'it did not end: {self.said()}')
    return [process.returncode for process in self.processes]

  def ended(self) -> float:
    """When the last process had ended."""
    return max(self._ends.values())

  def said(self) -> str:
    return '\n'.join(
      f'[{i}] ' + ''.join([*lines[:5], *lines[-40:]]) for i, lines in enumerate(self.output)
    )

  def _follow(self, index: int) -> None:
    process = self.processes[index]
    for line in process.stdout:
      self.output[index].append(line)
      if index == 0:
        self._lines.put(line)
    process.wait()
    self._ends[index] = time.monotonic()
    if index == 0:
      self._lines.put(None)


class Soak:
  """Many attempts with one number of processes."""

  def __init__(self, folder: pathlib.Path, num: int, seed: int, say: Callable[[str], None]):
    self.folder, self.num, self.say = folder / str(num), num, say
    self.folder.mkdir()
    self.rng = random.Random(seed)
    self.experiment = support.write_experiment(self.folder)
    self.undisturbed = self.folder / 'undisturbed'
    attempt = Attempt(self.experiment, self.undisturbed, num)
    self.first_step = None  # seconds until it
    for line in attempt.lines():
      if line.startswith('step ') and self.first_step is None:
        self.first_step = time.monotonic() - attempt.started
    assert attempt.end() == [0] * num, attempt.said()
    # By what was done: how often, and the seconds until the last process had ended.
    self.tried: dict[str, list[float]] = collections.defaultdict(list)
    self.runs = self.whole = self.left_behind = 0  # begun, ended as the undisturbed one, ...

  def kills(self) -> int:
    """How many there were."""
    return sum(len(self.tried[what]) for what in _KILLED)

  def go(self, most: int, others: tuple[str, ...] = OTHERS) -> None:
    """Disturbs a further run until it is through, with at most so many kills."""
    self.runs += 1
    # Each kind before any comes again.
    turn = (self.runs - 1) * _KILLS_A_RUN
    plan = [KILLS[(turn + i) % len(KILLS)] for i in range(min(most, _KILLS_A_RUN))]
    plan += others
    self.rng.shuffle(plan)
    self._run(plan)

  def _run(self, plan: list[str]) -> None:
    """One run with these disturbances, and its end compared."""
    workdir = self.folder / f'run{self.runs}'
    for what in plan:
      self.say(f'{self.num} process(es), run {self.runs}: {what}')
      if (workdir / 'result.json').exists():
        break
      if what == 'file damaged':
        self._damage(workdir)
      elif what == 'disk full':
        self._fill(workdir)
      else:
        self._kill(workdir, what)
    self.say(f'{self.num} process(es), run {self.runs}: to its end')
    attempt = Attempt(self.experiment, workdir, self.num)
    assert attempt.end() == [0] * self.num, f'{plan}: {attempt.said()}'
    support.assert_same_run(workdir, self.undisturbed)
    shutil.rmtree(workdir)
    self.whole += 1

  def _kill(self, workdir: pathlib.Path, what: str) -> None:
    """Kills one process at such a moment, if there is one; the others must end by themselves."""
    attempt = Attempt(self.experiment, workdir, self.num)
    victim = self.rng.randrange(self.num)
    killed = None
    if what == 'at start-up':
      time.sleep(self.rng.uniform(0, self.first_step))
      killed = attempt.kill(victim)
    else:
      begin = {
        'in a step': lambda line: line.startswith('step ') and self.rng.random() < 0.3,
        # Its row is written before the evaluation of a step, and after it that of the evaluation.
        'at evaluation': lambda line: line.startswith(('step 12/24  epoch', 'step 24/24  epoch')),
        'in saving': lambda line: line.startswith('step ') and '  valid: ' in line,
      }[what]
      if any(map(begin, attempt.lines())):
        time.sleep(self.rng.choice([0, 0, 0.01, 0.03, 0.1]))
        killed = attempt.kill(victim)
    codes = attempt.end()
    if killed is None or codes[victim] != -signal.SIGKILL:
      assert codes == [0] * self.num, attempt.said()
      return
    for index, code in enumerate(codes):
      if index != victim and code:  # It may have been through.
        said = [x for x in attempt.output[index] if x.startswith('error: ')]
        assert code == 1 and len(said) == 1, attempt.said()
        if what == KILLS[0] and 'did not join' in said[0]:
          what = _UNJOINED
        else:
          assert f'process {victim}' in said[0], attempt.said()
    self.tried[what].append(attempt.ended() - killed)
    self.left_behind += bool(list(workdir.glob('checkpoints/*tmp*')))

  def _damage(self, workdir: pathlib.Path) -> None:
    """Changes, cuts or empties a file of the newest of several checkpoints."""
    found = sorted(workdir.glob('checkpoints/[0-9]*'), key=lambda path: path.name.zfill(9))
    found = [path for path in found if path.name.isdigit()]
    if len(found) < 2:
      return
    path = self.rng.choice([p for p in sorted(found[-1].rglob('*')) if p.is_file()])
    content = bytearray(path.read_bytes())
    place = self.rng.randrange(max(len(content), 1))
    how = self.rng.choice(['changed', 'cut', 'emptied']) if content else 'emptied'
    if how == 'changed':
      content[place] ^= 1 << self.rng.randrange(8)
    path.write_bytes({'changed': content, 'cut': content[:place], 'emptied': b''}[how])
    self.tried['file damaged'].append(float('nan'))

  def _fill(self, workdir: pathlib.Path) -> None:
    """Lets no file grow beyond a few kilobytes, as far as this run gets."""
    attempt = Attempt(self.experiment, workdir, self.num, self.rng.randrange(1000, 20_000))
    codes = attempt.end()
    if any(codes):
      assert codes == [2] * self.num, attempt.said()
      assert any('ake room' in line for line in attempt.output[0]), attempt.said()
      self.tried['disk full'].append(float('nan'))


def table(soaks: list[Soak]) -> str:
  """What was tried; all of it was survived, or an assertion would have failed."""
  rows = ['processes  what            times  lost  seconds until all had ended: median, most']
  for soak in soaks:
    for what in (*_KILLED, *OTHERS):
      seconds = soak.tried[what]
      ends = f'{np.median(seconds):.2f}, {max(seconds):.2f}' if seconds and what in _KILLED else ''
      if seconds:
        rows.append(f'{soak.num:<10} {what:<15} {len(seconds):>5}     0  {ends}')
    rows.append(
      f'{soak.num:<10} {soak.whole} of {soak.runs} runs were through, each to the same end '
      f'bit by bit as one undisturbed; {soak.left_behind} kills left half a checkpoint'
    )
  return '\n'.join(rows)
