import dataclasses
import inspect
import pathlib
import re
import runpy

import pytest
import training_support as support

from draw_jax import config as config_lib
from draw_jax import data
from draw_jax.data import registry
from draw_jax.errors import UserError
from draw_jax.models import differentiable_ram, initialization
from draw_jax.tasks import registry as models
from draw_jax.training import optimizer, phases

FOLDER = pathlib.Path(__file__).parents[1] / 'experiments'
EXPERIMENTS = sorted(path for path in FOLDER.glob('*.py') if 'def get_config' in path.read_text())


def override(config, name: str, value) -> None:
  *sections, field = name.split('.')
  for section in sections:
    config = config[section]
  with config.unlocked(), config.ignore_type():
    config[field] = value


def assert_tells(error: UserError, name: str, value, accepted) -> None:
  """One line with the field, the value that was given, and what is accepted or to be done."""
  text = str(error)
  assert '\n' not in text
  for words in (name.rpartition('.')[2], str(value), *accepted):
    assert words in text


# Field, value, and what the message says of those that are accepted.
BAD = [
  ('data.name', 'minst', "'mnist'"),
  ('model.name', 'drw', "'draw'"),
  ('model.name', 'ram', 'experiment'),
  ('model.name', 'differentiable_ram', 'experiment'),
  ('train.start_from', '', 'leave it out'),
  ('model.glimpses', 0, 'at least 1'),
  ('model.hidden', -3, 'at least 1'),
  ('model.latent', 0, 'at least 1'),
  ('model.read_size', 0, 'at least 1'),
  ('model.initialization.read_sigma', 0.0, 'above 0'),
  ('model.window_limit', float('inf'), 'at least 0'),
  ('model.window_limit', -1.0, 'at least 0'),
  ('model.output', 'bernouli', "'bernoulli'"),
  ('model.dtype', 'bf16', 'float32, bfloat16'),
  ('model.remat', 'steps', "'step'"),
  ('model.hidden', None, 'give a value'),
  ('model.initialization.read_sigma', None, 'give a value'),
  ('model.initialization', None, 'give a value'),
  ('train.curriculum', None, 'give a value'),
  ('optimizer.arguments', None, 'give a value'),
  ('on_nan', None, 'give a value'),
  ('train.batch_size', None, 'give a value'),
  ('train.batch_size', 0, 'at least 1'),
  ('train.epochs', 0.0, 'above 0'),
  ('train.num_steps', -1, 'at least 0'),
  ('train.curriculum', ((16,),), '(T, epochs)'),
  ('train.curriculum', (16, 2), '(T, epochs)'),
  ('train.curriculum', ((0, 2),), '(T, epochs)'),
  ('train.curriculum', ((16, '2'),), '(T, epochs)'),
  ('train.seed', -1, 'at least 0', 'below 4294967296'),
  ('train.seed', 2**32, 'at least 0', 'below 4294967296'),
  ('optimizer.learning_rate', float('nan'), 'above 0'),
  ('optimizer.schedule', 'cosin', "'cosine'"),
  ('optimizer.final_fraction', 1.5, 'at least 0', 'at most 1'),
  ('optimizer.fall_fraction', -0.1, 'at least 0', 'at most 1'),
  ('optimizer.window_rate', -1.0, 'at least 0'),
  ('optimizer.arguments.b1', 1.0, 'at least 0', 'below 1'),
  ('optimizer.arguments.b2', -0.5, 'at least 0', 'below 1'),
  ('optimizer.name', 'adamv', "'adam"),
  ('optimizer.name', 'lbfgs'),
  ('optimizer.name', 'scale_by_learning_rate', 'adamw'),
  ('optimizer.name', '_deprecated_dpsgd', 'adamw'),
  ('optimizer.name', 'clip', 'adamw'),
  ('optimizer.arguments.b1', 'x', 'number'),
  ('optimizer.arguments.weight_decay', -1.0, 'at least 0'),
  ('optimizer.ema_decay', 1.0, 'at least 0', 'below 1'),
  ('optimizer.accumulate', 0, 'at least 1'),
  ('optimizer.clip_norm', float('inf'), 'at least 0'),
  ('optimizer.clip_norm', -1.0, 'at least 0'),
  ('eval.split', 'train', 'trained on'),
  ('eval.every_epochs', 0.0, 'above 0'),
  ('checkpoint.every_steps', 0, 'at least 1'),
  ('max_rollbacks', -1, 'at least 0'),
  ('rollback_scale', 1.5, 'above 0', 'at most 1'),
  ('rollback_scale', 0.0, 'above 0', 'at most 1'),
  ('on_nan', 'rolback', "'rollback'"),
]


