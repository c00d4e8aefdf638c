"""Gives back the images that `draw_jax.compress` coded.

    python -m draw_jax.decompress --model=mnist test.draw test.npy
    python -m draw_jax.decompress --model=mnist test.draw FOLDER

INPUT is a file of `draw_jax.compress`, with the model that it was coded with. OUTPUT is an .npy
file, which has the array that was coded, an .npz file with it under the name `images`, or else a
folder of PNG files, numbered in their order.
"""

import pathlib

from absl import flags

from draw_jax import files, trained
from draw_jax.cli import app
from draw_jax.compression import coded_file, coding, images
from draw_jax.devices import cores
from draw_jax.errors import UserError

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a training run.')
_MODEL = flags.DEFINE_string(
  'model', None, 'Name of a shipped model, or a file of draw_jax.export, in place of a workdir.'
)
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_FORCE = flags.DEFINE_bool('force', False, 'Replace a file that is there.')


def main(source: str, output: str) -> None:
  path = pathlib.Path(output).expanduser()
  if files.is_there(path) and not (_FORCE.value and path.is_file()):
    raise UserError(f'{path} is there already: give another name, or --force to replace a file.')
  cores.use_one_thread()
  header, words = coded_file.read(pathlib.Path(source).expanduser())
  coder = coding.Coder(trained.find(_WORKDIR.value, _MODEL.value, _CHECKPOINT.value))
  decoded = coder.decompress(header, words, source)
  images.write(path, decoded, images.Layout(**header.layout))
  print(f'{len(decoded):,} images are in {path}.')


def run() -> None:
  app.run(main, arguments=('INPUT', 'OUTPUT'))


if __name__ == '__main__':
  run()
