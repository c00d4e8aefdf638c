"""Every field of an experiment with its default, and the checks of their values."""

import dataclasses
import difflib
import inspect
import json
import pathlib
import runpy

from ml_collections import config_dict

from draw_jax import classifier, data, distributions, model, optimizer, recurrence, tasks
from draw_jax.errors import UserError

ON_NAN = ('stop', 'rollback')
DTYPES = ('float32', 'bfloat16')
MODELS = tasks.MODELS  # the module that each name stands for
# Of a module, but not of a config.
_NO_FIELDS = ('image_shape', 'num_classes', 'param_dtype', 'parent', 'name')


def default() -> config_dict.ConfigDict:
  """The config that every experiment starts from: MNIST with the paper's sizes."""
  config = config_dict.ConfigDict()

  config.data = section = config_dict.ConfigDict()
  section.name = 'binarized_mnist'  # one of draw_jax.data.NAMES
  section.binarization = config_dict.placeholder(str)  # None: the dataset's own
  section.path = config_dict.placeholder(str)  # of your own pictures, for 'images' only
  section.image_size = config_dict.placeholder(int)  # side of your own pictures in pixels
  section.channels = config_dict.placeholder(int)  # of your own pictures, 1 or 3

  config.model = section = config_dict.ConfigDict()
  section.name = 'draw'  # which model the rest of this section describes
  section.steps = 64  # T, glimpses
  section.hidden = 256  # units of the encoder's and of the decoder's LSTM
  section.latent = 100  # Z, latent variables of one step
  section.attention = True  # False: read the whole picture, write the whole canvas
  section.read_size = 2  # N of the reading grid of N x N filters
  section.write_size = 5  # N of the writing grid
  section.output = 'bernoulli'  # D(X | c_T), one of draw_jax.distributions.OUTPUTS
  # On the norm of the gradient by the five numbers that place a window, for each step and picture.
  # It speeds up the first epochs; later it leads beside the minimum.
  section.window_limit = 0.0  # 0: none
  section.dtype = 'float32'  # in which matrices are multiplied; or bfloat16
  section.remat = 'products'  # what the backward pass keeps, one of draw_jax.recurrence.REMAT
  # Starting values of the parameters; draw_jax.model.Start says what each of them is.
  section.start = config_dict.ConfigDict(dataclasses.asdict(model.Start()))

  config.train = section = config_dict.ConfigDict()
  section.batch_size = 100  # of all devices and processes together
  section.epochs = 12.0  # length of the whole run, the curriculum included
  section.num_steps = 0  # length in steps instead; 0: by epochs
  section.seed = 0  # of the parameters, the noise and the order of the data
  # A trained model to start from: a name such as 'mnist', or a file that draw_jax.export wrote.
  section.start_from = config_dict.placeholder(str)  # None: from random weights
  section.kl_warmup_steps = 400  # in which the KL's weight rises from 0 to 1; none after start_from
  section.curriculum = ()  # ((T, epochs), ...) to begin with, before model.steps

  config.optimizer = section = config_dict.ConfigDict()  # Adam
  section.learning_rate = 2e-3  # at its highest
  section.warmup_steps = 200  # linear rise to it
  section.schedule = 'cosine'  # to the end of the run; or 'constant' or 'trapezoid'
  section.fall_fraction = 0.25  # last part of the run, in which the trapezoid falls
  section.final_fraction = 0.02  # of the learning rate, at the end of cosine or trapezoid
  # Adam moves every weight by the learning rate at most, and so the five numbers that place a
  # window by that times hundreds of hidden units: pixels at a step.
  section.window_rate = 1.0  # factor on the learning rate of the layers that place windows
  section.clip_norm = 100.0  # of the whole gradient of the mean loss; 0: never clip
  section.beta1 = 0.9  # memory of the mean of gradients
  section.beta2 = 0.999  # memory of their squares
  section.weight_decay = 0.0  # on matrices, times the learning rate
  section.accumulate = 1  # parts of a batch worked through one after the other
  section.ema_decay = 0.999  # of the averaged parameters that are evaluated; 0: none

  config.eval = section = config_dict.ConfigDict()
  section.split = 'valid'  # chooses the best checkpoint
  section.batch_size = 200  # of all devices and processes together
  section.every_epochs = 1.0  # and at the end
  section.pictures = 32  # samples and reconstructions to show

  config.checkpoint = section = config_dict.ConfigDict()
  section.every_steps = 500  # besides one at each evaluation
  section.keep_latest = 2  # newest checkpoints
  section.keep_best = 1  # best ones on eval.split

  config.log = section = config_dict.ConfigDict()
  section.every_steps = 50  # steps that one row of metrics.jsonl is the mean of

  config.on_nan = 'stop'  # when the loss is not finite; or 'rollback'
  config.max_rollbacks = 3  # then give up
  config.rollback_scale = 0.5  # factor on every later update, for each rollback
  return config


