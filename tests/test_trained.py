"""Models in files, with a tiny network that stands in for those that ship."""

import dataclasses
import hashlib
import json
import pathlib
import pickle
import shutil
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import training_support as support

import draw_jax
from draw_jax import config as config_lib
from draw_jax import trained
from draw_jax.errors import UserError
from draw_jax.pretrained import file_format
from draw_jax.tasks import registry as tasks

T = 2  # of training when the checkpoint was saved; the config ends with more


def model_section(kind: str):
  if kind == 'draw':
    return support.tiny_config('').model
  section = config_lib.model_section(kind)
  section.update(glimpses=3, hidden=8, read_size=3)
  return section


def any_params(task):
  """Random numbers in the place of every parameter."""
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(task.init, jax.random.key(0), np.zeros((8, 8, 1), np.float32))
  return jax.tree.map(lambda a: jnp.asarray(rng.normal(0, 0.3, a.shape), a.dtype), shapes)


def make_trained(kind: str = 'draw', **more) -> trained.TrainedModel:
  """A network with any numbers in it, as if from a checkpoint."""
  config = support.tiny_config('images.npy')
  config.model = model_section(kind)
  task = tasks.create(config.model, (8, 8, 1), 10)
  params = any_params(task)
  about = {'image_shape': (8, 8, 1), 'num_classes': 10, 'binarization': 'none', **more}
  return trained.TrainedModel('tiny', config, params, 40, T, True, {task.metric: 5.25}, **about)


@pytest.fixture(scope='module')
def original(tmp_path_factory):
  path = tmp_path_factory.mktemp('models') / 'tiny.safetensors'
  trained.save(path, make_trained(), commit='abc', note='never trained')
  return path


@pytest.fixture
def path(original, tmp_path):
  return pathlib.Path(shutil.copy(original, tmp_path))


@pytest.fixture
def shelf(tmp_path, monkeypatch):
  """An empty folder in place of that of the shipped models."""
  folder = tmp_path / 'shelf'
  folder.mkdir()
  monkeypatch.setattr(trained, 'folder', lambda: folder)
  return folder


def message(function, *args, **kwargs) -> str:
  with pytest.raises(UserError) as caught:
    function(*args, **kwargs)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def parse(content: bytes) -> tuple[dict, bytes]:
  """Header and data, by the format's description alone."""
  (size,) = struct.unpack('<Q', content[:8])
  return json.loads(content[8 : 8 + size]), content[8 + size :]


def assemble(header: dict, data: bytes) -> bytes:
  text = json.dumps(header).encode()
  return struct.pack('<Q', len(text)) + text + data


def sha256(header: dict, data: bytes) -> str:
  about = json.loads(header['__metadata__']['draw_jax'])
  del about['sha256']
  whole = json.dumps(about, sort_keys=True).encode()
  for name in sorted(header.keys() - {'__metadata__'}):
    tensor = header[name]
    assert tensor['dtype'] == 'F32'
    start, end = tensor['data_offsets']
    shape = ' x '.join(map(str, tensor['shape']))
    whole += f'\n{name} float32 {shape}\n'.encode() + data[start:end]
  return hashlib.sha256(whole).hexdigest()


def test_the_format(original):
  """Read with no library: the names, the numbers and the hash are where they should be."""
  header, data = parse(original.read_bytes())
  assert header.keys() >= {'__metadata__', 'canvas', 'decoder/kernel', 'read_window/bias'}
  assert header['__metadata__'].keys() == {'draw_jax'}
  about = json.loads(header['__metadata__']['draw_jax'])
  assert about['sha256'] == sha256(header, data)
  start, end = header['decoder/kernel']['data_offsets']
  kernel = np.frombuffer(data[start:end], '<f4').reshape(header['decoder/kernel']['shape'])
  np.testing.assert_array_equal(kernel, make_trained().params['decoder']['kernel'])


@pytest.mark.parametrize('kind', ['draw', 'differentiable_ram'])
def test_all_of_a_model_comes_back(kind, tmp_path):
  loaded = make_trained(kind)
  trained.save(tmp_path / 'a.safetensors', loaded)
  back = trained.load(tmp_path / 'a.safetensors')
  assert config_lib.differences(back.config, loaded.config) == {}
  assert back.config.train.curriculum == ()
  assert jax.tree.structure(back.params) == jax.tree.structure(loaded.params)
  for a, b in zip(jax.tree.leaves(back.params), jax.tree.leaves(loaded.params), strict=True):
    assert isinstance(a, jax.Array)
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
  names = {field.name for field in dataclasses.fields(loaded)}
  for name in names - {'name', 'config', 'params', 'provenance'}:
    assert getattr(back, name) == getattr(loaded, name), name
  model = draw_jax.load(tmp_path / 'a.safetensors').model
  assert type(model) is tasks.MODELS[kind].module
  assert model.glimpses == T


