"""Prepares a dataset, says what was found, and shows sixteen of its examples.

    python -m draw_jax.prepare --dataset=svhn --manual_dir=DOWNLOADED --data_dir=DIR
    python -m draw_jax.prepare --dataset=images --path=FOLDER --image_size=32 --preview=out.png

Without --manual_dir the published files are downloaded. Preparing twice does nothing.
"""

import pathlib

from absl import flags

from draw_jax import data, errors
from draw_jax.cli import app
from draw_jax.data import preparation, registry
from draw_jax.figures import animation, grid

_DATASET = flags.DEFINE_string('dataset', None, f'One of {", ".join(data.NAMES)}.', required=True)
_MANUAL_DIR = flags.DEFINE_string('manual_dir', None, 'Folder of published files, got by hand.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')
_PREVIEW = flags.DEFINE_string('preview', None, 'PNG file to write 16 training examples to.')
_BINARIZATION = flags.DEFINE_string('binarization', None, 'Of the preview.')
_PATH = flags.DEFINE_string('path', None, 'Of your own pictures, for --dataset=images.')
_IMAGE_SIZE = flags.DEFINE_integer('image_size', None, 'Of your own pictures.', lower_bound=1)
_CHANNELS = flags.DEFINE_integer('channels', None, 'Of your own pictures: 1 or 3.')


def main() -> None:
  """Prepares the dataset."""
  spec = registry.find(_DATASET.value)
  if spec.builder is not None:
    for flag in (_PATH, _IMAGE_SIZE, _CHANNELS):
      if flag.value is not None:
        raise errors.UserError(f'--{flag.name} is for --dataset=images: leave it out.')
    if _BINARIZATION.value is not None and not _PREVIEW.value:
      raise errors.UserError('--binarization is for the --preview: add that, or leave it out.')
    _prepare(spec.builder)
  elif _MANUAL_DIR.value is not None:
    raise errors.UserError(f'{spec.name} is not made from published files: leave out --manual_dir.')
  if spec.builder is None or _PREVIEW.value:
    _show()


def _prepare(builder_class) -> None:
  builder = preparation.prepare(builder_class, _DATA_DIR.value, _MANUAL_DIR.value)
  print(f'{builder.dataset} is prepared in {builder.data_dir}')
  shape = ' x '.join(map(str, builder.image_shape))
  for name, split in builder.info.splits.items():
    print(f'  {name}: {split.num_examples} pictures of {shape}')


def _show() -> None:
  dataset = data.open_dataset(
    _DATASET.value,
    data_dir=_DATA_DIR.value,
    binarization=_BINARIZATION.value,
    path=_PATH.value,
    image_size=_IMAGE_SIZE.value,
    channels=_CHANNELS.value,
  )
  shape = ' x '.join(map(str, dataset.image_shape))
  print(f'{dataset.name} gives examples of {shape}, binarization {dataset.binarization!r}')
  for split in dataset.splits:
    print(f'  {split}: {dataset.num_examples(split)} examples')
  if _PREVIEW.value:
    images = next(dataset.train_batches(16, seed=0))['image']
    scale = animation.default_scale(4 * images.shape[2])
    grid.save_png(pathlib.Path(_PREVIEW.value), grid.tile(images, 4, scale=scale))
    print(f'16 training examples are in {_PREVIEW.value}')


def run() -> None:
  """The command `draw-prepare`."""
  app.run(main)


if __name__ == '__main__':
  run()