@pytest.mark.parametrize('row', BAD, ids=[f'{name}={value}' for name, value, *_ in BAD])
def test_bad_values(row):
  name, value, *accepted = row
  config = config_lib.default()
  config_lib.validate(config)
  override(config, name, value)
  with pytest.raises(UserError) as caught:
    config_lib.validate(config)
  assert_tells(caught.value, name, value, accepted)


@pytest.mark.parametrize(
  'name,value,told',
  [
    ('train.curriculum', ((16, 99),), ('train.curriculum', '99 epochs', 'train.epochs=12.0')),
    (
      'optimizer.arguments.momentum',
      0.9,
      ('adamw', 'optimizer.arguments.momentum', 'leave out', 'b1, b2, eps'),
    ),
    ('optimizer.arguments.eps', 'x', ("optimizer.name='adamw'", 'optimizer.arguments')),
  ],
)
def test_values_that_do_not_go_together(name, value, told):
  """The message has the fields that disagree."""
  config = config_lib.default()
  override(config, name, value)
  with pytest.raises(UserError) as caught:
    config_lib.validate(config)
  assert '\n' not in str(caught.value)
  for words in told:
    assert words in str(caught.value)


def test_none_is_a_value_where_it_is_the_default():
  config = config_lib.default()
  for name in ('model.dtype', 'train.start_from', 'data.binarization', 'data.path'):
    override(config, name, None)
  config_lib.validate(config)


CLASSIFIERS = ('differentiable_ram', 'ram', 'convolutional')
BAD_CLASSIFIERS = [
  ('differentiable_ram', 'glimpses', 0, 'at least 1'),
  ('differentiable_ram', 'read_size', 0, 'at least 1'),
  ('differentiable_ram', 'initialization.sigma', 0.0, 'above 0'),
  ('differentiable_ram', 'remat', 'stp', "'step'"),
  ('differentiable_ram', 'dtype', 'half', 'float32, bfloat16'),
  ('differentiable_ram', 'name', 'ramm', "'ram'"),
  ('differentiable_ram', 'name', 'draw', 'experiment'),
  ('ram', 'scales', 0, 'at least 1'),
  ('ram', 'features', -1, 'at least 1'),
  ('ram', 'location_std', 0.0, 'above 0'),
  ('convolutional', 'filters', 0, 'at least 1'),
  ('convolutional', 'stride', 0, 'at least 1'),
  ('convolutional', 'glimpses', 8, 'must be 1'),
]


@pytest.mark.parametrize('row', BAD_CLASSIFIERS)
def test_bad_values_of_classifiers(row):
  model, name, value, *accepted = row
  config = config_lib.default()
  config.model = config_lib.model_section(model)
  config_lib.validate(config)
  override(config, f'model.{name}', value)
  with pytest.raises(UserError) as caught:
    config_lib.validate(config)
  assert_tells(caught.value, name, value, accepted)


@pytest.mark.parametrize('name', CLASSIFIERS)
def test_classifiers_go_through_json(name):
  config = config_lib.default()
  config.model = config_lib.model_section(name)
  config_lib.validate_for(config, (100, 100, 1), 1)
  back = config_lib.from_json(config_lib.to_json(config))
  assert config_lib.differences(config, back) == {}
  assert back.model.name == name
  size = 'filter_size' if name == 'convolutional' else 'read_size'
  with pytest.raises(UserError, match=f'model.{size}=.* is larger than the images, 9 x 100'):
    config_lib.validate_for(config, (9, 100, 1), 1)


def test_what_is_written_and_read_does_not_differ():
  config = config_lib.default()
  config.model.dtype = 'float32'
  config.optimizer.arguments = {'b1': 0.9, 'of_lists': [1, (2, 3)]}
  with config.ignore_type():
    config.train.curriculum = [[16, 2], [32, 1.5]]
  back = config_lib.from_json(config_lib.to_json(config))
  assert config_lib.differences(back, config) == config_lib.differences(config, back) == {}
  config.train.curriculum[1][0] = 31
  assert list(config_lib.differences(back, config)) == ['train.curriculum']


