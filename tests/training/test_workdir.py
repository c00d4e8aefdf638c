import errno
import json

import pytest
import training_support as support

from draw_jax.errors import UserError
from draw_jax.training import workdir as workdir_lib


def test_workdir_that_cannot_be(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match=r'cannot write into --workdir=.*: Not a directory'):
    workdir_lib.claim(tmp_path / 'file' / 'run', support.tiny_config('images.npy'))
  with (
    pytest.raises(UserError, match=r'cannot write into --workdir=.*/file: File exists'),
    workdir_lib.alone(tmp_path / 'file'),
  ):
    pass


def test_the_end_of_a_run_is_told_until_it_goes_on(tmp_path):
  config = support.tiny_config('images.npy')
  assert workdir_lib.read_end(tmp_path, config) is None
  workdir_lib.claim(tmp_path, config)
  assert workdir_lib.read_end(tmp_path, config) is None
  workdir_lib.end(tmp_path, {'step': 60, 'num_steps': 60})
  assert workdir_lib.read_end(tmp_path, config) == {'step': 60, 'num_steps': 60}
  (tmp_path / 'result.json').write_text('{"step": 6')
  assert workdir_lib.read_end(tmp_path, config) is None
  config.train.num_steps = 90
  assert workdir_lib.read_end(tmp_path, config) is None  # the end of a shorter one
  workdir_lib.claim(tmp_path, config)
  assert workdir_lib.read_end(tmp_path, config) is None


@pytest.mark.parametrize(
  'name, text',
  [('config.json', '{'), ('config.json', '[1]'), ('result.json', '[1]'), ('result.json', '{}')],
)
def test_a_run_that_cannot_be_read_has_not_ended(tmp_path, name, text):
  config = support.tiny_config('images.npy')
  workdir_lib.claim(tmp_path, config)
  workdir_lib.end(tmp_path, {'step': 60, 'num_steps': 60})
  (tmp_path / name).write_text(text)
  assert workdir_lib.read_end(tmp_path, config) is None
  (tmp_path / name).unlink()
  (tmp_path / name).mkdir()
  assert workdir_lib.read_end(tmp_path, config) is None


def test_a_changed_number_is_noticed(tmp_path):
  config = support.tiny_config('images.npy')
  config.optimizer.arguments = {'of_tuples': (1, (2, 3))}
  workdir_lib.claim(tmp_path, config)
  workdir_lib.end(tmp_path, {'step': 60, 'num_steps': 60, 'best': {'rank': (0, 1.5)}})
  path = tmp_path / 'result.json'
  path.write_text(path.read_text().replace('1.5', '0.5'))
  assert workdir_lib.read_end(tmp_path, config) is None
  path = tmp_path / 'config.json'
  path.write_text(path.read_text().replace('"glimpses": 3', '"glimpses": 2'))
  with pytest.raises(UserError, match=r"config\.json cannot be read .*must lose its 'checksum'"):
    workdir_lib.read_config(tmp_path)
  fields = json.loads(path.read_text())
  del fields['checksum']  # by hand, as an older version wrote it
  path.write_text(json.dumps(fields))
  assert workdir_lib.read_config(tmp_path).model.glimpses == 2


def test_two_trainings_in_one_workdir(tmp_path):
  with workdir_lib.alone(tmp_path / 'run'):
    with (
      pytest.raises(UserError, match=r'another training is at work in --workdir=.*/run'),
      workdir_lib.alone(tmp_path / 'run'),
    ):
      pass
    with workdir_lib.alone(tmp_path / 'other'):
      pass
  with workdir_lib.alone(tmp_path / 'run'):  # The first has ended.
    pass


def test_a_file_system_without_locks(tmp_path, monkeypatch):
  def refuse(*_):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(workdir_lib.fcntl, 'flock', refuse)
  with workdir_lib.alone(tmp_path), workdir_lib.alone(tmp_path):
    pass
