import configparser
import os
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[1]


def setup_cfg() -> configparser.ConfigParser:
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg')
  return config


def python(code: str, **environment) -> subprocess.CompletedProcess:
  """Runs code in a fresh interpreter that finds the package of this checkout."""
  environment = {**os.environ, 'PYTHONPATH': str(ROOT), **environment}
  command = [sys.executable, '-c', code]
  return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_import_leaves_tensorflow_alone():
  result = python('import draw_jax, sys; print({m.partition(".")[0] for m in sys.modules})')
  assert result.returncode == 0, result.stderr
  assert 'draw_jax' in result.stdout
  assert "'tensorflow'" not in result.stdout


def test_import_computes_nothing_on_a_device():
  """On a platform that does not exist the import works, and the first computation fails."""
  result = python(
    'import draw_jax; print("imported"); import jax.numpy; jax.numpy.zeros(1)',
    JAX_PLATFORMS='nonsense',
  )
  assert result.stdout == 'imported\n', result.stderr
  assert result.returncode != 0
  assert 'nonsense' in result.stderr


def test_public_names_exist():
  names = 'import draw_jax; [getattr(draw_jax, name) for name in draw_jax.__all__]'
  result = python(names)
  assert result.returncode == 0, result.stderr


def test_the_version_is_in_one_place():
  assert re.fullmatch(r'\d+\.\d+\.\d+((a|b|rc)\d+)?', setup_cfg()['metadata']['version'])
  with open(ROOT / 'pyproject.toml', 'rb') as file:
    assert tomllib.load(file).keys() == {'build-system'}


def test_dependencies_have_ranges():
  options = setup_cfg()['options']
  assert options['python_requires'] == '>=3.11'
  for line in options['install_requires'].split('\n')[1:]:
    assert re.fullmatch(r'[\w-]+(\[\w+\])? >=[\d.]+, <[\d.]+', line), line
