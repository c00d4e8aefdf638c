"""The script for SLURM, with stand-ins for its commands; and the style of all scripts."""

import os
import pathlib
import shlex
import shutil
import socket
import sys

import pytest
from launch_support import JOIN, LAUNCH, joined, run, write_stub
from training_support import ROOT, environment

# Starts the processes that SLURM would, with the variables that it would set.
SRUN = """#!/usr/bin/env bash
printf '%s\\n' "$@" >"$STUB/srun"
while [[ $1 == --* ]]; do shift; done
for ((i = 0; i < SLURM_NTASKS; i++)); do
  SLURM_STEP_NODELIST=$SLURM_JOB_NODELIST SLURM_PROCID=$i \
    SLURM_LOCALID=$((i % SLURM_NTASKS_PER_NODE)) "$@" &
  pids+=($!)
done
worst=0
for pid in "${pids[@]}"; do
  wait "$pid" || { code=$?; ((code <= worst)) || worst=$code; }
done
exit $worst
"""
SCONTROL = """#!/usr/bin/env bash
case "$1 $2" in
  'show hostnames') [ "$3" = "$SLURM_JOB_NODELIST" ] && printf '%s\\n' $STUB_HOSTS ;;
  'show job') echo "JobId=$3 JobName=draw JobState=$STUB_STATE Reason=None" ;;
  requeue*) echo "$2" >>"$STUB/requeued" ;;
esac
"""


def test_shellcheck():
  """Those of the project: an environment in the checkout has scripts of its own."""
  listed = run(['git', '-C', ROOT, 'ls-files', '*.sh', '*.sbatch'])
  if listed.returncode:
    pytest.skip('no checkout of git')
  scripts = [ROOT / name for name in listed.stdout.splitlines()]
  assert len(scripts) >= 6
  tool = pathlib.Path(sys.executable).with_name('shellcheck')
  done = run([tool, '--shell=bash', '--external-sources', '--source-path=SCRIPTDIR', *scripts])
  assert done.returncode == 0, done.stdout


