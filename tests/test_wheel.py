"""What is published: the sdist is whole, and the wheel works outside the checkout."""

import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import training_support as support
from test_package import ROOT, setup_cfg

from draw_jax import config as config_lib

VERSION = setup_cfg()['metadata']['version']
TINY = ' '.join(
  f'--config.{field}={value}'
  for field, value in {
    'model.glimpses': 2, 'model.hidden': 4, 'model.latent': 2, 'train.num_steps': 3,
    'train.batch_size': 4, 'eval.batch_size': 50, 'eval.images': 2,
  }.items()
)  # fmt: skip
# What a user does first; OWN.npy has images of their own.
COMMANDS = (
  f'draw-train --config=quickstart --workdir=run {TINY}',
  'draw-evaluate --workdir=run --split=valid',
  'draw-sample --model=mnist --num=4 --output=drawn',
  f'draw-train --config=own_images --config.data.path=OWN.npy --workdir=own {TINY}',
  'draw-sample --workdir=own --num=2 --output=own_drawn',
  'draw-export --workdir=own --output=own.safetensors',
)
# Imports what all commands need once, and runs each of them in a copy of itself.
PROGRAM = """
import importlib.metadata, json, os, pathlib, sys, traceback
import draw_jax
from draw_jax import config
from draw_jax.cli import config_errors
from draw_jax.figures import gallery
from draw_jax.training import loop

for name in config.shipped_experiments():
  config.validate(config.from_file(name))
print(json.dumps([draw_jax.__file__, *map(str, config.shipped_experiments().values())]))
scripts = importlib.metadata.entry_points(group='console_scripts')
for command in json.loads(sys.argv[1]):
  sys.stdout.flush()
  if os.fork() == 0:
    sys.argv = command.split()
    code = 1
    try:
      scripts[sys.argv[0]].load()()
    except SystemExit as error:
      code = error.code or 0
    except BaseException:
      traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)
  if os.wait()[1]:
    sys.exit(f'{command} failed')
"""


def tracked() -> list[str]:
  """The files of the project; an environment in it, whatever its name, is no part of it."""
  command = ['git', '-C', ROOT, 'ls-files']
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  if done.returncode:
    pytest.skip('no checkout of git')
  return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def build(kind: str, source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Builds as pip does, with the setuptools that is installed here."""
  code = f'from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})'
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=source, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr
  (path,) = folder.glob('*.tar.gz' if kind == 'sdist' else '*.whl')
  return path


@pytest.fixture(scope='module')
def built(tmp_path_factory) -> tuple[pathlib.Path, pathlib.Path]:
  """The sdist, and the wheel that was built from nothing but it."""
  folder = tmp_path_factory.mktemp('built')
  for name in tracked():
    (folder / 'source' / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, folder / 'source' / name)
  (folder / 'dist').mkdir()
  sdist = build('sdist', folder / 'source', folder / 'dist')
  with tarfile.open(sdist) as archive:
    archive.extractall(folder, filter='data')
  return sdist, build('wheel', folder / f'draw_jax-{VERSION}', folder / 'dist')


def test_the_sdist_has_all_that_is_tracked(built):
  with tarfile.open(built[0]) as archive:
    found = {name.partition('/')[2] for name in archive.getnames()}
  hidden = {name for name in tracked() if name.startswith('.')}
  assert set(tracked()) - hidden - found == set()
  assert not any('__pycache__' in name for name in found)


def test_the_wheel_has_the_package_and_its_experiments(built):
  names = zipfile.ZipFile(built[1]).namelist()
  found = {name for name in names if '.dist-info/' not in name}
  expected = {name for name in tracked() if name.startswith('draw_jax/')}
  experiments = [pathlib.Path(name) for name in tracked() if name.startswith('experiments/')]
  expected |= {
    f'draw_jax/{path}'
    for path in experiments
    if (len(path.parts) == 2 and path.suffix == '.py') or path.suffix == '.ipynb'
  }
  assert found == expected
  assert 'draw_jax/experiments/mnist.py' in found


def test_twine_accepts_both(built):
  pytest.importorskip('twine', reason='twine is not installed')
  done = subprocess.run(
    [sys.executable, '-m', 'twine', 'check', '--strict', *built],
    capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stdout + done.stderr
  assert done.stdout.count('PASSED') == 2


def install(wheel: pathlib.Path, environment: pathlib.Path) -> pathlib.Path:
  """Makes an environment with the wheel and what is installed here; returns its site-packages.

  Only the folders of packages are shared: an editable install among them stays behind.
  """
  subprocess.run([sys.executable, '-m', 'venv', '--without-pip', environment], check=True)
  (packages,) = environment.glob('lib/python*/site-packages')
  shared = [path for path in sys.path if path.endswith(('site-packages', 'dist-packages'))]
  (packages / 'shared.pth').write_text('\n'.join(shared) + '\n')
  installing = [
    *(sys.executable, '-m', 'pip', '--python', str(environment / 'bin/python'), 'install'),
    *('--quiet', '--no-deps', '--no-index', '--no-compile', str(wheel)),
  ]
  done = subprocess.run(installing, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  return packages


def run(command: list, folder: pathlib.Path) -> subprocess.CompletedProcess:
  environment = support.environment()
  del environment['PYTHONPATH']
  environment['GLIBC_TUNABLES'] = 'glibc.malloc.hugetlb=0'  # A command does not start anew.
  return subprocess.run(
    list(map(str, command)),
    env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=300,
  )  # fmt: skip


def test_the_wheel_works_outside_the_checkout(built, tmp_path):
  packages = install(built[1], tmp_path / 'environment')
  binaries = tmp_path / 'environment' / 'bin'
  images = np.random.default_rng(0).integers(0, 256, (40, 12, 10, 3), np.uint8)
  np.save(tmp_path / 'OWN.npy', images)
  cached = [f'{command} --compilation_cache={support.CACHE}' for command in COMMANDS]
  done = run([binaries / 'python', '-c', PROGRAM, json.dumps(cached)], tmp_path)
  assert done.returncode == 0, done.stderr[-3000:]
  files = json.loads(done.stdout.splitlines()[0])
  assert [pathlib.Path(file).is_relative_to(packages) for file in files] == [True] * len(files)
  assert len(files) == 1 + len(config_lib.shipped_experiments())
  for name in ('run/metrics.jsonl', 'drawn', 'own_drawn', 'own.safetensors'):
    assert (tmp_path / name).exists()
  # One of them as a user starts it.
  slip = run([binaries / 'draw-train', '--config=mnits', '--workdir=x'], tmp_path)
  assert (slip.returncode, slip.stdout) == (2, '')
  assert slip.stderr.startswith('error: no experiment mnits: did you mean mnist?')