@pytest.mark.parametrize(
  'name,value,devices,accepted',
  [
    ('model.read_size', 29, 1, ('28 x 40',)),
    ('model.write_size', 30, 1, ('28 x 40',)),
    ('train.batch_size', 100, 8, ('8 devices', '96', '104')),
    ('train.batch_size', 3, 4, ('4 devices', 'try 4')),
    ('eval.batch_size', 10, 4, ('4 devices', '8', '12')),
    ('optimizer.accumulate', 3, 1, ('99', '102')),
  ],
)  # fmt: skip
def test_values_that_do_not_fit(name, value, devices, accepted):
  config = config_lib.default()
  override(config, name, value)
  config_lib.validate(config)
  with pytest.raises(UserError) as caught:
    config_lib.validate_for(config, (28, 40, 1), devices)
  assert_tells(caught.value, name, value, accepted)


@pytest.mark.parametrize('name', ['train.batch_size', 'eval.batch_size', 'eval.images'])
def test_what_cannot_fit_into_memory(name):
  config = config_lib.default()
  override(config, name, 10**12)
  with pytest.raises(UserError, match=f'{name}=1000000000000 takes at least .* TB of memory'):
    config_lib.validate_for(config, (28, 28, 1), 8)


@pytest.mark.parametrize('field', ['glimpses', 'hidden', 'latent'])
def test_networks_beyond_any_memory(field):
  """To find out how many parameters they have would take minutes, and the memory."""
  config = config_lib.default()
  override(config, f'model.{field}', 10**9)
  with pytest.raises(UserError, match=f'{field}=1000000000 must be .* at most 100000'):
    config_lib.validate(config)


def test_more_steps_than_can_be_counted():
  config = config_lib.default()
  override(config, 'train.num_steps', 10**20)
  with pytest.raises(UserError, match=r'train\.num_steps=100000000000000000000 must be'):
    config_lib.validate(config)
  config = config_lib.default()
  config.train.epochs = 1e20
  with pytest.raises(UserError, match=r'train\.epochs=1e\+20 are 5\.0e\+22 steps: give at most'):
    phases.make(config, 50_000)


def test_without_attention_the_grids_do_not_matter():
  config = config_lib.default()
  config.model.attention = False
  config.model.read_size = 99
  config_lib.validate_for(config, (28, 28, 1), 1)


@pytest.mark.parametrize('path', EXPERIMENTS, ids=lambda p: p.stem)
def test_experiments_are_valid_and_documented(path):
  config = config_lib.from_file(str(path))
  config_lib.validate(config)
  module = runpy.run_path(str(path))
  assert f'--config={path.stem} ' in module['__doc__'].replace(':', ' ')
  assert config.data.name in data.NAMES


@pytest.mark.parametrize(
  'name,glimpses,hidden,latent,read,write',
  [
    ('mnist', 64, 256, 100, 2, 5),
    ('svhn', 32, 800, 100, 12, 12),
    ('cifar10', 64, 400, 200, 5, 5),
  ],
)
def test_sizes_of_table_3(name, glimpses, hidden, latent, read, write):
  model = config_lib.from_file(f'{FOLDER}/{name}.py').model
  assert (model.glimpses, model.hidden, model.latent) == (glimpses, hidden, latent)
  assert (model.read_size, model.write_size) == (read, write)


@pytest.mark.parametrize(
  'variant,name,glimpses',
  [
    ('', 'differentiable_ram', 8),
    ('8_glimpses', 'differentiable_ram', 8),
    ('4_glimpses', 'differentiable_ram', 4),
    ('ram_8', 'ram', 8),
    ('ram_4', 'ram', 4),
    ('convolutional', 'convolutional', 1),
  ],
)
def test_rows_of_table_1(variant, name, glimpses):
  config = config_lib.from_file(f'{FOLDER}/cluttered_mnist.py:{variant}')
  config_lib.validate(config)
  model = config.model
  assert (model.name, model.glimpses, model.hidden) == (name, glimpses, 256)
  assert (model.get('read_size'), model.get('scales')) == {
    'differentiable_ram': (12, None), 'ram': (12, 4), 'convolutional': (None, None),
  }[name]  # fmt: skip
  assert (config.data.name, config.data.binarization) == ('cluttered_mnist', 'none')
  assert config.eval.split == 'valid'


def test_variants():
  path = f'{FOLDER}/mnist.py'
  assert config_lib.from_file(path).model.attention
  assert not config_lib.from_file(f'{path}:no_attention').model.attention


