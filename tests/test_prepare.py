"""The command that prepares datasets, as a user runs it."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image


def run(*arguments):
  return subprocess.run(
    [sys.executable, '-m', 'draw_jax.prepare', *arguments], capture_output=True, text=True
  )


@pytest.fixture
def images(tmp_path):
  np.save(tmp_path / 'images.npy', np.random.default_rng(0).random((20, 8, 10, 3)))
  return tmp_path / 'images.npy'


def test_preview(images, tmp_path):
  preview = tmp_path / 'out.png'
  result = run('--dataset=images', f'--path={images}', f'--preview={preview}')
  assert result.returncode == 0, result.stderr
  assert 'images gives examples of 8 x 10 x 3' in result.stdout
  assert 'train: 18 examples' in result.stdout
  with Image.open(preview) as image:
    assert image.size[0] > 4 * 10 and image.size[1] > 4 * 8


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['--dataset=cifar'], "error: unknown dataset 'cifar': did you mean 'cifar10'?"),
    (['--dataset=svhn', '--manual_dir=.'], 'train.tar.gz is missing'),
    (['--dataset=mnist_5k', '--manual_dir=.'], 'leave out --manual_dir'),
    (['--dataset=mnist', '--image_size=5'], 'error: --image_size is for --dataset=images'),
    (['--dataset=mnist', '--binarization=none'], 'error: --binarization is for the --preview'),
    (['--dataset=images', '--path=nowhere'], 'error: nowhere does not exist: give a folder'),
  ],
)
def test_errors_are_short_and_exit_with_2(tmp_path, arguments, message):
  result = run(*arguments, f'--data_dir={tmp_path}')
  assert result.returncode == 2
  assert message in result.stderr
  assert 'Traceback' not in result.stderr
  assert not [path for path in tmp_path.rglob('*') if path.is_file()]
