"""The config of an experiment: its sections, each declared by a dataclass, and their checks.

The sections `data`, `model` and `optimizer` are declared beside what they configure.
"""

import dataclasses
import difflib
import inspect
import json
import math
import pathlib
import re
import runpy
import traceback
from typing import Any

from ml_collections import config_dict

from draw_jax import fields, memory, renamed
from draw_jax.data import registry as datasets
from draw_jax.errors import UserError, first_line
from draw_jax.tasks import registry
from draw_jax.training import optimizer

ON_NAN = ('stop', 'rollback')


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """The section `train`."""

  # Of all devices and processes together.
  batch_size: int = fields.field(100, at_least=1)
  # Length of the whole run, the curriculum included.
  epochs: float = fields.field(12.0, above=0)
  # Length in steps instead; 0: by epochs.
  num_steps: int = fields.field(0, at_least=0, below=2**31)
  # Of the parameters, the noise and the order of the data.
  seed: int = fields.field(0, at_least=0, below=2**32)
  # A trained model to start from: a name such as 'mnist', or a file that draw_jax.export wrote;
  # None: random weights.
  start_from: str | None = None
  # Steps in which the KL's weight rises from 0 to 1; none after start_from.
  kl_warmup_steps: int = fields.field(400, at_least=0)
  # ((T, epochs), ...) to begin with, before model.glimpses.
  curriculum: tuple[tuple[int, float], ...] = ()


@dataclasses.dataclass(frozen=True)
class EvalConfig:
  """The section `eval`."""

  # Chooses the best checkpoint.
  split: str = fields.field(
    'valid',
    check=lambda split: (
      'is what is trained on: give another split, such as valid.' if split == 'train' else None
    ),
  )
  # Of all devices and processes together.
  batch_size: int = fields.field(200, at_least=1)
  # And at the end.
  every_epochs: float = fields.field(1.0, above=0)
  # Samples and reconstructions to show.
  images: int = fields.field(32, at_least=1)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
  """The section `checkpoint`."""

  # Besides one at each evaluation.
  every_steps: int = fields.field(500, at_least=1)
  # Newest checkpoints.
  keep_latest: int = fields.field(2, at_least=1)
  # Best ones on eval.split.
  keep_best: int = fields.field(1, at_least=1)


@dataclasses.dataclass(frozen=True)
class LogConfig:
  """The section `log`."""

  # Steps that one row of metrics.jsonl is the mean of.
  every_steps: int = fields.field(50, at_least=1)
  # A project of Weights & Biases that has the run, too (pip install 'draw_jax[wandb]'); None: none.
  wandb_project: str | None = fields.field(
    None, check=lambda project: None if project else 'is empty: give a project, or leave it out.'
  )


@dataclasses.dataclass(frozen=True)
class RunConfig:
  """The fields outside of all sections."""

  # When the loss is not finite.
  on_nan: str = fields.field('stop', choices=ON_NAN)
  # Then give up.
  max_rollbacks: int = fields.field(3, at_least=0)
  # Factor on every later update, for each rollback.
  rollback_scale: float = fields.field(0.5, above=0, at_most=1)


def _sections() -> dict[str, type]:
  """All but `model`, whose fields depend on its name."""
  return {
    'data': datasets.config(),
    'train': TrainConfig,
    'optimizer': optimizer.OptimizerConfig,
    'eval': EvalConfig,
    'checkpoint': CheckpointConfig,
    'log': LogConfig,
  }


def default() -> config_dict.ConfigDict:
  """The config that every experiment starts from: MNIST with the paper's sizes.

  It is locked: a field that it does not have cannot be set, but for those of
  `optimizer.arguments`, which are optax's.
  """
  config = config_dict.ConfigDict({'model': model_section('draw')})
  for name, declared in _sections().items():
    config[name] = fields.section(declared)
  config.update(fields.section(RunConfig))
  config.lock()
  config.optimizer.arguments.unlock()
  return config


def model_section(name: str, **values: Any) -> config_dict.ConfigDict:
  """The section `model` of a config for the model of this name, some of its values changed."""
  section = registry.section(name).lock()
  section.update(values)
  return section


def validate(config) -> None:
  """Raises a `UserError` for the first value that cannot work, before any work is done."""
  _check_whole(config)
  if config.train.start_from == '':  # such as a variable of the shell that is not set
    raise UserError('train.start_from= is empty: give a model, or leave it out.')
  for name, declared in _sections().items():
    for field in fields.unknown(declared, config[name]):
      raise UserError(f'no field {name}.{field}{_instead(f"{name}.{field}")}.')
    fields.check(declared, config[name], f'{name}.')
  registry.check(config.model)
  optimizer.check(config.optimizer)
  fields.check(RunConfig, config)
  _validate_curriculum(config.train)