def differentiable_ram() -> config_dict.ConfigDict:
  """The `model` section of the attention classifier, with the paper's sizes."""
  section = config_dict.ConfigDict()
  section.name = 'differentiable_ram'  # which model the rest of this section describes
  section.steps = 8  # T, glimpses
  section.hidden = 256  # units of the LSTM
  section.read_size = 12  # N of the reading grid of N x N filters
  # On the norm of the gradient by the five numbers that place a window, for each glimpse at each
  # picture. Without it training fails after some 10,000 steps: filters become narrow and
  # intensities high, and a few pictures with gradients in the hundreds set the direction.
  section.window_limit = 10.0  # 0: none
  section.dtype = 'float32'  # in which matrices are multiplied; or bfloat16
  section.remat = 'products'  # what the backward pass keeps, one of draw_jax.recurrence.REMAT
  # Starting values of the parameters; draw_jax.classifier.Start says what each of them is.
  section.start = config_dict.ConfigDict(dataclasses.asdict(classifier.Start()))
  return section


def ram() -> config_dict.ConfigDict:
  """The `model` section of RAM, with the sizes of Mnih et al. (2014)."""
  section = config_dict.ConfigDict()
  section.name = 'ram'  # which model the rest of this section describes
  section.steps = 8  # T, glimpses
  section.hidden = 256  # units of the recurrent core
  section.features = 128  # units that hear the patches, and as many that hear the point
  section.read_size = 12  # side of each patch, as the network sees it
  section.scales = 4  # patches of a glimpse, each twice as wide as the one before
  section.location_std = 0.15  # of the points drawn, where the picture is 2 wide
  section.dtype = 'float32'  # in which matrices are multiplied; or bfloat16
  return section


def convolutional() -> config_dict.ConfigDict:
  """The `model` section of the convolutional network, with the sizes of Mnih et al. (2014)."""
  section = config_dict.ConfigDict()
  section.name = 'convolutional'  # which model the rest of this section describes
  section.steps = 1  # the picture is seen once
  section.filters = 8  # of the convolution
  section.filter_size = 10  # their height and width in pixels
  section.stride = 5  # pixels from one place of a filter to the next
  section.hidden = 256  # units of the second layer
  return section


