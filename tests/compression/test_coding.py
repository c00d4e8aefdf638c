"""Compression with a trained model, as a library and by its two commands."""

import dataclasses
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import training_support as support
from test_trained import make_trained

from draw_jax import trained
from draw_jax.compression import coded_file, coding, comparison, images
from draw_jax.errors import UserError

MODEL = make_trained(binarization='threshold')
IMAGES = np.random.default_rng(0).integers(0, 2, (9, 8, 8, 1)).astype(bool)
GIVEN = images.Given((255 * IMAGES).astype(np.uint8), images.Layout('|b1', 4, 1), 'bars')


@pytest.fixture(scope='module')
def coder():
  return coding.Coder(MODEL)


@pytest.fixture(scope='module')
def coded(coder):
  return coder.compress(GIVEN, latent_bits=8, batch_size=2)


def refused(function, *args) -> str:
  with pytest.raises(UserError) as caught:
    function(*args)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def test_header(coded):
  header, _ = coded
  assert (header.count, header.image_shape, header.glimpses) == (9, (8, 8, 1), MODEL.glimpses)
  assert (header.jax, header.backend) == (jax.__version__, 'cpu')
  assert header.borrowed > 0
  found, words = coded_file.unpack(coded_file.pack(*coded), '')
  assert found == header
  np.testing.assert_array_equal(words, coded[1])


def test_what_is_not_of_here_is_refused(coder, coded):
  header, words = coded
  np.testing.assert_array_equal(coder.decompress(header, words, 'FILE'), GIVEN.images)
  params = jax.tree.map(lambda a: a + 0.01, MODEL.params)
  another = coding.Coder(dataclasses.replace(MODEL, params=params, name='another'))
  assert "with another model: 'tiny'" in refused(another.decompress, header, words, 'FILE')
  for changed, expected in {
    'jax': 'was coded with jax 0, and can only be decoded so; this is jax ',
    'backend': 'was coded with backend 0',
    'fingerprint': 'on another kind of computer',
    'images_sha256': 'does not give back the images',
  }.items():
    wrong = dataclasses.replace(header, **{changed: '0'})
    assert expected in refused(coder.decompress, wrong, words, 'FILE')
  for wrong in (words[1:], words ^ 1, np.append(words, np.uint32(7))):
    assert 'does not give back the images' in refused(coder.decompress, header, wrong, 'FILE')


def test_what_has_no_likelihood_is_refused():
  assert 'no likelihood' in refused(coding.Coder, make_trained(binarization='none'))
  assert 'draws no images' in refused(coding.Coder, make_trained('differentiable_ram'))


def test_large_images_come_in_small_batches(coder):
  assert coder._fitting() == 128
  large = dataclasses.replace(MODEL, glimpses=2**15)
  assert coding.Coder(large)._fitting() == 2**28 // (4 * 2**15 * 64)


def table(pixels, binary):
  """By format: bytes of one file of all, bits/dim and nats an image; in the order of the rows."""
  rows = comparison.table(pixels, binary, size=999).splitlines()[1:-1]
  numbers = {' '.join(row.split()[:-4]): row.split()[-3:] for row in rows}
  numbers.pop('PNG by optipng', None)
  return {name: [float(n.replace(',', '')) for n in row] for name, row in numbers.items()}


def test_comparison():
  pixels = np.random.default_rng(0).integers(0, 256, (3, 30, 20, 3), np.uint8)
  gray, bits = pixels[..., :1], (255 * (pixels[..., :1] > 127)).astype(np.uint8)
  color, gray, binary = table(pixels, False), table(gray, False), table(bits, True)
  assert color['draw_jax'] == [999, 1.48, 1846.54]
  assert color.keys() == {
    'draw_jax', 'gzip -9', 'bz2 -9', 'xz -9e', 'PNG by Pillow', 'WebP lossless'
  }  # fmt: skip
  assert sorted(color.values(), key=lambda row: row[-1]) == list(color.values())
  for name in color.keys() - {'draw_jax'}:
    # Noise cannot be compressed: a byte costs 8 bits, a binary pixel one and what is around it.
    assert 8 < color[name][1] < 9
    assert gray[name][0] < 0.4 * color[name][0]
    assert 1 < binary[name][1] < 4


def test_sheets_lose_nothing():
  pixels = np.random.default_rng(0).integers(0, 256, (7, 3, 5, 2), np.uint8)
  sheet = comparison._sheet(pixels)
  assert sheet.shape == (9, 15, 2)
  for i, image in enumerate(pixels):
    row, column = divmod(i, 3)
    np.testing.assert_array_equal(sheet[3 * row :, 5 * column :][:3, :5], image)


def run(*arguments) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, '-m', *map(str, arguments), f'--compilation_cache={support.CACHE}'],
    env=support.environment(),
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def test_ctrl_c_leaves_no_file(tmp_path):
  model, source, folder = tmp_path / 'tiny.safetensors', tmp_path / 'images.npy', tmp_path / 'out'
  trained.save(model, MODEL)
  np.save(source, np.repeat(IMAGES, 10_000, 0))
  folder.mkdir()
  command = [sys.executable, '-m', 'draw_jax.compress', f'--model={model}', '--batch_size=1']
  command += [str(source), str(folder / 'a.draw'), f'--compilation_cache={support.CACHE}']
  process = subprocess.Popen(command, env=support.environment(), stderr=subprocess.PIPE, text=True)
  end = time.monotonic() + 120
  while not any(folder.iterdir()):  # Until the file that will be a.draw is begun.
    assert process.poll() is None and time.monotonic() < end
    time.sleep(0.05)
  process.send_signal(signal.SIGINT)
  _, said = process.communicate(timeout=120)
  assert (process.returncode, said) == (128 + signal.SIGINT, 'stopped.\n')
  assert not any(folder.iterdir())


def test_commands(tmp_path):
  """Two processes write the same file, and a third gives back what was coded."""
  model, source = tmp_path / 'tiny.safetensors', tmp_path / 'images.npy'
  trained.save(model, MODEL)
  np.save(source, IMAGES)
  files = [tmp_path / name for name in ('a.draw', 'b.draw')]
  for file, more in zip(files, (['--compare'], ['--noverify']), strict=True):
    done = run('draw_jax.compress', f'--model={model}', source, file, *more)
    assert done.returncode == 0, done.stderr
    assert '9 of ' in done.stdout
    verified = 'found to be the same' in done.stdout
    assert verified == ('WebP' in done.stdout) == (more == ['--compare'])
  assert files[0].read_bytes() == files[1].read_bytes()
  back = tmp_path / 'back.npy'
  done = run('draw_jax.decompress', f'--model={model}', files[0], back)
  assert done.returncode == 0, done.stderr
  assert back.read_bytes() == source.read_bytes()
  done = run('draw_jax.decompress', f'--model={model}', files[0], back)
  assert (done.returncode, done.stdout) == (2, '')
  assert f'{back} is there already' in done.stderr