def validate_for(config, image_shape: tuple[int, int, int], devices: int) -> None:
  """Raises a `UserError` for values that do not fit the images or the devices."""
  registry.check_image(config.model, *image_shape[:2])
  image = 4 * math.prod(image_shape)  # bytes, as float32
  for name, size in (
    ('train.batch_size', config.train.batch_size / config.optimizer.accumulate),
    ('eval.batch_size', config.eval.batch_size),
    ('eval.images', config.eval.images),
  ):
    # Every device has a part, and these may be of many machines.
    section, field = name.split('.')
    memory.check(size * image / devices, f'{name}={config[section][field]}')
  for name, parts in (('train', config.optimizer.accumulate), ('eval', 1)):
    size, unit = config[name].batch_size, devices * parts
    if size % unit:
      below, above = size // unit * unit, (size // unit + 1) * unit
      near = f'{below} or {above}' if below else f'{above}'
      accumulated = f' times optimizer.accumulate={parts}' if parts > 1 else ''
      raise UserError(
        f'{name}.batch_size={size} is no multiple of {devices} devices{accumulated}: try {near}.'
      )


def to_json(config) -> str:
  """The config as indented JSON."""
  return json.dumps(config.to_dict(), indent=2) + '\n'


def from_json(text: str) -> config_dict.ConfigDict:
  """What `to_json` was given, locked; where it is older, by today's names of its fields.

  Fields added since have their defaults, but only those that a trained model is used by: how it
  was trained stays as it was recorded.
  """
  found = renamed.config(json.loads(text))
  new = default().to_dict()
  model = registry.section(found['model']['name']).to_dict()
  found = _filled(found, {'data': new['data'], 'eval': new['eval'], 'model': model})
  found['train']['curriculum'] = tuple(tuple(pair) for pair in found['train']['curriculum'])
  return config_dict.ConfigDict(found).lock()


def differences(old, new, prefix: str = '') -> dict[str, tuple]:
  """The fields that differ, 'section.field' to (old value, new value); None where absent.

  Lists and tuples are the same, as they are in JSON.
  """
  found = {}
  for key in sorted({*old, *new}):
    a, b = old.get(key), new.get(key)
    if isinstance(a, config_dict.ConfigDict) and isinstance(b, config_dict.ConfigDict):
      found |= differences(a, b, f'{prefix}{key}.')
    elif _as_tuples(a) != _as_tuples(b):
      found[prefix + key] = (a, b)
  return found


def shipped_experiments() -> dict[str, pathlib.Path]:
  """The files of the experiments that come with the package, by their names."""
  package = pathlib.Path(__file__).parent
  # Installed, they are in the package; in a checkout, beside it.
  folder = next(
    filter(pathlib.Path.is_dir, (package / 'experiments', package.parent / 'experiments'))
  )
  return _experiments_in(folder)


def find_experiment(experiment: str) -> str:
  """'PATH.py' or 'PATH.py:VARIANT' of an experiment, given so or by the name of one that ships."""
  name, colon, variant = experiment.partition(':')
  path = pathlib.Path(name)
  if path.is_file():
    return experiment
  shipped = shipped_experiments()
  if name in shipped:
    return f'{shipped[name]}{colon}{variant}'
  # A name, or a path into a checkout that is not here, means one that ships.
  is_name = path.parent == pathlib.Path() and not path.suffix
  others = {} if is_name else _experiments_in(path.parent)
  others = {stem: str(file) for stem, file in others.items()} or {stem: stem for stem in shipped}
  near = difflib.get_close_matches(path.stem, others, n=1)
  hint = f'did you mean {others[near[0]]}? ' if near else ''
  raise UserError(f'no experiment {name}: {hint}There are {", ".join(others.values())}.')


def from_file(experiment: str) -> config_dict.ConfigDict:
  """The config of an experiment, by the name of one that ships or by path.

  Args:
    experiment: such as 'mnist', 'mnist:no_attention', 'PATH.py' or 'PATH.py:VARIANT'.
  """
  path, _, variant = find_experiment(experiment).partition(':')
  try:
    get_config = runpy.run_path(path).get('get_config')
    if get_config is None:
      raise UserError(f'{path} is no experiment: it has no get_config().')
    if variant and not inspect.signature(get_config).parameters:
      raise UserError(f'{path} has no variants: leave out :{variant}.')
    config = get_config(*[variant] if variant else [])
  except UserError:
    raise
  except Exception as error:  # Whatever an experiment raises.
    raise UserError(_mistake(path, error)) from error
  _check_whole(config, f'get_config() of {path}')
  return config


