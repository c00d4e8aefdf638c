"""Two real processes that talk over the loopback interface."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import training_support as support

from draw_jax.training import checkpoint, run_log

LAUNCHER = support.ROOT / 'launch' / 'local_processes.py'
# With a constant rate the compiled program is the same for any length.
CONSTANT = '--config.optimizer.schedule=constant'
WAIT = '--join_seconds=200'  # The machine may be busy.
FLAGS = ('--config.train.num_steps=10', '--config.log.every_steps=1', CONSTANT)


@pytest.fixture(scope='module')
def experiment(tmp_path_factory):
  return support.write_experiment(tmp_path_factory.mktemp('experiment'))


def launch(command, num: int = 2, more=()) -> subprocess.Popen:
  return subprocess.Popen(
    [sys.executable, str(LAUNCHER), '-n', str(num), *more, '--', *command],
    env=support.environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


@pytest.fixture(scope='module')
def two(experiment, tmp_path_factory) -> tuple[pathlib.Path, str]:
  """The workdir of a run of two processes, and what they said."""
  workdir = tmp_path_factory.mktemp('undisturbed') / 'two'
  process = launch(support.command(experiment, workdir, WAIT, *FLAGS))
  output = process.communicate(timeout=300)[0]
  assert process.returncode == 0, output
  return workdir, output


def test_same_losses_as_in_one_process(experiment, two, tmp_path):
  workdir, output = two
  assert '[0] devices   2 x cpu, 2 process(es)' in output
  assert '[1] step' not in output  # only process 0 prints
  done = support.run(experiment, tmp_path / 'one', *FLAGS)
  assert done.returncode == 0, done.stderr
  one, both = run_log.read(tmp_path / 'one'), run_log.read(workdir)
  assert [row['step'] for row in both] == [*range(1, 11), 10]
  for name in ('bound', 'kl', 'reconstruction'):
    np.testing.assert_allclose(
      [row[name] for row in both], [row[name] for row in one], rtol=1e-6, atol=1e-6
    )
  # What two processes saved, one can read.
  ours, theirs = (checkpoint.load(path).params for path in (workdir, tmp_path / 'one'))
  np.testing.assert_allclose(ours['canvas'], theirs['canvas'], atol=1e-6)


def test_after_a_kill_all_start_again_and_nothing_is_lost(experiment, two, tmp_path):
  process = launch(support.command(experiment, tmp_path, WAIT, *FLAGS), more=['--restarts=1'])
  children = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children')
  if not children.exists():
    process.terminate()
    pytest.skip('the system does not tell the children of a process')
  for line in process.stdout:
    if line.startswith('[0] step 8/'):  # One was saved at 7.
      break
  os.kill(int(children.read_text().split()[1]), signal.SIGKILL)
  output = process.communicate(timeout=300)[0]
  assert process.returncode == 0, output
  assert 'local_processes: process 1 was ended by SIGKILL: the others are stopped' in output
  assert 'local_processes: starting all processes again (1 of 1)' in output
  support.assert_same_run(tmp_path, two[0])


def test_sigterm_stops_both_at_the_same_step(experiment, tmp_path):
  flags = ('--config.train.num_steps=100000', CONSTANT, WAIT)
  process = launch(support.command(experiment, tmp_path, *flags))
  for line in process.stdout:
    if line.startswith('[0] step 20/'):
      break
  process.send_signal(signal.SIGTERM)
  output = process.communicate(timeout=300)[0]
  assert process.returncode == 128 + signal.SIGTERM
  step = checkpoint.load(tmp_path, 'latest').step
  assert f'[0] stopped   by SIGTERM after {step} of 100000 steps' in output


def test_failure_of_one_stops_the_other(tmp_path):
  program = (
    'import sys, time\n'
    'if "--process_id=1" in sys.argv: print("failing"); sys.exit(3)\n'
    'time.sleep(100)'
  )
  process = launch([sys.executable, '-c', program])
  output = process.communicate(timeout=60)[0]
  assert process.returncode == 3
  reason = 'local_processes: process 1 failed with code 3: the others are stopped\n'
  assert output == '[1] failing\n' + reason


def test_one_that_does_not_heed_sigterm_is_killed(monkeypatch, capsys):
  spec = importlib.util.spec_from_file_location('local_processes', LAUNCHER)
  launcher = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(launcher)
  monkeypatch.setattr(launcher, '_GRACE', 0.1)
  program = (
    'import os, signal, sys, time\n'
    'signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
    'if "--process_id=1" in sys.argv: os.kill(os.getpid(), signal.SIGKILL)\n'
    'time.sleep(100)'
  )
  handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
  try:
    assert launcher._Run(2).run([sys.executable, '-c', program]) == 128 + signal.SIGKILL
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler)
  assert 'process 1 was ended by SIGKILL' in capsys.readouterr().out


def test_restarts(tmp_path):
  program = (
    'import pathlib, sys\n'
    'path = pathlib.Path(sys.argv[1], sys.argv[-1])\n'
    'tried = path.exists() and len(path.read_text())\n'
    'path.write_text("x" * (tried + 1))\n'
    'sys.exit(5 if "--process_id=1" in sys.argv and tried < 2 else 0)'
  )
  command = [sys.executable, '-c', program, str(tmp_path)]
  process = launch(command, more=['--restarts=1'])
  output = process.communicate(timeout=60)[0]
  assert process.returncode == 5
  assert output.count('process 1 failed with code 5: the others are stopped') == 2
  assert output.count('starting all processes again (1 of 1)') == 1
  process = launch(command, more=['--restarts=1'])  # The third attempt succeeds.
  assert (process.communicate(timeout=60)[0], process.returncode) == ('', 0)


def test_a_slip_is_not_tried_again():
  process = launch([sys.executable, '-c', 'import sys; sys.exit(2)'], more=['--restarts=3'])
  assert 'starting' not in process.communicate(timeout=60)[0]
  assert process.returncode == 2


def test_a_reader_that_goes_stops_them():
  # Process 1 is the slower to start, so that to wait for a line of 0 alone would not do.
  program = (
    'import os, signal, sys, time\n'
    'if "--process_id=1" in sys.argv: time.sleep(1)\n'
    'signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n'
    'while True: print("line", flush=True); time.sleep(0.01)'
  )
  process = launch([sys.executable, '-c', program])
  waiting = {'[0] line\n', '[1] line\n'}
  while waiting:
    line = process.stdout.readline()
    assert line, 'it ended before both had printed'
    waiting.discard(line)
  process.stdout.close()
  assert process.wait(timeout=60) == 7


def test_nothing_to_run():
  process = launch([])
  assert 'give at least one process and a command' in process.communicate()[0]
  assert process.returncode == 2


def test_a_program_that_is_not_there():
  process = launch(['no_such_program'])
  output = process.communicate()[0]
  assert 'error: cannot start no_such_program: No such file or directory' in output
  assert 'Traceback' not in output
  assert process.returncode == 2