def test_a_model_in_16_bits(tmp_path):
  loaded = make_trained()
  sizes = [
    trained.save(tmp_path / name, loaded, half=half)
    for name, half in (('whole.safetensors', False), ('half.safetensors', True))
  ]
  numbers = sum(leaf.size for leaf in jax.tree.leaves(loaded.params))
  assert sizes[0] - sizes[1] == pytest.approx(2 * numbers, abs=100)
  back = trained.load(tmp_path / 'half.safetensors')
  for a, b in zip(jax.tree.leaves(back.params), jax.tree.leaves(loaded.params), strict=True):
    assert a.dtype == jnp.float32
    np.testing.assert_array_equal(a, np.asarray(b).astype(np.float16))


def test_numbers_too_large_for_16_bits_are_refused(tmp_path):
  loaded = make_trained()
  params = {**loaded.params, 'canvas': jnp.full((8, 8, 1), 1e6)}
  large = dataclasses.replace(loaded, params=params)
  words = message(trained.save, tmp_path / 'a.safetensors', large, half=True)
  assert 'canvas has numbers too large' in words and not list(tmp_path.iterdir())


def test_a_file_keeps_the_learning_curve(tmp_path):
  """Thinned, with its last point, and without what came after the model."""
  rows = [{'split': 'train', 'step': step, 'bound': 100.0 - step} for step in range(501)]
  rows += [{'split': 'valid', 'step': 40, 'bound': 5.25}, {'split': 'valid', 'step': 41}]
  (tmp_path / 'metrics.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
  loaded = dataclasses.replace(make_trained(), workdir=tmp_path, step=450)
  trained.save(tmp_path / 'a.safetensors', loaded)
  back = trained.load(tmp_path / 'a.safetensors').curve
  assert back[-1] == {'split': 'valid', 'step': 40, 'bound': 5.25}
  steps = [row['step'] for row in back if row['split'] == 'train']
  assert steps == sorted(steps) and len(steps) <= 200 and steps[-1] == 450
  assert all(row['bound'] == 100 - row['step'] for row in back[:-1])


def test_a_model_without_an_average_says_so(tmp_path):
  loaded = make_trained()
  loaded.config.optimizer.ema_decay = 0.0
  path = tmp_path / 'a.safetensors'
  trained.save(path, dataclasses.replace(loaded, ema=False))
  again = trained.load(path)
  assert not again.ema and 'no average' in again.provenance['validation']['measured']


def test_a_model_is_ready_for_use(original):
  m = draw_jax.load(str(original))
  key = jax.random.key(0)
  _, trace = m.model.apply({'params': m.params}, 5, key, trace=True, method='generate')
  assert trace.canvas.shape == (T, 5, 8, 8, 1)
  assert m.config.model.hidden == 8
  facts = {
    'dataset': 'images', 'binarization': 'none', 'step': 40, 'trained_glimpses': T,
    'image_shape': [8, 8, 1], 'num_classes': 10, 'note': 'never trained',
  }  # fmt: skip
  assert m.provenance.items() >= facts.items()
  assert m.provenance['validation']['metrics'] == {'bound': 5.25}
  assert 'each image of split valid once, T 2' in m.provenance['validation']['measured']
  assert m.provenance['exported_with'].items() >= {'commit': 'abc', 'jax': jax.__version__}.items()


def test_the_same_model_gives_the_same_file(original, tmp_path):
  again = tmp_path / 'again.safetensors'
  size = trained.save(again, make_trained(), commit='abc', note='never trained')
  assert again.read_bytes() == original.read_bytes()
  assert size == again.stat().st_size


# Content of a file that was changed on its way, and words of the message.


def cut(content):
  return content[:-4]


def cut_in_the_header(content):
  return content[:300]


def nothing(content):
  return b''


def flip_a_number(content):
  return content[:-50] + bytes([content[-50] ^ 1]) + content[-49:]


def append(content):
  return content + bytes(4)


def other_config(content):
  assert content.count(rb'\"latent\": 2') == 1
  return content.replace(rb'\"latent\": 2', rb'\"latent\": 3')


def other_provenance(content):
  return content.replace(b'never trained', b'quite trained')


def swap_names(content):
  header, data = parse(content)
  header['decoder/h'], header['decoder/c'] = header['decoder/c'], header['decoder/h']
  return assemble(header, data)


def no_metadata(content):
  header, data = parse(content)
  del header['__metadata__']
  return assemble(header, data)


def metadata_of_others(content):
  header, data = parse(content)
  header['__metadata__'] = {'format': 'pt'}
  return assemble(header, data)


def metadata_not_json(content):
  header, data = parse(content)
  header['__metadata__'] = {'draw_jax': 'mnist'}
  return assemble(header, data)


def metadata_not_an_object(content):
  header, data = parse(content)
  header['__metadata__'] = {'draw_jax': '[1]'}
  return assemble(header, data)


def newer_format(content):
  return content.replace(b'draw_jax.model/3', b'draw_jax.model/4')


def type_without_numpy(content):
  """float8, which the format has and numpy has not."""
  header, data = parse(content)
  shape = header['decoder/h']['shape']
  header['decoder/h'].update(dtype='F8_E4M3', shape=[4 * shape[0]])
  return assemble(header, data)


class Trap:
  def __reduce__(self):
    return (pytest.fail, ('code of the file was run',))


def a_pickle(content):
  return pickle.dumps(Trap())


@pytest.mark.parametrize(
  'change,words',
  [
    (cut, 'damaged or no safetensors file'),
    (cut_in_the_header, 'damaged or no safetensors file'),
    (nothing, 'damaged or no safetensors file'),
    (append, 'damaged or no safetensors file'),
    (a_pickle, 'damaged or no safetensors file'),
    (type_without_numpy, 'damaged'),
    (flip_a_number, 'does not have the sha256'),
    (other_config, 'does not have the sha256'),
    (other_provenance, 'does not have the sha256'),
    (swap_names, 'does not have the sha256'),
    (no_metadata, 'is no model of draw_jax'),
    (metadata_of_others, 'is no model of draw_jax'),
    (metadata_not_json, 'is no model of draw_jax'),
    (metadata_not_an_object, 'is no model of draw_jax'),
    (newer_format, 'has the format draw_jax.model/4, this version reads draw_jax.model/3'),
  ],
  ids=lambda value: getattr(value, '__name__', ''),
)
def test_a_file_that_was_changed(path, change, words):
  content = path.read_bytes()
  path.write_bytes(change(content))
  assert path.read_bytes() != content
  said = message(draw_jax.load, path)
  assert said.startswith(str(path))
  assert words in said


# Changes to a file before it was written, so that its hash is right.


def rewrite(path, change) -> None:
  """Writes the file with other tensors or another description, and their hash."""
  about = json.loads(parse(path.read_bytes())[0]['__metadata__']['draw_jax'])
  tensors = safetensors.numpy.load_file(path)
  change(about, tensors)
  about['sha256'] = file_format.digest(about, tensors)
  safetensors.numpy.save_file(tensors, path, {'draw_jax': json.dumps(about)})


@pytest.mark.parametrize(
  'change,words',
  [
    (lambda about, tensors: None, None),
    (lambda about, tensors: tensors.pop('canvas'), 'canvas is missing, not float32 8 x 8 x 1'),
    (lambda about, tensors: tensors.update(more=tensors['canvas']), 'more is float32 8 x 8 x 1'),
    (
      lambda about, tensors: tensors.update(canvas=tensors['canvas'][:4].copy()),
      'canvas is float32 4 x 8 x 1, not float32 8 x 8 x 1',
    ),
    (
      lambda about, tensors: tensors.update(canvas=tensors['canvas'].astype(np.float16)),
      'canvas is float16 8 x 8 x 1, not float32',
    ),
    (lambda about, tensors: about['config']['model'].update(hidden=9), 'of another model than'),
    (lambda about, tensors: about.update(image_shape=[9, 8, 1]), 'of another model than'),
    (lambda about, tensors: about['config']['model'].update(wings=2), 'no model of this version'),
    (lambda about, tensors: about['config']['model'].update(name='dra'), "did you mean 'draw'"),
    (lambda about, tensors: about['config']['model'].update(output='x'), 'no model of this'),
    (lambda about, tensors: about['config'].pop('model'), 'no model of this version'),
    (lambda about, tensors: about.pop('step'), 'says no step'),
    (lambda about, tensors: about.update(step='many'), 'says step=many'),
    (lambda about, tensors: about.pop('exported_with'), 'says no exported_with'),
    (lambda about, tensors: about.update(trained_glimpses=10**9), 'trained_glimpses=1000000000'),
    (lambda about, tensors: about.update(trained_glimpses=-1), 'says trained_glimpses=-1'),
    (lambda about, tensors: about.update(image_shape=[0, 8]), 'says image_shape=[0, 8]'),
    (lambda about, tensors: about.update(validation=3), 'says validation=3'),
    (lambda about, tensors: about.update(curve=[[1]]), 'says curve=[[1]]'),
    (lambda about, tensors: about.update(config=[]), 'says config=[]'),
    # What an older version did not write is what the network does by itself.
    (lambda about, tensors: about['config']['model'].pop('output'), None),
    (lambda about, tensors: about['config']['model'].pop('initialization'), None),
    (lambda about, tensors: about['config'].pop('eval'), None),
  ],
)  # fmt: skip
def test_a_file_of_another_model_or_version(path, change, words):
  rewrite(path, change)
  if words is None:
    assert draw_jax.load(path).model.output == 'bernoulli'
  else:
    said = message(draw_jax.load, path)
    assert said.startswith(str(path))
    assert words in said


def test_numbers_that_are_not_finite_are_not_used(path):
  rewrite(path, lambda about, tensors: tensors['canvas'].__setitem__(0, np.nan))
  assert 'holds numbers in canvas that are not finite' in message(trained.find, None, str(path))


def test_more_latents_than_there_is_memory_for():
  assert 'of memory, and there are' in message(make_trained().with_latents, 10**12)


def test_no_file(tmp_path):
  assert message(draw_jax.load, tmp_path / 'a') == f'there is no file {tmp_path / "a"}.'
  assert message(draw_jax.load, 'a.safetensors') == 'there is no file a.safetensors.'
  assert f'cannot read {tmp_path}' in message(draw_jax.load, tmp_path)


def test_shipped_models_go_by_name(shelf, original, monkeypatch):
  said = message(draw_jax.load, 'mnist')
  assert "no model 'mnist': none is shipped" in said and 'draw_jax.export' in said
  for name in ('mnist.safetensors', 'svhn.safetensors', '.half.safetensors', 'notes.txt'):
    shutil.copy(original, shelf / name)
  assert trained.names() == ['mnist', 'svhn']
  assert draw_jax.load('mnist').provenance['step'] == 40
  # A file of that name where the user happens to be is another matter.
  monkeypatch.chdir(shelf)
  (shelf / 'mnist').write_text('')
  assert draw_jax.load('mnist').provenance['step'] == 40
  said = message(draw_jax.load, 'MNITS')
  assert said == "no model 'MNITS': did you mean 'mnist'? There are mnist, svhn."
  assert message(draw_jax.load, 'bird') == "no model 'bird': There are mnist, svhn."


def test_every_model_that_ships_is_whole():
  assert 'mnist' in trained.names()
  for name in trained.names():
    draw_jax.load(name)
    assert (trained.folder() / f'{name}.safetensors').stat().st_size <= 5_000_000


def test_a_file_appears_whole_or_not_at_all(path):
  before = path.read_bytes()
  bad = make_trained()
  bad.params['canvas'] = jnp.zeros((9, 8, 1))
  for name in (path.name, 'new.safetensors'):
    assert 'canvas is float32 9 x 8 x 1' in message(trained.save, path.parent / name, bad)
    assert 'has 0.0 MB, and only those of up to 0 MB' in message(
      trained.save, path.parent / name, make_trained(), limit=100
    )
  assert list(path.parent.iterdir()) == [path]
  assert path.read_bytes() == before


def test_a_model_by_the_flags_of_a_binary(shelf, original):
  shutil.copy(original, shelf / 'mnist.safetensors')
  found = trained.find(None, 'mnist')
  assert (found.name, found.workdir, found.model.glimpses) == ('mnist', None, T)
  assert trained.find(None, str(original)).name == 'tiny'
  for workdir, name in ((None, None), ('somewhere', 'mnist')):
    assert 'give either --workdir' in message(trained.find, workdir, name)
  assert '--checkpoint and --noema' in message(trained.find, None, 'mnist', 'latest')
  assert '--checkpoint and --noema' in message(trained.find, None, 'mnist', ema=False)
