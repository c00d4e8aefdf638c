"""A trained model as the start of a run."""

import types

import jax.numpy as jnp
import pytest
import test_trained

from draw_jax import config as config_lib
from draw_jax import trained
from draw_jax.errors import UserError
from draw_jax.training import start


@pytest.fixture
def original(tmp_path):
  path = tmp_path / 'tiny.safetensors'
  trained.save(path, test_trained.make_trained())
  return str(path)


def a_run(original, image_shape=(8, 8, 1), **model):
  """Config and dataset of a run, its network not that of the trained model where fields say so."""
  config = config_lib.default()
  config.model = test_trained.model_section('draw')
  config.model.update(model)
  config.train.start_from = original
  return config, types.SimpleNamespace(image_shape=image_shape, num_classes=None)


def refused(*args) -> str:
  with pytest.raises(UserError) as caught:
    start.load(*args)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def test_a_model_that_lacks_what_has_no_effect(original):
  params = test_trained.make_trained().params
  like = {**params, 'more': jnp.zeros(2)}
  run = a_run(original)
  assert start.load(*run, like, ('more',)).params.keys() == params.keys()
  assert 'another network: more is missing' in refused(*run, like)


def test_the_fields_to_set_are_named(original):
  """Those alone that matter to the shapes of arrays."""
  like = {'canvas': jnp.zeros(3)}
  said = refused(*a_run(original, hidden=9, write_size=4, read_size=3, glimpses=5), like)
  given = '--config.model.hidden=8 --config.model.read_size=2 --config.model.write_size=3, or: '
  assert f'than the config describes: give {given}--start_from={original}' in said
  assert 'glimpses' not in said


def test_images_of_another_size(original):
  config, dataset = a_run(original, image_shape=(9, 8, 3))
  said = refused(config, dataset, {'canvas': jnp.zeros(3)})
  assert 'is of images of 8 x 8 x 1, and these are 9 x 8 x 3: give images of that size.' in said
  config.data.path = 'mine'
  said = refused(config, dataset, {'canvas': jnp.zeros(3)})
  assert 'size (--config.data.image_size=8 --config.data.channels=1).' in said


def test_another_kind_of_model(original):
  config, dataset = a_run(original)
  config.model = config_lib.model_section('differentiable_ram')
  said = refused(config, dataset, {'canvas': jnp.zeros(3)})
  assert "a model 'draw', and the config describes another: --start_from=" in said


def test_the_section_model_of_a_file(original, tmp_path, monkeypatch):
  config = config_lib.default()
  monkeypatch.setattr(trained, 'TrainedModel', lambda *_, **__: pytest.fail('touches a device'))
  start.take_model(config, original, tmp_path / 'run', {'model.remat': 'none', 'data.path': 'x'})
  expected = test_trained.model_section('draw')
  expected.remat = 'none'
  assert config.model.to_dict() == expected.to_dict()
  assert config.train.start_from == original and config.data.path is None
  config_lib.validate(config)
