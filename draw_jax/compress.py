"""Codes images with a trained network, without loss, in as many bits as its bound says.

    python -m draw_jax.compress --model=mnist binarized_mnist:test test.draw
    python -m draw_jax.compress --model=mnist images.npy images.draw --compare
    python -m draw_jax.decompress --model=mnist test.draw test.npy

INPUT is an .npy or .npz file with one array, a folder of images, or DATASET:SPLIT; OUTPUT is one
file. Images have the size that the network was trained on; one that models binary pixels codes
images of two values. What was coded is decoded at once and compared. The file needs the same model,
version of JAX and kind of computer to be decoded: elsewhere it is refused, so keep the images until
you know where that will be.
"""

import pathlib
import time

from absl import flags

from draw_jax import files, trained
from draw_jax.cli import app
from draw_jax.compression import bins, coded_file, coding, comparison, images
from draw_jax.devices import cores
from draw_jax.errors import UserError

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a training run.')
_MODEL = flags.DEFINE_string(
  'model', None, 'Name of a shipped model, or a file of draw_jax.export, in place of a workdir.'
)
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_VERIFY = flags.DEFINE_bool('verify', True, 'Decode what was coded, and compare.')
_COMPARE = flags.DEFINE_bool('compare', False, 'Also what gzip, PNG and others make of the images.')
_LATENT_BITS = flags.DEFINE_integer(
  'latent_bits', 10, 'A latent has 2^latent_bits values; 5 to 14 did not differ with mnist.',
  lower_bound=1, upper_bound=bins.MOST_BITS,
)  # fmt: skip
_BATCH_SIZE = flags.DEFINE_integer(
  'batch_size', None, 'Images at a time, at most. Default: 128, or fewer large ones.', lower_bound=1
)
_FORCE = flags.DEFINE_bool('force', False, 'Replace a file that is there.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')


def main(source: str, output: str) -> None:
  path = pathlib.Path(output).expanduser()
  if files.is_there(path) and not _FORCE.value:
    raise UserError(f'{path} is there already: give another name, or --force to replace it.')
  cores.use_one_thread()
  model = trained.find(_WORKDIR.value, _MODEL.value, _CHECKPOINT.value, data_dir=_DATA_DIR.value)
  coder = coding.Coder(model)
  given = images.read(source, model, coder.binary)
  with files.writing(path) as temporary:
    begun = time.monotonic()
    header, words = coder.compress(given, _LATENT_BITS.value, _BATCH_SIZE.value)
    speeds = [f'{_speed(header, begun)} coded']
    temporary.write_bytes(coded_file.pack(header, words))
    size = temporary.stat().st_size
    if _VERIFY.value:
      begun = time.monotonic()
      coder.decompress(*coded_file.read(temporary), str(path))
      speeds.append(f'{_speed(header, begun)} decoded and found to be the same')
  print(coding.report(header, size, len(words), given.label))
  print(f'speed       {", ".join(speeds)}')
  if _COMPARE.value:
    print(f'\n{comparison.table(given.images, coder.binary, size)}')


def _speed(header: coded_file.Header, begun: float) -> str:
  return f'{header.count / (time.monotonic() - begun):.3g} images/s'


def run() -> None:
  app.run(main, arguments=('INPUT', 'OUTPUT'))


if __name__ == '__main__':
  run()
