"""A tiny experiment, and the training command as a subprocess."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import numpy as np

from draw_jax import config as config_lib

ROOT = pathlib.Path(__file__).parents[1]
# One for all tests and all runs of them: most of a tiny run is compilation.
CACHE = pathlib.Path(tempfile.gettempdir()) / f'draw_jax_test_cache_{os.getuid()}'

# What no two runs have the same.
TIMES = ('images_per_second',)

EXPERIMENT = """
import training_support

def get_config():
  return training_support.tiny_config({path!r})
"""


def write_images(folder: pathlib.Path, num: int = 80, size: int = 8) -> str:
  """Bars at random places: a path of uint8 [num, size, size, 1]."""
  rng = np.random.default_rng(0)
  images = np.zeros((num, size, size, 1), np.uint8)
  for image in images:
    image[rng.integers(size), :] = 255
    image[:, rng.integers(size)] = 255
  np.save(folder / 'images.npy', images)
  return str(folder / 'images.npy')


def tiny_config(path: str):
  """Sixty steps of a few milliseconds, evaluated every 18 and saved every 7."""
  config = config_lib.default()
  config.data.name = 'images'
  config.data.path = path
  config.model.update({'glimpses': 3, 'hidden': 8, 'latent': 2, 'read_size': 2, 'write_size': 3})
  # All of them, so that better defaults do not change what these tests see.
  config.model.initialization.update({
    'read_stride': 0.5, 'read_sigma': 1.0, 'write_stride': 0.8, 'write_sigma': 1.0,
    'forget_bias': 1.0, 'kernel_scale': 1.0, 'write_scale': 2.0,
  })  # fmt: skip
  config.train.batch_size = 8
  config.train.num_steps = 60
  config.optimizer.warmup_steps = 5
  config.eval.batch_size = 8
  config.eval.every_epochs = 2.0
  config.eval.images = 4
  config.checkpoint.every_steps = 7
  config.log.every_steps = 5
  return config


def write_experiment(folder: pathlib.Path) -> pathlib.Path:
  """An experiment file for the command, with its data."""
  path = folder / 'experiment.py'
  path.write_text(EXPERIMENT.format(path=write_images(folder)))
  return path


def command(experiment, workdir, *flags: str) -> list[str]:
  return [
    *(sys.executable, '-m', 'draw_jax.train', f'--config={experiment}', f'--workdir={workdir}'),
    *(f'--compilation_cache={CACHE}', *flags),
  ]


def environment(devices: int = 1) -> dict[str, str]:
  paths = [str(ROOT), str(ROOT / 'tests'), os.environ.get('PYTHONPATH', '')]
  return {
    **os.environ,
    'JAX_PLATFORMS': 'cpu',
    'JAX_NUM_CPU_DEVICES': str(devices),
    # Compiling takes longer than running: halve it.
    'XLA_FLAGS': '--xla_backend_optimization_level=0',
    # Otherwise each command would start twice.
    'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=0',
    'PYTHONPATH': os.pathsep.join(filter(None, paths)),
  }


def run(experiment, workdir, *flags: str, devices: int = 1) -> subprocess.CompletedProcess:
  return subprocess.run(
    command(experiment, workdir, *flags),
    env=environment(devices),
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def start(experiment, workdir, *flags: str, devices: int = 1) -> subprocess.Popen:
  return subprocess.Popen(
    command(experiment, workdir, *flags),
    env=environment(devices),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def final_state(workdir) -> list[np.ndarray]:
  """Parameters and average, and the checksum of optimizer, key and step."""
  from draw_jax import trained

  arrays = []
  for ema in (False, True):
    arrays += jax.tree.leaves(trained.from_workdir(workdir, 'latest', ema=ema).params)
  folder = max((workdir / 'checkpoints').glob('[0-9]*'), key=lambda p: int(p.name))
  stored = json.loads((folder / '_CHECKPOINT_METADATA').read_text())['custom_metadata']
  return [*map(np.asarray, arrays), np.array(stored['checksums']['rest'])]


def rows(workdir) -> list[dict]:
  from draw_jax.training import run_log

  return [{k: v for k, v in row.items() if k not in TIMES} for row in run_log.read(workdir)]


def assert_same_run(a, b):
  for x, y in zip(final_state(a), final_state(b), strict=True):
    np.testing.assert_array_equal(x, y)
  assert rows(a) == rows(b)
