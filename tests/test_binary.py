"""A slip on the command line of any binary: one line, exit code 2, no traceback."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
  'command, message',
  [
    ('sample --output=x --num=many', '--num=many'),
    ('figures --output=x --wrkdir=y', 'Did you mean: workdir'),
    ('evaluate runs/mnist', "unknown argument 'runs/mnist'"),
    ('prepare', '--dataset'),
  ],
)
def test_a_slip_ends_with_one_line(command, message, tmp_path):
  binary, *arguments = command.split()
  result = subprocess.run(
    [sys.executable, '-m', f'draw_jax.{binary}', *arguments],
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 2
  assert message in result.stderr
  assert result.stderr.startswith('error: ')
  assert result.stderr.count('\n') == 1
  assert not list(tmp_path.iterdir())
