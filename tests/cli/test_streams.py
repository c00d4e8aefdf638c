"""Standard streams that are closed or full, Ctrl-C at the start, and what libraries say."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from draw_jax.cli import streams

ROOT = pathlib.Path(__file__).parents[2]


def full():
  return open('/dev/full', 'w')


def closed_pipe():
  reading, writing = os.pipe()
  os.close(reading)
  return os.fdopen(writing, 'w')


@pytest.mark.parametrize('make,lost', [(closed_pipe, None), (full, 'No space left on device')])
def test_work_goes_on_without_its_output(make, lost, monkeypatch):
  with make() as stream:
    monkeypatch.setattr(sys, 'stdout', stream)
    with streams.lasting() as out:
      for _ in range(3):
        print('a line', flush=True)
      assert streams.lost(out) == lost
    assert sys.stdout is stream


PROGRAM = """
import os, sys
from draw_jax.cli import app

def main():
  files = [open(f'{sys.argv[0]}.{number}', 'w') for number in range(3)]
  print('a line', flush=True)
  for number in (1, 2):
    os.write(number, b'what a library says')

app.run(main)
"""


def test_streams_that_are_closed_spill_into_no_file(tmp_path):
  """The next file to be opened would have their numbers."""
  program = tmp_path / 'program.py'
  program.write_text(PROGRAM)
  code = subprocess.run(
    f'exec {sys.executable} {program} 0<&- >&- 2>&-',
    shell=True,
    env={**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'},
    check=False,
  ).returncode
  assert code == 0
  assert [pathlib.Path(f'{program}.{number}').read_text() for number in range(3)] == [''] * 3


def test_ctrl_c_while_a_command_imports(tmp_path):
  """With a module in the place of JAX that is interrupted."""
  (tmp_path / 'jax.py').write_text(
    'import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n'
  )
  done = subprocess.run(
    [sys.executable, '-m', 'draw_jax.sample'],
    env={**os.environ, 'PYTHONPATH': os.pathsep.join([str(tmp_path), str(ROOT)])},
    capture_output=True,
    text=True,
    check=False,
  )
  assert (done.returncode, done.stderr) == (-signal.SIGINT, '')
