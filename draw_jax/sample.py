"""Draws images from a trained network.

    python -m draw_jax.sample --workdir=DIR --output=OUT --num=64 --seed=0
    python -m draw_jax.sample --model=mnist --output=OUT

writes OUT/samples.png, a grid, and OUT/samples.gif, the drawing of the first few. A model that is
told classes draws all of them, one in each column, or with --label=3 that class alone.
"""

import math
import pathlib

from absl import flags

from draw_jax import memory, trained
from draw_jax.cli import app
from draw_jax.figures import animation, gallery, grid, passes

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a training run.')
_MODEL = flags.DEFINE_string(
  'model', None, 'Name of a shipped model, or a file of draw_jax.export, in place of a workdir.'
)
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_OUTPUT = flags.DEFINE_string('output', None, 'Folder for the images.', required=True)
_NUM = flags.DEFINE_integer(
  'num', None, 'How many images. Default: 64, or 8 of each class.', lower_bound=1
)
_LABEL = flags.DEFINE_integer('label', None, 'Class to draw, of a model that is told classes.')
_COLUMNS = flags.DEFINE_integer('columns', None, 'Images in a row of the grid.', lower_bound=1)
_SEED = flags.DEFINE_integer(
  'seed', 0, 'The same seed gives the same images.', lower_bound=0, upper_bound=2**32 - 1
)
_BINARY = flags.DEFINE_bool('binary', False, 'Draw the pixels instead of showing their means.')
_NPZ = flags.DEFINE_bool('npz', False, 'Also write samples.npz with the array `images`.')

_ANIMATED = 25  # images whose drawing is shown


def main() -> None:
  output = pathlib.Path(_OUTPUT.value)
  model = trained.find(_WORKDIR.value, _MODEL.value, _CHECKPOINT.value)
  model.task.check_draws()
  classes = model.task.classes if _LABEL.value is None else None
  total = _NUM.value or 8 * (classes or 8)
  memory.check(4 * total * math.prod(model.image_shape), f'--num={total}')

  def draw(num: int, trace: bool) -> passes.Drawing:
    given = model.task.chosen(num, _LABEL.value)
    return passes.generate(
      model.model, model.params, num, _SEED.value, trace=trace, binary=_BINARY.value, given=given
    )

  images = draw(total, trace=False).images[0]
  columns = min(_COLUMNS.value or classes or grid.default_columns(total), total)
  scale = animation.default_scale(columns * images.shape[2])
  grid.save_png(output / 'samples.png', grid.tile(images, columns, scale=scale))
  first = draw(min(total, _ANIMATED), trace=True)
  frames = animation.drawing_frames(first.images, first.write, model.model.write_size)
  animation.save_gif(output / 'samples.gif', frames)
  if _NPZ.value:
    gallery.save_npz(output / 'samples.npz', images=images)
  print(f'{len(images)} images are in {output}.')


def run() -> None:
  app.run(main)


if __name__ == '__main__':
  run()