@pytest.mark.parametrize('name', ['mnist:gray', 'svhn:likelihood', 'cifar10:likelihood'])
def test_likelihoods_of_intensities(name):
  file, _, variant = name.partition(':')
  config = config_lib.from_file(f'{FOLDER}/{file}.py:{variant}')
  config_lib.validate(config)
  assert registry.find(config.data.name).binarization(config.data.binarization) == 'none'
  task = models.create(config.model, (64, 64, 3))
  assert task.is_likelihood('none')
  assert task.metric_label('none') == 'bound (nats)'


def test_components_are_for_a_mixture():
  config = config_lib.default()
  config.model.components = 2
  with pytest.raises(UserError, match=r"model.components=2 is for a mixture, and model.output='b"):
    config_lib.validate_for(config, (28, 28, 1), devices=1)
  config.model.output = 'discretized_logistic'
  config_lib.validate_for(config, (28, 28, 1), devices=1)


@pytest.mark.parametrize(
  'name,message',
  [
    ('mnist.py:no_atention', "did you mean 'no_attention'"),
    ('quickstart.py:small', 'quickstart.py has no variants: leave out :small.'),
    ('mnits.py', r'/mnits.py: did you mean .+/mnist.py\? There are [^,]+/cifar10.py, '),
    ('nope.py', '/nope.py: There are'),  # and none that is like it but for the folder
    ('nowhere/mnist.py', 'nowhere/mnist.py: did you mean mnist\\? There are cifar10, '),
    ('../tests/reference.py', 'reference.py is no experiment: it has no get_config'),
  ],
)
def test_experiments_that_are_not_there(name, message):
  with pytest.raises(UserError, match=message):
    config_lib.from_file(f'{FOLDER}/{name}')


