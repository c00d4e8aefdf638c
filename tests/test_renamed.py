"""What older versions wrote: a workdir and a model file of before T was called glimpses."""

import json
import pathlib
import tarfile

import jax
import numpy as np
import pytest
import training_support as support

from draw_jax import config as config_lib
from draw_jax import renamed, trained
from draw_jax.devices import sharding
from draw_jax.errors import UserError
from draw_jax.evaluation import evaluator
from draw_jax.figures import gallery
from draw_jax.tasks import base
from draw_jax.training import loop, run_log
from draw_jax.training import workdir as workdir_lib

OLDER = pathlib.Path(__file__).parent / 'older'


@pytest.fixture
def workdir(tmp_path, monkeypatch):
  """Twenty steps of `config`, the first nine of them with two glimpses."""
  with tarfile.open(OLDER / 'run.tar.gz') as archive:
    archive.extractall(tmp_path, filter='data')
  monkeypatch.chdir(tmp_path)
  support.write_images(tmp_path)
  return tmp_path / 'run'


@pytest.fixture
def config():
  made = support.tiny_config('images.npy')
  made.train.update(num_steps=20, curriculum=((2, 1),))
  made.checkpoint.keep_latest = 1
  return made


def test_a_model_file(workdir):
  """Opens by today's names, and is the model of the workdir to the last bit."""
  for model in (trained.load(OLDER / 'model.safetensors'), trained.from_workdir(workdir)):
    assert (model.model.glimpses, model.step, model.num_train) == (3, 20, 72)
    assert model.model.initialization.write_scale == 2.0
    assert model.config.optimizer.arguments.to_dict() == {
      'b1': None, 'b2': None, 'weight_decay': None
    }  # fmt: skip
    # What the version that wrote it gave for it.
    options = base.EvaluationOptions(split='valid', importance_samples=(4,))
    found = evaluator.Evaluator(model.task, model.dataset, options, sharding.make_mesh(), (3,))
    (row,) = found.measure(model.params).results
    assert row['bound']['mean'] == pytest.approx(35.63340568449348, rel=1e-6)
    assert row['importance'][0]['mean'] == pytest.approx(35.50723818370279, rel=1e-6)
  file, run = (m.params for m in (trained.load(OLDER / 'model.safetensors'), model))
  jax.tree.map(np.testing.assert_array_equal, file, run)
  assert trained.load(OLDER / 'model.safetensors').provenance['trained_glimpses'] == 3


def test_a_workdir_is_at_its_end_and_goes_on(workdir, config):
  assert workdir_lib.read_end(workdir, config)['step'] == 20
  assert workdir_lib.claim(workdir, config) == {}
  config.train.num_steps = 23
  result = loop.train(config, workdir)
  assert result.step == 23 and result.best['step'] in (20, 23)
  rows = run_log.read(workdir)
  assert {row['glimpses'] for row in rows} == {2, 3}
  assert not any('steps' in row for row in rows)
  assert [row['step'] for row in rows if row['split'] == 'train'] == [5, 9, 10, 15, 20, 23]
  gallery.make_curves(trained.from_workdir(workdir), gallery.FigureOptions(workdir / 'figures'))


def test_another_optimizer_is_refused_by_name(workdir, config):
  config.train.num_steps = 23
  config.optimizer.name = 'lion'
  with pytest.raises(UserError, match=r'optimizer\.name: adamw there, lion now'):
    loop.train(config, workdir)


@pytest.mark.parametrize(
  'name, before, now, words',
  [
    ('sgd', {}, {'momentum': 0.9}, r'\S*trace\S* is float32 .*, not there'),
    ('adamw', {'b1': 0.9}, {'mu_dtype': 'bfloat16'}, r'\S*mu/canvas is bfloat16 .*, not float32 '),
  ],
)
def test_other_arguments_that_change_the_state_are_refused(tmp_path, name, before, now, words):
  config = support.tiny_config(support.write_images(tmp_path))
  config.train.num_steps = 2
  config.optimizer.name, config.optimizer.arguments = name, before
  assert loop.train(config, tmp_path / 'run').step == 2
  config.optimizer.arguments = now
  refused = rf'other optimizer\.arguments than .*: optimizer/{words}.* the same values'
  with pytest.raises(UserError, match=refused):
    loop.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run' / 'damaged').exists()
  config.optimizer.arguments = before
  config.train.num_steps = 3
  assert loop.train(config, tmp_path / 'run').step == 3


def test_the_defaults_that_older_versions_wrote_out_are_left_to_adamw():
  fields = {'optimizer': {'beta1': 0.8, 'beta2': 0.999, 'weight_decay': 0.0}}
  found = renamed.config(fields)['optimizer']
  assert found == {'name': 'adamw', 'arguments': {'b1': 0.8, 'b2': None, 'weight_decay': None}}
  assert renamed.config({'optimizer': found}) == {'optimizer': found}


def test_todays_names_stay():
  fields = config_lib.default().to_dict()
  fields['model']['dtype'] = 'float32'
  assert renamed.config(fields) == fields
  older = {**fields, 'eval': {'pictures': 4}}
  assert renamed.config(older)['model']['dtype'] is None
  assert json.loads(json.dumps(renamed.record({'step': 3, 'glimpses': 2}))) == {
    'step': 3, 'glimpses': 2
  }  # fmt: skip