def validate(config) -> None:
  """Raises a `UserError` for the first value that cannot work, before any work is done."""
  if config.train.start_from == '':  # such as a variable of the shell that is not set
    raise UserError('train.start_from= is empty: give a model, or leave it out.')
  _known('data.name', config.data.name, data.NAMES)
  _known('model.name', config.model.name, MODELS)
  _validate_model(config.model)
  _known('optimizer.schedule', config.optimizer.schedule, optimizer.SCHEDULES)
  _known('on_nan', config.on_nan, ON_NAN)
  for name in ('train.batch_size', 'eval.batch_size', 'optimizer.accumulate', 'eval.pictures',
               'checkpoint.every_steps', 'checkpoint.keep_latest', 'checkpoint.keep_best',
               'log.every_steps'):  # fmt: skip
    _at_least(config, name, 1)
  for name in ('train.num_steps', 'train.seed', 'train.kl_warmup_steps', 'optimizer.warmup_steps',
               'optimizer.clip_norm', 'optimizer.weight_decay', 'optimizer.window_rate',
               'max_rollbacks'):  # fmt: skip
    _at_least(config, name, 0)
  for name in ('optimizer.learning_rate', 'train.epochs', 'eval.every_epochs'):
    _above_zero(config, name)
  for name in ('optimizer.beta1', 'optimizer.beta2', 'optimizer.ema_decay'):
    _between(config, name, 0, 1, including_upper=False)
  for name in ('optimizer.fall_fraction', 'optimizer.final_fraction', 'rollback_scale'):
    _between(config, name, 0, 1)
  _above_zero(config, 'rollback_scale')
  if config.train.seed >= 2**32:
    raise UserError(f'train.seed={config.train.seed} must be from 0 to 2**32 - 1.')
  _validate_curriculum(config.train)
  if config.eval.split == 'train':
    raise UserError('eval.split=train is what is trained on: give another split, such as valid.')


def validate_for(config, image_shape: tuple[int, int, int], devices: int) -> None:
  """Raises a `UserError` for values that do not fit the pictures or the devices."""
  height, width, _ = image_shape
  if config.model.get('attention', True):
    for name in ('read_size', 'write_size', 'filter_size'):
      size = config.model.get(name, 1)
      if size > min(height, width):
        raise UserError(f'model.{name}={size} is larger than the pictures, {height} x {width}.')
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
  """What `to_json` was given, locked; where it is older, with the fields added since.

  Only with those that a trained model is used by: how it was trained stays as it was
  recorded. Fields of the section `model` get the defaults of the module, what it does
  where nothing is said: those of `default` are for new runs, and may be better.
  """
  fields = json.loads(text)
  name = fields['model']['name']
  _known('model.name', name, MODELS)
  new = default().to_dict()
  added = {'data': new['data'], 'eval': new['eval'], 'model': _module_defaults(MODELS[name])}
  fields = _filled(fields, added)
  fields['train']['curriculum'] = tuple(tuple(pair) for pair in fields['train']['curriculum'])
  return config_dict.ConfigDict(fields).lock()


def differences(old, new, prefix: str = '') -> dict[str, tuple]:
  """The fields that differ, 'section.field' to (old value, new value); None where absent."""
  found = {}
  for key in sorted({*old, *new}):
    a, b = old.get(key), new.get(key)
    if isinstance(a, config_dict.ConfigDict) and isinstance(b, config_dict.ConfigDict):
      found |= differences(a, b, f'{prefix}{key}.')
    elif a != b:
      found[prefix + key] = (a, b)
  return found


def from_file(experiment: str) -> config_dict.ConfigDict:
  """The config of an experiment, 'PATH.py' or 'PATH.py:VARIANT'."""
  name, _, variant = experiment.partition(':')
  path = pathlib.Path(name)
  if not path.is_file():
    raise UserError(f'no experiment {path}: {_experiments_like(path)}')
  get_config = runpy.run_path(name).get('get_config')
  if get_config is None:
    raise UserError(f'{path} is no experiment: it has no get_config().')
  if variant and not inspect.signature(get_config).parameters:
    raise UserError(f'{path} has no variants: leave out :{variant}.')
  return get_config(*[variant] if variant else [])


def field_names(config, prefix: str = '') -> list[str]:
  """Every 'section.field' of a config."""
  names = []
  for key, value in config.items():
    if isinstance(value, config_dict.ConfigDict):
      names += field_names(value, f'{prefix}{key}.')
    else:
      names.append(prefix + key)
  return names


def check_variant(variant: str, accepted: tuple[str, ...]) -> None:
  """Raises a `UserError` unless the variant of an experiment is '' or an accepted one."""
  if variant:
    _known('variant', variant, accepted)