def test_experiments_by_name(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert config_lib.from_file('cluttered_mnist:4_glimpses').model.glimpses == 4
  shipped = config_lib.shipped_experiments()
  assert list(shipped) == [path.stem for path in EXPERIMENTS]
  assert all(config_lib.find_experiment(name) == str(path) for name, path in shipped.items())
  # A file at hand comes first, as it always did.
  pathlib.Path('mnist').write_text('def get_config():\n  return 3\n')
  with pytest.raises(UserError, match=r'get_config\(\) of mnist gives int, and no config'):
    config_lib.from_file('mnist')


@pytest.mark.parametrize(
  'name,message',
  [
    ('mnits', 'no experiment mnits: did you mean mnist? There are cifar10, '),
    ('mnist:no_atention', "variant='no_atention' is not known: did you mean 'no_attention'?"),
    ('qqq:small', 'no experiment qqq: There are cifar10, '),
    ('mnist.py', 'no experiment mnist.py: did you mean mnist? There are cifar10, '),
  ],
)
def test_names_of_experiments_that_are_not_there(name, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(UserError) as caught:
    config_lib.from_file(name)
  assert str(caught.value).startswith(message)
  assert '\n' not in str(caught.value)


SLIPS = {
  'config.train.epoch = 1': ', line 4: no field epoch: did you mean epochs?',
  'config.train["epoch"] = 1': ', line 4: no field epoch: did you mean epochs?',
  'config.train.update(epoch=1)': ', line 4: no field epoch: did you mean epochs?',
  'config.optimizer.clip_norm /= config.optimizer.clipnorm': 'did you mean clip_norm?',
  'config.trian = {}': 'no field trian: did you mean train?',
  'config.model.steps = 3': 'no field steps: it is now model.glimpses',
  'config.model = config_lib.model_section("ram", glimpse=3)': 'did you mean glimpses?',
  'config.xyz = 3': 'no field xyz: those that there are stand in draw_jax.config',
  'config.train.epochs = "x"': "line 4: TypeError: Could not override field 'epochs'",
  'config = None': 'gives NoneType, and no config: start from draw_jax.config.default()',
  'config = config.to_dict()': 'gives dict, and no config',
  'config.unlock(); del config.eval': 'gives a config without eval: start from',
  'config.unlock(); del config.eval.images': 'gives a config without eval.images: start',
  'config.unlock(); config.train.epoch = 1': 'no field train.epoch: did you mean train.epochs?',
  'config.unlock(); config.trian = 1': 'no section or field trian: did you mean train?',
  'config.epochs = = 1': 'line 4: SyntaxError: invalid syntax',
  'config.train.epochs = 1 / 0': 'line 4: ZeroDivisionError: division by zero',
}


@pytest.mark.parametrize('line', SLIPS)
def test_slips_in_an_experiment(line, tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(
    'from draw_jax import config as config_lib\ndef get_config():\n'
    f'  config = config_lib.default()\n  {line}\n  return config\n'
  )
  with pytest.raises(UserError) as caught:
    config_lib.validate(config_lib.from_file(str(path)))
  assert SLIPS[line] in str(caught.value)
  assert '\n' not in str(caught.value)


def test_arguments_of_an_optimizer_are_its_own():
  """The rest of the default config is locked."""
  config = config_lib.default()
  config.optimizer.name = 'adafactor'
  config.optimizer.arguments.min_dim_size_to_factor = 64
  config_lib.validate(config)
  config.model = config_lib.model_section('ram', glimpses=4)
  with pytest.raises(AttributeError, match='Did you mean "glimpses"'):
    config.model.glimpse = 5


def test_json():
  config = config_lib.default()
  config.train.curriculum = ((16, 2), (32, 1.5))
  back = config_lib.from_json(config_lib.to_json(config))
  assert config_lib.differences(config, back) == {}
  assert back.train.curriculum == ((16, 2), (32, 1.5))
  assert back.data.path is None


def test_json_that_lacks_fields_added_since():
  older = support.tiny_config('images.npy').unlock()
  older.model.latent = 7
  del older.model.hidden, older.model.dtype, older.model.initialization.read_sigma
  del older.data.channels, older.eval.split, older.train.kl_warmup_steps
  back = config_lib.from_json(config_lib.to_json(older))
  assert (back.model.latent, back.model.hidden, back.model.dtype) == (7, 256, None)
  assert back.model.initialization.read_sigma == initialization.Initialization().read_sigma
  assert (back.data.channels, back.eval.split) == (None, 'valid')
  assert 'kl_warmup_steps' not in back.train
  del older.model.initialization
  back = config_lib.from_json(config_lib.to_json(older))
  assert back.model.initialization.to_dict() == dataclasses.asdict(initialization.Initialization())


def test_every_field_is_commented():
  declared = [
    registry.DataConfig,
    *(spec.options for spec in map(registry.find, data.NAMES) if spec.options),
    *(entry.config for entry in models.MODELS.values()),
    initialization.Initialization,
    differentiable_ram.GlimpseInitialization,
    optimizer.OptimizerConfig,
    *vars(config_lib).values(),
  ]
  seen = 0
  for one in filter(dataclasses.is_dataclass, declared):
    lines = inspect.getsource(one).splitlines()
    for i, line in enumerate(lines):
      if re.match(r'  \w+: .* = ', line):
        seen += 1
        assert lines[i - 1].strip().startswith('# ') or 'help=' in line, line
  assert seen > 60


def test_an_option_of_one_dataset_is_a_field():
  config = config_lib.default()
  override(config, 'data.image_size', 0)
  with pytest.raises(UserError, match=r'data\.image_size=0 must be a number at least 1'):
    config_lib.validate(config)
  with pytest.raises(UserError, match="mnist takes no path: only the dataset 'images' does"):
    data.open_dataset('mnist', path='here')


@pytest.mark.parametrize(
  'name,now',
  [
    ('model.steps', 'model.glimpses'),
    ('model.start', 'model.initialization'),
    ('optimizer.beta1', 'optimizer.arguments.b1'),
    ('eval.pictures', 'eval.images'),
  ],
)
def test_an_experiment_that_sets_a_field_by_its_older_name(name, now):
  config = config_lib.default()
  override(config, name, 3)
  with pytest.raises(UserError, match=f'no field {name}: it is now {now}'):
    config_lib.validate(config)


def test_plan():
  config = support.tiny_config('images.npy')
  config.train.update({
    'num_steps': 0, 'epochs': 5.0, 'batch_size': 10, 'curriculum': ((4, 1), (8, 1.5)),
  })  # fmt: skip
  config.model.glimpses = 16
  made = phases.make(config, num_examples=100)
  assert made.num_steps == 50
  assert made.phases == ((10, 4), (25, 8), (50, 16))
  assert [made.glimpses(s) for s in (0, 9, 10, 24, 25, 49)] == [4, 4, 8, 8, 16, 16]
  assert [made.phases_left(s) for s in (10, 11, 25, 26)] == [2, 1, 1, 0]
  assert [s for s in range(1, 51) if made.evaluates(s)] == [20, 40, 50]
  assert made.work(0, 50) == 10 * 4 + 15 * 8 + 25 * 16
  assert made.work(5, 30) == 5 * 4 + 15 * 8 + 5 * 16
  assert made.epoch(25) == 2.5