class Slurm:
  """A cluster of one job, and what reached it."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    write_stub(folder / 'bin' / 'srun', SRUN)
    write_stub(folder / 'bin' / 'scontrol', SCONTROL)
    # Its name must survive in the script, as must those in the commands.
    self.environment = folder / 'my environment'
    write_stub(self.environment / 'bin' / 'python', f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    # As SLURM does, from a copy that has nothing beside it.
    self.script = shutil.copy(LAUNCH / 'slurm.sbatch', folder / 'slurm_script')

  def submit(self, *command, nodes: int = 1, tasks: int = 1, gpus: int = 0, **more):
    variables = {
      'VIRTUAL_ENV': self.environment,
      'SLURM_JOB_ID': 8193,
      'SLURM_JOB_NODELIST': 'rack[1-2]-gpu',
      'SLURM_NTASKS': nodes * tasks,
      'SLURM_NTASKS_PER_NODE': tasks,
      'SLURM_CPUS_PER_TASK': 8,
      'STUB': self.folder,
      'STUB_HOSTS': 'rack1-gpu rack2-gpu',
      'STUB_STATE': 'RUNNING',
      **({'SLURM_GPUS_ON_NODE': gpus} if gpus else {}),
      **more,
    }
    base = {k: v for k, v in environment().items() if k not in ('VIRTUAL_ENV', 'CONDA_PREFIX')}
    variables = {k: str(v) for k, v in variables.items() if v is not None}
    path = os.pathsep.join([str(self.folder / 'bin'), base['PATH']])
    return run(['bash', self.script, *command], cwd=ROOT, env={**base, **variables, 'PATH': path})

  def seen(self, **more) -> list[dict[str, str]]:
    """The environment of each process."""
    done = self.submit('sh', '-c', 'env >"$STUB/env.$SLURM_PROCID"', **more)
    assert done.returncode == 0, done.stderr
    texts = [path.read_text() for path in sorted(self.folder.glob('env.*'))]
    return [dict(line.split('=', 1) for line in text.splitlines() if '=' in line) for text in texts]

  @property
  def requeued(self) -> str:
    path = self.folder / 'requeued'
    return path.read_text() if path.exists() else ''


@pytest.fixture
def slurm(tmp_path):
  return Slurm(tmp_path)


def free_job() -> int:
  """The number of a job whose port is free; the highest are the least used."""
  for job in range(4095, 0, -1):
    with socket.socket() as listener:
      if listener.connect_ex(('127.0.0.1', 61440 + job)):
        return job
  raise AssertionError('no free port')


def test_slurm_processes_find_each_other(slurm):
  flags = ('--config=mnist', '--workdir=runs/two words')
  cluster = {'SLURM_JOB_ID': free_job(), 'STUB_HOSTS': 'localhost', 'tasks': 2, 'gpus': 2}
  done = slurm.submit('python', '-c', JOIN, *flags, **cluster)
  assert done.returncode == 0, done.stderr
  found = joined(done.stdout)
  # Each its number, their count, the GPU it may see, and the flags as they were given.
  assert found == [[0, 2, '0', [*flags]], [1, 2, '1', [*flags]]]


def test_slurm_coordinator_and_process_count(slurm):
  seen = slurm.seen(nodes=2, tasks=4, gpus=4)
  assert len(seen) == 8
  assert {e['JAX_COORDINATOR_ADDRESS'] for e in seen} == {'rack1-gpu:61441'}
  assert not any('JAX_LOCAL_DEVICE_IDS' in e for e in seen)
  flags = (slurm.folder / 'srun').read_text().splitlines()
  assert flags[:4] == ['--kill-on-bad-exit=0', '--wait=60', '--cpus-per-task=8', 'sh']


def test_slurm_one_process_a_node_has_all_gpus(slurm):
  assert [e['JAX_LOCAL_DEVICE_IDS'] for e in slurm.seen(nodes=2, gpus=4)] == ['0,1,2,3'] * 2


def test_slurm_array_takes_a_line_each(slurm):
  commands = slurm.folder / 'commands.txt'
  program = 'import sys; print(sys.argv[1:])'
  lines = [shlex.join(['python', '-c', program, f'--x={x} {x}']) for x in 'ab']
  commands.write_text('\n'.join(lines) + '\n')
  done = slurm.submit(commands, SLURM_ARRAY_TASK_ID=2)
  assert (done.stdout, done.stderr) == ("['--x=b b']\n", '')


@pytest.mark.parametrize(
  ('code', 'state', 'again'),
  [
    (143, 'RUNNING', '8193\n'),  # the time limit or preemption
    (143, 'CANCELLED', ''),
    (143, 'PENDING', ''),  # SLURM did it already
    (1, 'RUNNING', ''),
    (0, 'RUNNING', ''),
  ],
)
def test_slurm_requeues_what_was_stopped(slurm, code, state, again):
  done = slurm.submit('sh', '-c', f'exit {code}', STUB_STATE=state)
  assert done.returncode == code
  assert slurm.requeued == again


def test_slurm_requeues_one_task_of_an_array(slurm):
  """The number of the last task is that of the array, which would queue all of them again."""
  (slurm.folder / 'commands.txt').write_text("sh -c 'exit 143'\n")
  slurm.submit(slurm.folder / 'commands.txt', SLURM_ARRAY_JOB_ID=8193, SLURM_ARRAY_TASK_ID=1)
  assert slurm.requeued == '8193_1\n'


@pytest.mark.parametrize(
  ('command', 'more', 'message'),
  [
    (['true'], {'SLURM_JOB_ID': None}, 'submit this to SLURM'),
    (['true'], {'VIRTUAL_ENV': None}, 'no Python in EDIT_ME: activate the environment'),
    ([], {}, 'no command'),
    ([ROOT / 'README.md'], {}, 'give sbatch --array=1-'),
    (['python', '-m', 'x'], {'SLURM_ARRAY_TASK_ID': 1}, "a command a line, not 'python -m x'"),
    ([ROOT / 'LICENSE'], {'SLURM_ARRAY_TASK_ID': 9999}, 'line 9999 of'),
    (['true'], {'tasks': 2, 'gpus': 4}, '2 processes on a node of 4 GPUs'),
  ],
)
def test_slurm_slips(slurm, command, more, message):
  done = slurm.submit(*command, **more)
  assert done.returncode == 2
  assert done.stderr.startswith('error: ') and message in done.stderr
  assert done.stderr.count('\n') == 1
  assert not (slurm.folder / 'srun').exists()


def test_slurm_directives():
  lines = (LAUNCH / 'slurm.sbatch').read_text().splitlines()
  end = next(i for i, line in enumerate(lines) if line and not line.startswith('#'))
  flags = {line.removeprefix('#SBATCH ') for line in lines[:end] if line.startswith('#SBATCH')}
  # To the processes (no B:), in time to save; never started anew by another script.
  assert {'--signal=TERM@120', '--requeue', '--open-mode=append'} <= flags
  assert {'--partition=EDIT_ME', '--account=EDIT_ME'} <= flags
  # sbatch would not read them there.
  assert not any(line.startswith('#SBATCH') for line in lines[end:])
