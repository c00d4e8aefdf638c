import ast
import configparser
import os
import pathlib
import re
import subprocess
import sys
import tomllib

from packaging import requirements, utils, version

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


def test_the_version_can_be_asked_for():
  result = python('import draw_jax; print(draw_jax.__version__)')
  assert result.stdout == setup_cfg()['metadata']['version'] + '\n', result.stderr


def test_type_checkers_are_told_that_there_are_types():
  assert setup_cfg()['options.package_data']['draw_jax'] == 'py.typed'
  assert (ROOT / 'draw_jax' / 'py.typed').exists()


def pinned(name: str) -> dict[str, str]:
  """The version of each package in a file of constraints, by its normalized name."""
  lines = re.findall(r'^([\w.-]+)==(\S+)$', (ROOT / 'launch' / name).read_text(), re.M)
  return {utils.canonicalize_name(package): version for package, version in lines}


def test_limits_are_the_oldest_versions_that_were_tried():
  config = setup_cfg()
  assert config['options']['python_requires'] == '>=3.11'
  oldest, tested = pinned('constraints-oldest.txt'), pinned('constraints.txt')
  extras = [config['options.extras_require'][name] for name in ('compress', 'digits', 'wandb')]
  lines = '\n'.join([config['options']['install_requires'], *extras]).strip().split('\n')
  assert len(lines) > 20
  for requirement in map(requirements.Requirement, lines):
    (limit,) = requirement.specifier  # An upper one stands with what is known to break.
    name = utils.canonicalize_name(requirement.name)
    assert limit.operator == '>='
    assert version.Version(limit.version) == version.Version(oldest[name])
    assert tested[name] in requirement.specifier


def test_the_sets_of_versions_have_the_same_tools_of_the_tests():
  oldest, tested = pinned('constraints-oldest.txt'), pinned('constraints.txt')
  for line in setup_cfg()['options.extras_require']['test'].strip().split('\n'):
    requirement = requirements.Requirement(line)
    name = utils.canonicalize_name(requirement.name)
    assert oldest[name] in requirement.specifier and tested[name] in requirement.specifier


def test_every_package_ships():
  options = setup_cfg()['options']
  found = {path.parent for path in (ROOT / 'draw_jax').rglob('__init__.py')}
  names = {'.'.join(path.relative_to(ROOT).parts) for path in found}
  assert set(options['packages'].split()) == {*names, 'draw_jax.experiments'}


def test_configs_and_models_import_neither_tfds_nor_orbax():
  heavy = "('tensorflow_datasets', 'orbax.checkpoint', 'grain', 'matplotlib')"
  code = f'import draw_jax.config, sys; print([m for m in {heavy} if m in sys.modules])'
  assert python(code).stdout == '[]\n'


# What each room may import besides the modules of no room.
ROOMS = {
  'models': set(),
  'tasks': {'models'},
  'data': set(),
  'devices': set(),
  'pretrained': set(),
  'evaluation': {'tasks', 'data', 'devices', 'pretrained'},
  'training': {'tasks', 'data', 'devices', 'evaluation', 'pretrained'},
  'figures': {'models', 'data', 'training', 'pretrained', 'cli'},
  'compression': {'models', 'tasks', 'data', 'pretrained'},
  'sweeps': {'tasks', 'data', 'training', 'figures', 'cli'},
}
COMMANDS = {
  'train', 'evaluate', 'sample', 'export', 'prepare', 'sweep', 'page', 'compress', 'decompress'
}  # fmt: skip


def imported(path: pathlib.Path) -> set[str]:
  """The first names, behind `draw_jax`, of what a file imports."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.ImportFrom) and (node.module or '').split('.')[0] == 'draw_jax':
      inside = node.module.split('.')[1:]
      found |= {inside[0]} if inside else {alias.name for alias in node.names}
  return found


def test_rooms_import_in_one_direction():
  package = ROOT / 'draw_jax'
  rooms = {path.name for path in package.iterdir() if path.is_dir()}
  for path in package.rglob('*.py'):
    room = path.relative_to(package).parts[0]
    if room in ROOMS:
      assert (imported(path) & rooms) - {room} <= ROOMS[room], path
    assert not imported(path) & COMMANDS, path


def test_only_the_registry_knows_models_by_their_names():
  package = ROOT / 'draw_jax'
  names = re.compile(r"isinstance\([^)]*\b(DRAW|RAM|Generation)\b|model\.name [!=]=|== 'draw'")
  found = [path for path in package.rglob('*.py') if names.search(path.read_text())]
  assert found == []


def test_a_config_is_checked_before_devices_are_chosen():
  """Processes are joined, and the cores of a CPU made devices, only after it."""
  code = (
    'from draw_jax import config; config.validate(config.default()); import jax; '
    'jax.config.update("jax_num_cpu_devices", 3); print(jax.device_count())'
  )
  result = python(code, JAX_PLATFORMS='cpu')
  assert result.stdout == '3\n', result.stderr