def _experiments_like(path: pathlib.Path) -> str:
  """The experiments in the folder of one that is not there, and the one with the nearest name."""
  files = sorted(p for p in path.parent.glob('*.py') if p.is_file())
  others = {p.name: str(p) for p in files if b'def get_config(' in p.read_bytes()}
  near = difflib.get_close_matches(path.name, others, n=1)
  hint = f'did you mean {others[near[0]]}? ' if near else ''
  return f'{hint}There are {", ".join(others.values()) or "none"}.'


def _filled(fields: dict, defaults: dict) -> dict:
  """The fields, with those that only `defaults` has, at any depth."""
  inner = {
    key: _filled(value, defaults[key])
    for key, value in fields.items()
    if isinstance(value, dict) and key in defaults
  }
  return {**defaults, **fields, **inner}


def _module_defaults(module) -> dict:
  """The defaults of a Flax module's attributes, as a config has them."""
  found = {
    field.name: field.default
    for field in dataclasses.fields(module)
    if field.name not in _NO_FIELDS
  }
  if 'start' in found:
    found['start'] = dataclasses.asdict(found['start'])
  if 'dtype' in found and found['dtype'] is None:
    found['dtype'] = 'float32'
  return found


def _validate_model(section) -> None:
  """Checks the fields that there are; which these are depends on the model's name."""
  own = _module_defaults(MODELS[section.name])
  for there, accepted in ((section, own), (section.get('start', {}), own.get('start', {}))):
    for name in there:
      if name != 'name' and name not in accepted:
        raise UserError(
          f'model.name={section.name!r} has no field {name!r}: choose an experiment with this '
          'model, which brings the whole section; the name alone does not change it.'
        )
  for name in ('steps', 'hidden', 'latent', 'features', 'read_size', 'write_size', 'scales',
               'filters', 'filter_size', 'stride'):  # fmt: skip
    if section.get(name, 1) < 1:
      raise UserError(f'model.{name}={section[name]} must be at least 1.')
  if section.name == 'convolutional' and section.steps != 1:
    raise UserError(f'model.steps={section.steps} must be 1: it sees the whole picture, once.')
  sizes = {f'start.{k}': v for k, v in section.get('start', {}).items()}
  sizes['location_std'] = section.get('location_std', 1.0)
  for name, value in sizes.items():
    if not value > 0 and name not in ('start.forget_bias', 'start.own_glimpse_scale'):
      raise UserError(f'model.{name}={value} must be above 0.')
  if not 0 <= section.get('window_limit', 0) < float('inf'):
    raise UserError(f'model.window_limit={section.window_limit} must be a number of at least 0.')
  accepted = {'output': distributions.OUTPUTS, 'dtype': DTYPES, 'remat': recurrence.REMAT}
  for name, names in accepted.items():
    if name in section:
      _known(f'model.{name}', section[name], names)


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


def _known(name: str, value, accepted) -> None:
  if value not in accepted:
    near = difflib.get_close_matches(str(value), accepted, n=1, cutoff=0.5)
    hint = f'did you mean {near[0]!r}? ' if near else ''
    raise UserError(f'{name}={value!r} is not known: {hint}There are {", ".join(accepted)}.')


def _get(config, name: str):
  for part in name.split('.'):
    config = config[part]
  return config


def _at_least(config, name: str, minimum) -> None:
  value = _get(config, name)
  if not minimum <= value < float('inf'):
    raise UserError(f'{name}={value} must be a number of at least {minimum}.')


def _above_zero(config, name: str) -> None:
  value = _get(config, name)
  if not 0 < value < float('inf'):
    raise UserError(f'{name}={value} must be a number above 0.')


def _between(config, name: str, low, high, including_upper: bool = True) -> None:
  value = _get(config, name)
  if not (low <= value < high or (including_upper and value == high)):
    upper = 'at most' if including_upper else 'below'
    raise UserError(f'{name}={value} must be at least {low} and {upper} {high}.')
