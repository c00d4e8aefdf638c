"""Training's validation and the evaluation of its checkpoint are the same to the last bit."""

import json
import os
import pathlib
import subprocess
import sys

import training_support as support

from draw_jax import config as config_lib
from draw_jax.training import loop, run_log

XLA_FLAGS = os.environ.get('XLA_FLAGS', '')


def evaluate(workdir: pathlib.Path, output: pathlib.Path, *flags: str) -> dict:
  command = [sys.executable, '-m', 'draw_jax.evaluate', f'--workdir={workdir}']
  done = subprocess.run(
    [*command, f'--output={output}', f'--compilation_cache={support.CACHE}', *flags],
    # On one device and as well compiled as training below: otherwise numbers round in another way.
    env={**support.environment(), 'JAX_NUM_CPU_DEVICES': '1', 'XLA_FLAGS': XLA_FLAGS},
    capture_output=True, text=True, timeout=300, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  return json.loads(output.read_text())


def test_of_a_bound(tmp_path):
  config = support.tiny_config(support.write_images(tmp_path))
  config.train.update(num_steps=20, seed=5)
  loop.train(config, tmp_path / 'run')
  for step in (18, 20):
    flags = ('--split=valid', f'--checkpoint={step}')
    (row,) = evaluate(tmp_path / 'run', tmp_path / 'a.json', *flags)['results']
    (logged,) = [
      logged
      for logged in run_log.read(tmp_path / 'run')
      if (logged['split'], logged['step']) == ('valid', step)
    ]
    for name in ('bound', 'reconstruction', 'kl'):
      assert row[name]['mean'] == logged[name]
  other = evaluate(tmp_path / 'run', tmp_path / 'a.json', *flags, '--seed=6')['results'][0]
  assert other['bound']['mean'] != row['bound']['mean']


def test_of_errors(tmp_path, monkeypatch):
  """In metrics.jsonl they are in percent."""
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  config = config_lib.default()
  config.data.name, config.data.binarization = 'mnist_5k', 'none'
  config.model = config_lib.model_section('convolutional', hidden=8)
  config.train.update(batch_size=50, num_steps=6)
  config.eval.batch_size = 50
  loop.train(config, tmp_path / 'run')
  (row,) = evaluate(tmp_path / 'run', tmp_path / 'a.json', '--split=valid')['results']
  logged = run_log.read(tmp_path / 'run')[-1]
  assert logged['split'] == 'valid'
  assert 100 * row['error']['rate'] == logged['error']
  assert row['cross_entropy'] == logged['cross_entropy']
