"""What joins several processes, and what keeps them from working on different things."""

import pathlib
import socket
import subprocess

import numpy as np
import pytest
import training_support as support

from draw_jax import errors
from draw_jax.devices import processes


@pytest.mark.parametrize(
  ('environ', 'expected'),
  [
    ({}, False),
    ({'SLURM_NTASKS': '4'}, False),  # sbatch alone: the others were never started
    ({'SLURM_NTASKS': '4', 'SLURM_STEP_NODELIST': 'a,b'}, True),
    ({'SLURM_NTASKS': '1', 'SLURM_STEP_NODELIST': 'a'}, False),
    ({'OMPI_COMM_WORLD_SIZE': '2'}, True),
    ({'KUBERNETES_SERVICE_HOST': '10.0.0.1'}, False),
    ({'KUBERNETES_SERVICE_HOST': '10.0.0.1', 'JOB_COMPLETION_INDEX': '0'}, True),
  ],
)
def test_schedulers(environ, expected):
  assert processes.scheduled(environ) == expected


@pytest.mark.parametrize('given', [('h:1', 2, None), (None, None, 0), ('h:1', 2, 2)])
def test_incomplete_flags_of_processes(given):
  with pytest.raises(errors.UserError, match='process'):
    processes.join(*given)


@pytest.mark.parametrize('address', ['host', 'host:', ':80', '80'])
def test_an_address_without_a_port(address):
  with pytest.raises(errors.UserError, match=f'--coordinator_address={address} is not host:port'):
    processes.join(address, 2, 0)


def test_an_address_in_use_is_refused():
  """Two processes that are both told to be 0 would share it, and one would abort."""
  with socket.create_server(('127.0.0.1', 0)) as server:
    address = f'127.0.0.1:{server.getsockname()[1]}'
    with pytest.raises(errors.UserError, match=r'already in use.*one process with --proc'):
      processes.join(address, 2, 0)


def test_a_port_that_cannot_be():
  with pytest.raises(errors.UserError, match='70000: ports end at 65535'):
    processes.join('127.0.0.1:70000', 2, 0)


@pytest.mark.parametrize(
  ('host', 'own'),
  [
    ('127.0.0.1', True),
    ('localhost', True),
    ('0.0.0.0', True),
    ('192.0.2.1', False),  # of no machine
    ('draw-0.draw', False),
  ],
)
def test_which_address_to_listen_on(host, own):
  """A name may mean another address here than for the other processes."""
  assert processes._is_own_number(host) == own


def test_what_differs_is_named_with_the_processes():
  same = {'workdir': 'runs/a', 'config.train.seed': 0}
  records = [{**same, 'extra': [1]}, {**same, 'config.train.seed': 7}, same, same]
  message = processes._disagreement(records)
  assert 'config.train.seed: 0 on processes 0, 2, 3, 7 on process 1;' in message
  assert 'extra: [1] on process 0, nothing on processes 1, 2, 3)' in message
  assert 'workdir' not in message


def test_a_message_stays_short():
  records = [{f'field{i}': 'x' * 500 + str(k) for i in range(50)} for k in range(100)]
  message = processes._disagreement(records)
  assert len(message) < 2_000 and '; and 45 more)' in message


def pair(folder: pathlib.Path, *flags: str, places=('.', '.'), devices=(1, 1)) -> list[str]:
  """Starts two processes of a run, the second with further flags; gives what each said.

  Args:
    folder: with an experiment.
    *flags: of the second process.
    places: of each, in the folder.
    devices: of each.
  """
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{listener.getsockname()[1]}'
  started = [
    subprocess.Popen(
      [
        *support.command(folder / 'experiment.py', folder / 'work', '--num_processes=2'),
        *(f'--coordinator_address={address}', f'--process_id={i}', '--join_seconds=200'),
        *(flags if i else ()),
      ],
      cwd=folder / place,
      env=support.environment(number),
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    for i, (place, number) in enumerate(zip(places, devices, strict=True))
  ]
  said = [process.communicate(timeout=300)[0] for process in started]
  assert [process.returncode for process in started] == [2, 2], said
  # Gloo speaks, too.
  return [''.join(x for x in text.splitlines(True) if not x.startswith('[Gloo]')) for text in said]


def test_processes_with_other_flags_and_devices_are_refused(tmp_path):
  support.write_experiment(tmp_path)
  flags = ('--config.train.seed=1', '--config.model.hidden=9', '--config.train.num_steps=5')
  said = pair(tmp_path, *flags, '--num_processes=3', devices=(1, 2))
  for text in said:
    assert 'config.train.seed: 0 on process 0, 1 on process 1' in text
    assert 'config.model.hidden: 8 on process 0, 9 on process 1' in text
    assert 'config.train.num_steps: 60 on process 0, 5 on process 1' in text
    assert 'devices: "1 x cpu" on process 0, "2 x cpu" on process 1' in text
    assert 'num_processes: 2 on process 0, 3 on process 1' in text
    assert text.count('\n') == 1
  assert not (tmp_path / 'work').exists()


def test_processes_with_other_images_are_refused(tmp_path):
  support.write_experiment(tmp_path)
  for i in range(2):
    (tmp_path / str(i)).mkdir()
    images = np.load(tmp_path / 'images.npy')
    images[10, 3, 4] ^= i  # one bit
    np.save(tmp_path / str(i) / 'images.npy', images)
  text = (tmp_path / 'experiment.py').read_text()
  (tmp_path / 'experiment.py').write_text(text.replace(f'{tmp_path}/', ''))
  for text in pair(tmp_path, places=('0', '1')):
    assert 'data.train: "72 examples, checksum' in text
    assert 'valid' not in text
    assert text.count('\n') == 1


def test_a_slip_in_one_command_line_ends_all_with_its_reason(tmp_path):
  support.write_experiment(tmp_path)
  first, second = pair(tmp_path, '--config.train.epoch=1')
  slip = 'no field config.train.epoch: did you mean config.train.epochs?\n'
  assert first == f'error: process 1 of this run failed: {slip}'
  assert second == f'error: {slip}'
