"""The script for Cloud TPU, with a stand-in for gcloud."""

import os
import pathlib
import shlex
import shutil
import signal
import subprocess

import pytest
from launch_support import LAUNCH, write_stub
from training_support import ROOT

# Two workers, whose homes are folders.
GCLOUD = """#!/usr/bin/env bash
echo "$*" >>"$STUB/gcloud"
for argument; do
  case $argument in
    --worker=all) workers='0 1' ;;
    --worker=*) workers=${argument#*=} ;;
    --command=*) command=${argument#*=} ;;
  esac
done
for worker in ${workers:-}; do
  case $4 in
    scp) cp "$5" "$STUB/home$worker/${6#*:}" ;;
    ssh) (cd "$STUB/home$worker" && HOME=$PWD bash -c "$command") || exit ;;
  esac
done
"""
RECORD = """#!/usr/bin/env bash
echo "$*" >>"$HOME/$(basename "$0")"
"""
SETTINGS = {'TPU_PROJECT': 'my-project', 'TPU_ZONE': 'here-1', 'TPU_BUCKET': 'gs://results'}


class Tpu:
  """Two workers, in folders of this machine."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    write_stub(folder / 'bin' / 'gcloud', GCLOUD)
    write_stub(folder / 'bin' / 'gcsfuse', RECORD)
    for worker in range(2):
      write_stub(folder / f'home{worker}' / '.local' / 'bin' / 'uv', RECORD)

  def start(self, *arguments, **more) -> subprocess.Popen:
    folders = {'STUB': str(self.folder), 'TMPDIR': str(self.folder)}
    path = os.pathsep.join([str(self.folder / 'bin'), os.environ['PATH']])
    return subprocess.Popen(
      ['bash', LAUNCH / 'tpu_vm.sh', *arguments],
      cwd=self.folder,
      env={**os.environ, **SETTINGS, **folders, **more, 'PATH': path},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  def __call__(self, *arguments, **more) -> subprocess.CompletedProcess:
    process = self.start(*arguments, **more)
    output = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, *output)

  def read(self, name: str) -> list[str]:
    """What both workers have in a file."""
    return [(self.folder / f'home{worker}' / name).read_text() for worker in range(2)]


@pytest.fixture
def tpu(tmp_path):
  return Tpu(tmp_path)


def test_tpu_dry_run(tpu):
  flags = ['--project=my-project', '--zone=here-1']
  vm, remote = ['gcloud', 'compute', 'tpus', 'tpu-vm'], 'bash draw_jax/launch/tpu_worker.sh'

  def ssh(worker, command):
    return [*vm, 'ssh', 'draw', f'--worker={worker}', f'--command={command}', *flags]

  def shown(*arguments):
    done = tpu('--dry_run', *arguments)
    assert (done.returncode, done.stderr) == (0, '')
    return [shlex.split(line) for line in done.stdout.splitlines()]

  kind = ['--accelerator-type=v5litepod-16', '--version=v2-alpha-tpuv5-lite']
  assert shown('create', '--spot') == [[*vm, 'create', 'draw', *kind, '--spot', *flags]]
  make, pack, *others, last = shown('install')
  folder = make[-1]
  assert make == ['mkdir', '--mode=700', folder] and folder.startswith(f'{tpu.folder}/tmp.')
  copy = [*vm, 'scp', f'{folder}/draw_jax.tar.gz', 'draw:draw_jax.tar.gz', '--worker=all']
  assert pack[:4] == ['tar', '--create', '--gzip', f'--file={folder}/draw_jax.tar.gz']
  assert [*copy, *flags] in others and ['rm', '--recursive', folder] in others
  assert last == ssh('all', f'{remote} install')
  start, log = shown('run', 'python', '-c', 'print("a b")')
  # Quoted once for this shell and once for that of the worker.
  [command] = [part.removeprefix('--command=') for part in start if part.startswith('--command=')]
  expected = [*remote.split(), 'start', 'results', 'python', '-c', 'print("a b")']
  assert shlex.split(command) == expected
  assert start == ssh('all', command)
  assert [log] == shown('log') == [ssh(0, f'{remote} log')]
  assert shown('stop') == [ssh('all', f'{remote} stop')]
  rsync = ['gcloud', 'storage', 'rsync', '--recursive', 'gs://results/mnist', 'runs/mnist']
  assert shown('fetch', 'runs/mnist') == [['mkdir', '-p', 'runs/mnist'], rsync]
  assert shown('delete') == [[*vm, 'delete', 'draw', *flags]]
  assert not (tpu.folder / 'gcloud').exists()


@pytest.mark.parametrize('setting', SETTINGS)
def test_tpu_unedited(tpu, setting):
  done = tpu('create', **{setting: 'EDIT_ME'})
  assert (done.returncode, done.stdout) == (2, '')
  assert done.stderr == f'error: set {setting}, at the top of launch/tpu_vm.sh or before it.\n'
  assert not (tpu.folder / 'gcloud').exists()


@pytest.mark.parametrize('arguments', [[], ['start'], ['run'], ['fetch'], ['fetch', '/etc']])
def test_tpu_slips(tpu, arguments):
  done = tpu(*arguments)
  assert done.returncode == 2
  assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
  assert not (tpu.folder / 'gcloud').exists()


def test_tpu_workers(tpu):
  assert (tpu('log').returncode, tpu('install').returncode) == (127, 0)
  assert not list(tpu.folder.glob('tmp.*'))
  script = (ROOT / 'draw_jax' / 'train.py').read_text()
  assert tpu.read('draw_jax/draw_jax/train.py') == [script, script]
  assert all('jax[tpu]' in text and '--editable .[digits]' in text for text in tpu.read('uv'))

  done = tpu('run', 'sh', '-c', 'echo "$1" $((6 * 7)); exit 3', '_', 'two  words')
  assert (done.returncode, done.stdout) == (3, 'two  words 42\n')
  assert tpu.read('draw_jax/run.code') == ['3\n', '3\n']
  assert all('--metadata-cache-ttl-secs=0' in text for text in tpu.read('gcsfuse'))
  assert all(text.endswith(' results runs\n') for text in tpu.read('gcsfuse'))


def test_tpu_stop_lets_it_save(tpu):
  for worker in range(2):
    folder = tpu.folder / f'home{worker}' / 'draw_jax' / 'launch'
    folder.mkdir(parents=True)
    shutil.copy(LAUNCH / 'tpu_worker.sh', folder)
  saves = 'trap "echo saved; exit 143" TERM; echo ready; for i in $(seq 300); do sleep 0.1; done'
  following = tpu.start('run', 'sh', '-c', saves)
  assert following.stdout.readline() == 'ready\n'
  again = tpu('run', 'true')
  assert again.returncode == 2 and 'a command is running' in again.stderr
  assert tpu('stop').returncode == 0
  assert tpu.read('draw_jax/run.code') == [f'{128 + signal.SIGTERM}\n'] * 2
  assert tpu.read('draw_jax/run.log') == ['ready\nsaved\n'] * 2
  assert following.communicate(timeout=60)[0] == 'saved\n'
  assert following.returncode == tpu('log').returncode == 128 + signal.SIGTERM
