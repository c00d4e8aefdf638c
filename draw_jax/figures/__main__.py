r"""Makes the paper's figures, and others, from a trained network.

python -m draw_jax.figures --workdir=DIR --output=OUT
python -m draw_jax.figures --model=mnist --output=OUT
python -m draw_jax.figures --workdir=DIR --output=OUT --figure=sequences,player
python -m draw_jax.figures --workdir=DIR --output=OUT --figure=curves --compare=DIR2 --compare=DIR3
python -m draw_jax.figures --paper --output=OUT

The last makes those of the paper from the models that ship, each in a folder of its own such as
OUT/figure_1.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable

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
_PAPER = flags.DEFINE_bool('paper', False, "The paper's figures from the models that ship.")
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
  figures = _of_the_paper(options) if _PAPER.value else _of_one_model(names, options)
  made = 0
  for name, make in figures.items():
    try:
      make()
      made += 1
      print(f'{name}: done')
    except errors.UserError as error:
      if 'all' not in _FIGURE.value:
        raise
      print(f'{name}: left out. {error}')
  if not made:
    raise errors.UserError('none of the figures could be made.')
  print(f'The figures are in {options.output}.')


def _of_one_model(
  names: list[str], options: gallery.FigureOptions
) -> dict[str, Callable[[], None]]:
  model = trained.find(_WORKDIR.value, _MODEL.value, _CHECKPOINT.value, data_dir=_DATA_DIR.value)
  return {name: functools.partial(gallery.FIGURES[name], model, options) for name in names}


def _of_the_paper(options: gallery.FigureOptions) -> dict[str, Callable[[], None]]:
  others = {'workdir': _WORKDIR.value, 'model': _MODEL.value}
  for flag, value in others.items():
    if value is not None:
      raise errors.UserError(f'--paper takes the models that ship: leave out --{flag}.')
  if _FIGURE.value != ['all']:
    raise errors.UserError('--paper makes all figures of the paper: leave out --figure.')
  find = functools.cache(lambda name: trained.find(None, name, data_dir=_DATA_DIR.value))

  def make(number: int) -> None:
    name, figure = gallery.PAPER[number]
    model, folder = find(name), options.output / f'figure_{number}'
    files.make_folder(folder)
    gallery.FIGURES[figure](model, dataclasses.replace(options, output=folder))

  return {f'figure {number}': functools.partial(make, number) for number in gallery.PAPER}


def run() -> None:
  app.run(main)


if __name__ == '__main__':
  run()