def field_names(config) -> list[str]:
  """Every 'section.field' of a config."""
  return list(values(config))


def values(config, prefix: str = '') -> dict[str, Any]:
  """The value of every 'section.field' of a config, each name behind the prefix."""
  found = {}
  for key, value in config.items():
    if isinstance(value, config_dict.ConfigDict):
      found |= values(value, f'{prefix}{key}.')
    else:
      found[prefix + key] = value
  return found


def check_variant(variant: str, accepted: tuple[str, ...]) -> None:
  """Raises a `UserError` unless the variant of an experiment is '' or an accepted one."""
  if variant:
    fields.check_choice('variant', variant, accepted)


def _experiments_in(folder: pathlib.Path) -> dict[str, pathlib.Path]:
  files = sorted(path for path in folder.glob('*.py') if path.is_file())
  return {path.stem: path for path in files if b'def get_config(' in path.read_bytes()}


def _as_tuples(value: Any) -> Any:
  return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


def _filled(fields: dict, defaults: dict) -> dict:
  """The fields, with those that only `defaults` has, at any depth."""
  inner = {
    key: _filled(value, defaults[key])
    for key, value in fields.items()
    if isinstance(value, dict) and key in defaults
  }
  return {**defaults, **fields, **inner}


def _check_whole(config: Any, what: str = 'the experiment') -> None:
  """Raises a `UserError` unless it is a config with every section and field of the default."""
  todo = 'start from draw_jax.config.default() and return that, its fields changed.'
  if not isinstance(config, config_dict.ConfigDict):
    raise UserError(f'{what} gives {type(config).__name__}, and no config: {todo}')
  names = {one.name for one in dataclasses.fields(RunConfig)} | {'model', *_sections()}
  for name in config:
    if name not in names:
      near = difflib.get_close_matches(name, names, n=1, cutoff=0)[0]
      raise UserError(f'no section or field {name}: did you mean {near}?')
  lacking = sorted(names - {*config.keys()}) or [
    f'{name}.{field.name}'
    for name, declared in _sections().items()
    for field in dataclasses.fields(declared)
    if config[name] is None or field.name not in config[name]
  ]
  if lacking or 'name' not in config.model:
    raise UserError(f'{what} gives a config without {(lacking or ["model.name"])[0]}: {todo}')


def _mistake(file: str, error: Exception) -> str:
  """Where in an experiment's file an error is, and what it says."""
  frames = traceback.extract_tb(error.__traceback__)
  lines = [frame.lineno for frame in frames if frame.filename == file]
  if isinstance(error, SyntaxError) and error.filename == file:
    lines.append(error.lineno)
  where = f'{file}, line {lines[-1]}' if lines else file
  # The words of a config, which goes on with all of its fields.
  near = re.search(r'Did you mean "(\w+)" instead of "(\w+)"', str(error))
  name = near and near[2]
  if locked := re.search(r'Key "(\w+)" does not exist', str(error)):
    name = locked[1]
  if name is None or not isinstance(error, AttributeError | KeyError):
    return f'{where}: {type(error).__name__}: {first_line(error)}'
  older = [new for old, new in renamed.CONFIG.items() if old.endswith(f'.{name}')]
  hint = f'it is now {older[0]}.' if older else near and f'did you mean {near[1]}?'
  return f'{where}: no field {name}: {hint or "those that there are stand in draw_jax.config."}'


def _instead(name: str) -> str:
  """How a field that is not there is called today, or the nearest name."""
  if name in renamed.CONFIG:
    return f': it is now {renamed.CONFIG[name]}'
  near = difflib.get_close_matches(name, field_names(default()), n=1, cutoff=0)[0]
  return f': did you mean {near}?'


def _validate_curriculum(section) -> None:
  pairs = section.curriculum
  valid = all(
    isinstance(pair, tuple | list)
    and len(pair) == 2
    and all(isinstance(number, int | float) for number in pair)
    and pair[0] % 1 == 0 < pair[0]
    and 0 < pair[1] < float('inf')
    for pair in pairs
  )
  if not valid:
    raise UserError(
      f'train.curriculum={pairs} is not a row of (T, epochs) pairs such as ((16, 2), (32, 1)).'
    )
  total = sum(epochs for _, epochs in pairs)
  if not section.num_steps and total > section.epochs:
    raise UserError(
      f'train.curriculum takes {total} epochs, more than the whole run, train.epochs='
      f'{section.epochs}.'
    )
