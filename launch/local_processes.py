"""Runs a command as several processes of one run on this machine, for trying it.

    python launch/local_processes.py -n 2 -- python -m draw_jax.train \
        --config=quickstart --workdir=runs/two

Each process gets --coordinator_address, --num_processes and --process_id. Their
output is shown line by line, with the process in front. When one fails, the
others are stopped; with --restarts=N all are then started again, up to N times,
as a scheduler does. Ctrl-C and SIGTERM are passed on.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

# Seconds that processes have to end after SIGTERM when another has failed.
_GRACE = 10
# Exit code of a slip in the command, that trying again would not mend, and those of a run that was
# told to stop: its processes save together, which may take one of them longer.
_MISTAKE, _STOPPED = 2, (128 + signal.SIGINT, 128 + signal.SIGTERM)


def main() -> int:
  """Returns the exit code of the first process that failed, or 0."""
  parser = argparse.ArgumentParser(usage='%(prog)s -n N [--restarts=N] -- COMMAND ...')
  parser.add_argument('-n', type=int, required=True, help='number of processes')
  parser.add_argument('--restarts', type=int, default=0, help='how often to start all again')
  parser.add_argument('command', nargs=argparse.REMAINDER, help='what to run, after --')
  arguments = parser.parse_args()
  command = arguments.command[1:] if arguments.command[:1] == ['--'] else arguments.command
  if arguments.n < 1 or not command:
    parser.error('give at least one process and a command after --')
  for restart in range(arguments.restarts + 1):
    run = _Run(arguments.n)
    try:
      code = run.run(command)
    except OSError as error:
      parser.error(f'cannot start {command[0]}: {error.strerror}')
    if code in (0, _MISTAKE, *_STOPPED) or run.told_to_stop:
      return code
    if restart < arguments.restarts:
      _say(f'starting all processes again ({restart + 1} of {arguments.restarts})')
  return code


class _Run:
  """All processes, from their start to their end."""

  def __init__(self, num: int):
    self.num = num
    self.processes: list[subprocess.Popen] = []
    self.code = 0  # of the first that failed
    self.told_to_stop = False
    self._lock = threading.Lock()

  def run(self, command: list[str]) -> int:
    """Returns when all have ended, with the exit code of the first that failed, or 0."""
    address = f'127.0.0.1:{_free_port()}'
    for number in (signal.SIGINT, signal.SIGTERM):
      signal.signal(number, self._pass_on)
    for i in range(self.num):
      flags = (f'--coordinator_address={address}', f'--num_processes={self.num}')
      process = subprocess.Popen(
        [*command, *flags, f'--process_id={i}'],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Ctrl-C reaches this process only, which passes it on: once, not twice.
        start_new_session=True,
      )
      self.processes.append(process)
    threads = [
      threading.Thread(target=self._follow, args=(i, p)) for i, p in enumerate(self.processes)
    ]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    return self.code

  def _follow(self, index: int, process: subprocess.Popen) -> None:
    """Shows the output of one process; its failure stops the others."""
    try:
      for line in process.stdout:
        sys.stdout.write(f'[{index}] {line}')
        sys.stdout.flush()
    except BrokenPipeError:  # Whoever reads, such as `head`, has gone.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
      self._signal(signal.SIGTERM)
      process.stdout.read()  # or it would wait to be read
    code = process.wait()
    if not code:
      return
    with self._lock:
      if self.code:
        return
      self.code = code if code > 0 else 128 - code
    self._signal(signal.SIGTERM)
    if self.code not in _STOPPED:
      how = f'was ended by {signal.Signals(-code).name}' if code < 0 else f'failed with code {code}'
      _say(f'process {index} {how}' + ': the others are stopped' * (self.num > 1))
      timer = threading.Timer(_GRACE, self._signal, [signal.SIGKILL])
      timer.daemon = True
      timer.start()

  def _pass_on(self, number: int, frame) -> None:
    del frame
    self.told_to_stop = True
    self._signal(number)

  def _signal(self, number: int) -> None:
    for process in self.processes:
      with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _say(message: str) -> None:
  with contextlib.suppress(BrokenPipeError):
    print(f'local_processes: {message}', flush=True)


def _free_port() -> int:
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    return listener.getsockname()[1]


if __name__ == '__main__':
  sys.exit(main())
