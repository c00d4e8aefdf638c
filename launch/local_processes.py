"""Runs a command as several processes of one run on this machine, for trying it.

    python launch/local_processes.py -n 2 -- python -m draw_jax.train \
        --config=quickstart --workdir=runs/two

Each process gets --coordinator_address, --num_processes and --process_id. Their
output is shown line by line, with the process in front. When one fails, the
others are stopped. Ctrl-C and SIGTERM are passed on.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading


def main() -> int:
  """Returns the exit code of the first process that failed, or 0."""
  parser = argparse.ArgumentParser(usage='%(prog)s -n N -- COMMAND ...')
  parser.add_argument('-n', type=int, required=True, help='number of processes')
  parser.add_argument('command', nargs=argparse.REMAINDER, help='what to run, after --')
  arguments = parser.parse_args()
  command = arguments.command[1:] if arguments.command[:1] == ['--'] else arguments.command
  if arguments.n < 1 or not command:
    parser.error('give at least one process and a command after --')
  try:
    return _run(command, arguments.n)
  except OSError as error:
    parser.error(f'cannot start {command[0]}: {error.strerror}')


def _run(command: list[str], num: int) -> int:
  address = f'127.0.0.1:{_free_port()}'
  processes = [
    subprocess.Popen(
      [*command, f'--coordinator_address={address}', f'--num_processes={num}', f'--process_id={i}'],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      # Ctrl-C reaches this process only, which passes it on: once, not twice.
      start_new_session=True,
    )
    for i in range(num)
  ]
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: _signal(processes, number))
  codes = {}
  threads = [
    threading.Thread(target=_follow, args=(i, p, codes, processes)) for i, p in enumerate(processes)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return next((code if code > 0 else 128 - code for code in codes.values() if code), 0)


def _follow(index: int, process: subprocess.Popen, codes: dict[int, int], processes) -> None:
  """Shows the output of one process; its failure stops the others."""
  try:
    for line in process.stdout:
      sys.stdout.write(f'[{index}] {line}')
      sys.stdout.flush()
  except BrokenPipeError:  # Whoever reads, such as `head`, has gone.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _signal(processes, signal.SIGTERM)
    process.stdout.read()  # or it would wait to be read
  codes[index] = process.wait()
  if codes[index]:
    _signal(processes, signal.SIGTERM)


def _signal(processes: list[subprocess.Popen], number: int) -> None:
  for process in processes:
    with contextlib.suppress(ProcessLookupError):
      process.send_signal(number)


def _free_port() -> int:
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    return listener.getsockname()[1]


if __name__ == '__main__':
  sys.exit(main())
