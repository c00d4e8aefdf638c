"""Prepares a dataset, says what was found, and shows sixteen of its examples.

    python -m draw_jax.prepare --dataset=svhn --manual_dir=DOWNLOADED --data_dir=DIR
    python -m draw_jax.prepare --dataset=images --path=FOLDER --image_size=32 --preview=out.png

Without --manual_dir the published files are downloaded. Preparing twice does nothing.
"""

import pathlib
import typing

from absl import flags

from draw_jax import data, errors
from draw_jax.cli import app
from draw_jax.data import registry
from draw_jax.figures import animation, grid

_DATASET = flags.DEFINE_string('dataset', None, f'One of {", ".join(data.NAMES)}.', required=True)
_MANUAL_DIR = flags.DEFINE_string('manual_dir', None, 'Folder of published files, got by hand.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')
_PREVIEW = flags.DEFINE_string('preview', None, 'PNG file to write 16 training examples to.')
_BINARIZATION = flags.DEFINE_string('binarization', None, 'Of the preview.')
# One for each option of a dataset.
_OPTIONS = {
  option.name: flags.DEFINE(
    flags.IntegerParser() if int in typing.get_args(option.type) else flags.ArgumentParser(),
    option.name,
    None,
    f'{option.metadata["help"]} For --dataset={" or ".join(registry.takers(option.name))}.',
    serializer=flags.ArgumentSerializer(),
  )
  for option in registry.options()
}


def main() -> None:
  spec = registry.find(_DATASET.value)
  for name, flag in _OPTIONS.items():
    if flag.value is not None and spec.name not in registry.takers(name):
      others = ' or '.join(registry.takers(name))
      raise errors.UserError(f'--{name} is for --dataset={others}: leave it out.')
  if spec.builder is not None:
    if _BINARIZATION.value is not None and not _PREVIEW.value:
      raise errors.UserError('--binarization is for the --preview: add that, or leave it out.')
    _prepare(spec.builder())
  elif _MANUAL_DIR.value is not None:
    raise errors.UserError(f'{spec.name} is not made from published files: leave out --manual_dir.')
  if spec.builder is None or _PREVIEW.value:
    _show()


def _prepare(builder_class) -> None:
  from draw_jax.data.builders import preparation  # with TFDS, which takes a while

  builder = preparation.prepare(builder_class, _DATA_DIR.value, _MANUAL_DIR.value)
  print(f'{builder.dataset} is prepared in {builder.data_dir}')
  shape = ' x '.join(map(str, builder.image_shape))
  for name, split in builder.info.splits.items():
    print(f'  {name}: {split.num_examples} images of {shape}')


def _show() -> None:
  dataset = data.open_dataset(
    _DATASET.value,
    data_dir=_DATA_DIR.value,
    binarization=_BINARIZATION.value,
    **{name: flag.value for name, flag in _OPTIONS.items()},
  )
  shape = ' x '.join(map(str, dataset.image_shape))
  print(f'{dataset.name} gives examples of {shape}, binarization {dataset.binarization!r}')
  for split in dataset.splits:
    print(f'  {split}: {dataset.num_examples(split)} examples')
  for note in dataset.notes:
    print(f'  {note}')
  if _PREVIEW.value:
    images = next(dataset.train_batches(16, seed=0))['image']
    scale = animation.default_scale(4 * images.shape[2])
    grid.save_png(pathlib.Path(_PREVIEW.value), grid.tile(images, 4, scale=scale))
    print(f'16 training examples are in {_PREVIEW.value}')


def run() -> None:
  app.run(main)


if __name__ == '__main__':
  run()
