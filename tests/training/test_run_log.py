import io
import json
import struct

import numpy as np
import pytest
import training_support as support
from PIL import Image
from tensorboardX.proto import event_pb2

from draw_jax.training import phases, run_log


def test_rows_after_the_restored_step_are_undone(tmp_path):
  record = run_log.RunLog(tmp_path, 0)
  for step in (5, 10, 15):
    record.row('train', step, {'bound': step / 3})
  record.row('valid', 15, {'bound': 1.0})
  record.close()
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('{"split": "train", "step": 2')  # killed while writing
  record = run_log.RunLog(tmp_path, 10)
  record.row('train', 15, {'bound': 7.0})
  record.close()
  assert run_log.read(tmp_path) == [
    {'split': 'train', 'step': 5, 'bound': 5 / 3},
    {'split': 'train', 'step': 10, 'bound': 10 / 3},
    {'split': 'train', 'step': 15, 'bound': 7.0},
  ]


def shown_images(workdir) -> dict[str, np.ndarray]:
  """The images of the TensorBoard file, whose records are length, checksum, event, checksum."""
  (path,) = (workdir / 'tensorboard').iterdir()
  raw, found = path.read_bytes(), {}
  while raw:
    (length,) = struct.unpack('<Q', raw[:8])
    event = event_pb2.Event.FromString(raw[12 : 12 + length])
    raw = raw[16 + length :]
    for value in event.summary.value:
      if value.HasField('image'):
        image = Image.open(io.BytesIO(value.image.encoded_image_string))
        found[value.tag] = np.asarray(image)
  return found


@pytest.mark.parametrize('channels', [1, 3])
def test_images_are_in_rows_of_eight_with_white_between(tmp_path, channels):
  record = run_log.RunLog(tmp_path, 0)
  batch = np.linspace(0, 1, 10, dtype=np.float32)[:, None, None, None] * np.ones(
    (1, 4, 6, channels), np.float32
  )
  record.images(5, {'samples': batch})
  record.close()
  sheet = shown_images(tmp_path)['samples']
  assert sheet.shape == (2 * 6, 8 * 8, 3)
  for i in range(10):
    top, left = 6 * (i // 8), 8 * (i % 8)
    cell = sheet[top : top + 6, left : left + 8]
    np.testing.assert_array_equal(cell[1:-1, 1:-1], round(255 * i / 9))
    assert (cell[[0, -1]] == 255).all() and (cell[:, [0, -1]] == 255).all()


def test_lines_that_are_no_rows_are_passed_over(tmp_path):
  row = '{"split": "train", "step": 1}\n'
  (tmp_path / 'metrics.jsonl').write_bytes(
    f'{row}\n3\n{{}}\n{{"st'.encode() + b'\xff\n' + row.encode()
  )
  assert run_log.read(tmp_path) == [{'split': 'train', 'step': 1}] * 2
  run_log.RunLog(tmp_path, 1).close()
  assert len((tmp_path / 'metrics.jsonl').read_text().splitlines()) == 2


def test_a_row_is_on_disk_at_once(tmp_path):
  record = run_log.RunLog(tmp_path, 0)
  record.row('train', 1, {'bound': 2.0})
  assert len(run_log.read(tmp_path)) == 1
  record.close()


def test_no_record(tmp_path):
  assert run_log.read(tmp_path / 'nowhere') == []


def test_window_survives_a_checkpoint():
  window, whole = run_log.MetricsMean(), run_log.MetricsMean()
  for value in (0.1, 0.2):
    window.add({'bound': np.float32(value)})
    whole.add({'bound': np.float32(value)})
  saved = window.to_json()
  window.add({'bound': 1e9})  # must not reach what was saved
  window = run_log.MetricsMean(**json.loads(json.dumps(saved)))
  for value in (0.3, 0.7):
    window.add({'bound': value})
    whole.add({'bound': value})
  assert window.mean() == whole.mean()
  window.add({'bound': 4.0})
  assert window.mean() == {'bound': 4.0}


@pytest.fixture
def clock(monkeypatch):
  config = support.tiny_config('images.npy')
  config.train.update({'num_steps': 100, 'batch_size': 10, 'curriculum': ((1, 5),)})
  config.model.glimpses = 4
  now = [0.0]
  monkeypatch.setattr(run_log.time, 'monotonic', lambda: now[0])
  return run_log.Clock(phases.make(config, num_examples=100), 10), now


def test_clock(clock):
  """50 steps with one glimpse, then 50 with four: 250 units of work."""
  clock, now = clock
  now[0] = 100.0
  clock.start(1)
  now[0] = 102.0
  with clock.paused():
    now[0] = 50_000.0
  now[0] += 2.0
  clock.start(2)  # starts only once
  assert clock.lap(41) == (100.0, pytest.approx((9 + 200) * 4.0 / 40))
  assert clock.lap(41) == (None, None)


def test_the_time_of_the_whole_run_is_estimated_once(clock):
  clock, now = clock
  clock.start(1)
  now[0] = 1.9
  assert clock.estimate(30) is None  # too short to tell
  now[0] = 4.0
  assert clock.estimate(3) is None  # too few steps
  assert clock.estimate(21) == pytest.approx(250 * 4.0 / 20)
  assert clock.estimate(22) is None


def test_no_estimate_after_a_row(clock):
  clock, now = clock
  clock.start(1)
  now[0] = 4.0
  clock.lap(11)
  assert clock.estimate(21) is None


def test_plain_lines_where_there_is_no_terminal(capsys):
  display = run_log.Display(100, 0)
  display.show(20, {'epoch': 2.0, 'bound': 95.123, 'kl': 20.0}, speed=412.3, left=3723)
  display.close()
  expected = 'step 20/100  epoch 2.00  bound 95.12  kl 20.00  412 images/s  1:02:03 left\n'
  assert capsys.readouterr().err == expected


def test_bar_on_a_terminal(capsys, monkeypatch):
  monkeypatch.setattr('sys.stderr.isatty', lambda: True)
  display = run_log.Display(100, 0)
  display.show(20, {'bound': 95.123}, speed=412.3, left=3723)
  display.say('a line')
  display.close()
  written = capsys.readouterr().err
  assert 'step 20/100' in written and 'bound 95.12  412 images/s  1:02:03 left' in written
  assert 'a line\n' in written


def test_silence():
  silence = run_log.Silence()
  assert silence.row('train', 1, {}) is None and silence.close() is None
