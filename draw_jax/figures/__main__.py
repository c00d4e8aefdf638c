r"""Makes the paper's figures, and others, from a trained network.

python -m draw_jax.figures --workdir=DIR --output=OUT
python -m draw_jax.figures --model=mnist --output=OUT
python -m draw_jax.figures --workdir=DIR --output=OUT --figure=sequences,player
python -m draw_jax.figures --workdir=DIR --output=OUT --figure=curves --compare=DIR2 --compare=DIR3
"""

import pathlib

from absl import flags

from draw_jax import errors, files, trained
from draw_jax.cli import app
from draw_jax.figures import gallery

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a training run.')
_MODEL = flags.DEFINE_string(
  'model', None, 'Name of a shipped model, or a file of draw_jax.export, in place of a workdir.'
)
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Where prepared datasets live.')
_OUTPUT = flags.DEFINE_string('output', None, 'Folder for the figures.', required=True)
_FIGURE = flags.DEFINE_list('figure', 'all', f'all, or some of {", ".join(gallery.FIGURES)}.')
_NUM = flags.DEFINE_integer('num', 8, 'Examples, or rows, of a figure.', lower_bound=1)
_SEED = flags.DEFINE_integer(
  'seed', 0, 'The same seed gives the same images.', lower_bound=0, upper_bound=2**32 - 1
)
_BINARY = flags.DEFINE_bool('binary', False, 'Draw the pixels instead of showing their means.')
_NPZ = flags.DEFINE_bool('npz', False, 'Also write the arrays.')
_IMAGE = flags.DEFINE_string('image', None, 'Image file for the figures filters and zooming.')
_COMPARE = flags.DEFINE_multi_string(
  'compare', [], 'Workdir of a further run for the figure curves.'
)


def main() -> None:
  names = gallery.choose(_FIGURE.value)
  options = gallery.FigureOptions(
    output=pathlib.Path(_OUTPUT.value),
    num=_NUM.value,
    seed=_SEED.value,
    binary=_BINARY.value,
    npz=_NPZ.value,
    image=_IMAGE.value,
    compare=tuple(_COMPARE.value),
  )
  files.make_folder(options.output)
  model = trained.find(_WORKDIR.value, _MODEL.value, _CHECKPOINT.value, data_dir=_DATA_DIR.value)
  made = 0
  for name in names:
    try:
      gallery.FIGURES[name](model, options)
      made += 1
      print(f'{name}: done')
    except errors.UserError as error:
      if 'all' not in _FIGURE.value:
        raise
      print(f'{name}: left out. {error}')
  if not made:
    raise errors.UserError('none of the figures could be made.')
  print(f'The figures are in {options.output}.')


def run() -> None:
  app.run(main)


if __name__ == '__main__':
  run()
