"""The command, as a user runs it."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import termios

import jax
import numpy as np
import pytest
import training_support as support

from draw_jax.training import checkpoint, loop

FLAGS = ('--importance_samples=16', '--repeats=2', '--glimpses=3,2', '--kl_latents')


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """Of a short run; eleven images are held out."""
  folder = tmp_path_factory.mktemp('run')
  config = support.tiny_config(support.write_images(folder, num=110))
  config.train.num_steps = 20
  cache = jax.config.jax_compilation_cache_dir
  jax.config.update('jax_compilation_cache_dir', str(support.CACHE))
  loop.train(config, folder)
  jax.config.update('jax_compilation_cache_dir', cache)
  return folder


def start(*flags, devices=1, stderr=subprocess.PIPE):
  return subprocess.Popen(
    [sys.executable, '-m', 'draw_jax.evaluate', *map(str, flags)],
    env=support.environment(devices) | {'JAX_COMPILATION_CACHE_DIR': str(support.CACHE)},
    stdout=subprocess.PIPE,
    stderr=stderr,
    text=True,
  )


def finish(*processes):
  ended = [process.communicate(timeout=300) for process in processes]
  for process, (_, stderr) in zip(processes, ended, strict=True):
    assert process.returncode == 0, stderr
  return [stdout for stdout, _ in ended]


def assert_same(a, b):
  assert len(figures(a)) == len(figures(b)) > 50
  for row, other in zip(a['results'], b['results'], strict=True):
    for name in ('bound', 'reconstruction'):
      assert row[name]['mean'] == pytest.approx(other[name]['mean'], rel=1e-6)
    for one, two in zip(row['importance'], other['importance'], strict=True):
      assert one['mean'] == pytest.approx(two['mean'], rel=1e-6)
  # A KL near zero is the difference of numbers near one, rounded to float32.
  np.testing.assert_allclose(figures(a), figures(b), rtol=1e-6, atol=1e-7)


def figures(result) -> list[float]:
  return [
    float(number) for number in re.findall(r'-?\d+\.\d+(?:e-?\d+)?', json.dumps(result['results']))
  ]


@pytest.fixture(scope='module')
def one_device(workdir, tmp_path_factory):
  output = tmp_path_factory.mktemp('one') / 'result.json'
  (stdout,) = finish(start(f'--workdir={workdir}', f'--output={output}', *FLAGS))
  return stdout, json.loads(output.read_text())


def test_the_figures_and_their_labels(one_device, workdir):
  stdout, result = one_device
  assert '11 of 11 images' in stdout
  assert 'images, binarization' in stdout
  assert (result['examples'], result['examples_in_split'], result['draws']) == (11, 11, 32)
  assert [row['glimpses'] for row in result['results']] == [3, 2]
  assert [one['samples'] for one in result['results'][0]['importance']] == [10, 16]
  assert not result['partial']
  # Training looked at the same images with one draw of each.
  saved = checkpoint.load(workdir)
  bound = result['results'][0]['bound']
  noise = np.sqrt(33) * bound['stderr_draws']
  assert saved.step == result['step']
  assert abs(saved.metrics['bound'] - bound['mean']) < 4 * noise


def test_four_devices_give_the_figures_of_one(one_device, workdir, tmp_path):
  output = tmp_path / 'result.json'
  flags = (f'--workdir={workdir}', f'--output={output}', '--batch_size=8', *FLAGS)
  finish(start(*flags, devices=4))
  result = json.loads(output.read_text())
  assert result['devices'].startswith('4 x')
  assert_same(result, one_device[1])


def test_two_processes_give_the_figures_of_one(one_device, workdir, tmp_path):
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{free.getsockname()[1]}'
  outputs = [tmp_path / f'{i}.json' for i in range(2)]
  first, second = finish(*(
    start(
      f'--workdir={workdir}', f'--output={outputs[i]}', *FLAGS, '--num_processes=2',
      f'--process_id={i}', f'--coordinator_address={address}', devices=2,
    )
    for i in range(2)
  ))  # fmt: skip
  result = json.loads(outputs[0].read_text())
  assert result['devices'].startswith('4 x')
  assert_same(result, one_device[1])
  # One of them speaks for both.
  assert '11 of 11 images' in first
  assert 'images' not in second
  assert not outputs[1].exists()


def test_progress_on_a_terminal_and_what_there_is_when_stopped(workdir, tmp_path):
  """Hours of work: a figure for all images is there after the first few draws."""
  output = tmp_path / 'result.json'
  output.write_text('a whole result')
  terminal, stderr = os.openpty()
  termios.tcsetwinsize(stderr, (24, 100))
  process = start(
    f'--workdir={workdir}', f'--output={output}', '--split=valid', '--memory=1',
    '--importance_samples=100000000', stderr=stderr,
  )  # fmt: skip
  os.close(stderr)
  shown = ''
  # Draws done of all, time taken, and time left: a thousand are some of every image.
  while not re.search(r'[1-9][\d.]*[kM]/1.10G \[[\d:]+<[\d:]+', shown):
    shown += os.read(terminal, 4096).decode()
  process.send_signal(signal.SIGINT)
  with contextlib.suppress(OSError):  # The end of a terminal.
    while more := os.read(terminal, 4096):
      shown += more.decode()
  stdout, _ = process.communicate(timeout=60)
  os.close(terminal)
  assert process.returncode == 130, shown
  # Python itself reports an interrupt that it meets in a destructor, with a traceback behind.
  assert shown.count('Traceback') == shown.count('Exception ignored in')
  assert stdout.startswith('PARTIAL')
  partial = json.loads((tmp_path / 'result.partial.json').read_text())
  assert partial['partial']
  assert partial['examples'] == 11
  assert partial['results'][0]['importance']
  assert output.read_text() == 'a whole result'


def worker(cases: str) -> None:
  """Prints what each row of flags ends with: many mistakes in one process."""
  from absl import flags

  from draw_jax import errors, evaluate

  ends = []
  for case in json.loads(cases):
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
      flags.FLAGS[name].unparse()
    flags.FLAGS(['evaluate', *case])
    try:
      ends.append(f'returned {evaluate.main()}')
    except errors.UserError as error:
      ends.append(str(error))
  print(json.dumps(ends))


def test_mistakes_end_with_one_line(workdir, tmp_path):
  empty = tmp_path / 'empty'
  empty.mkdir()
  fresh = tmp_path / 'fresh'
  fresh.mkdir()
  config = json.loads((workdir / 'config.json').read_text())
  (fresh / 'config.json').write_text(json.dumps(config))
  # The same checkpoints beside configs that describe other models or other data.
  other, data, more = tmp_path / 'other', tmp_path / 'data', tmp_path / 'more'
  np.save(tmp_path / 'more.npy', np.full((300, 8, 8, 1), 200, np.uint8))
  for folder, section, field, value in (
    (other, 'model', 'hidden', 9),
    (data, 'data', 'path', support.write_images(tmp_path, size=6)),
    (more, 'data', 'path', str(tmp_path / 'more.npy')),
  ):
    folder.mkdir()
    (folder / 'checkpoints').symlink_to(workdir / 'checkpoints')
    changed = {**config, section: {**config[section], field: value}}
    del changed['checksum']
    (folder / 'config.json').write_text(json.dumps(changed))
  good = f'--workdir={workdir}'
  cases = {
    (): 'give either --workdir=DIR',
    (f'--workdir={tmp_path / "nowhere"}',): 'does not exist',
    (f'--workdir={empty}',): 'holds no training run',
    (f'--workdir={fresh}',): 'no checkpoint yet',
    (f'--workdir={other}', '--split=valid'): 'of another model than config.json describes: ',
    (f'--workdir={data}', '--split=valid'): 'are 6 x 6 x 1, the model was trained on 8 x 8 x 1',
    (f'--workdir={more}',): 'images, and images has 270 now: some of valid may be among those',
    (good, '--checkpoint=12345'): "no checkpoint '12345'",
    (good, '--split=test'): "no split 'test': it has train, valid",
    (good, '--importance_samples=many'): '--importance_samples=many: give a number',
    (good, '--importance_samples=0'): '--importance_samples=0: give a number of at least 1',
    (good, '--glimpses=4,-1'): '--glimpses=4,-1: give a number of at least 1',
    (good, '--repeats=0'): '--repeats=0 must be at least 1',
    (good, f'--output={tmp_path}'): 'cannot write --output',
    (good, f'--output={workdir / "config.json" / "r.json"}'): 'cannot write --output',
  }
  done = subprocess.run(
    [sys.executable, __file__, json.dumps([list(case) for case in cases])],
    env=support.environment(),
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  ends = json.loads(done.stdout.splitlines()[-1])
  for end, (case, expected) in zip(ends, cases.items(), strict=True):
    assert expected in end, case
    assert '\n' not in end


def test_exit_code_of_a_mistake(tmp_path):
  process = start(f'--workdir={tmp_path}')
  stdout, stderr = process.communicate(timeout=120)
  assert process.returncode == 2
  assert not stdout
  assert stderr.startswith('error: ')
  assert len(stderr.splitlines()) == 1
  assert not list(pathlib.Path(tmp_path).iterdir())


if __name__ == '__main__':
  worker(sys.argv[1])
