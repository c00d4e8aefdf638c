"""Your own images: a folder of them, or arrays in an .npy, .npz, .mat or IDX file.

    python -m draw_jax.train --config=own_images --workdir=runs/own \
        --config.data.path=IMAGES --config.data.image_size=48 --config.data.channels=3

Images are scaled and cut to image_size x image_size; those of an array stay as they are
without it. A tenth of them is held out for validation, unless they are split already: into
x_train and x_test, or folders called so. Cost and bound depend on them: T, hidden and the image
size set the cost, shown as time left from the second row on.
"""

from draw_jax import config as config_lib


def get_config():
  """Larger grids than for digits: there is more to see in one glance."""
  config = config_lib.default()
  config.data.name = 'images'
  config.model.glimpses = 32
  config.model.hidden = 400
  config.model.read_size = 8
  config.model.write_size = 8
  config.train.epochs = 100.0
  config.eval.every_epochs = 5.0
  return config
