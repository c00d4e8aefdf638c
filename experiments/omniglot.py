"""OMNIGLOT in 28 x 28 pixels, the split of Burda et al. (2015), with the sizes of MNIST.

    python -m draw_jax.prepare --dataset=omniglot --manual_dir=DIR   # DIR has chardata.mat
    python -m draw_jax.train --config=omniglot --workdir=runs/omniglot
    python -m draw_jax.evaluate --workdir=runs/omniglot --split=test

Gregor et al. (2016) give 96.5 nats for DRAW and less than 91.0 for its convolutional
successor, on test (8,070 images). Cost and bound here: not yet measured, as the file was
not at hand. Intensities are binarized anew at each visit (dynamic).
"""

from draw_jax import config as config_lib


def get_config():
  """T 64, 256 units, 100 latents, 2 x 2 for reading and 5 x 5 for writing."""
  config = config_lib.default()
  config.data.name = 'omniglot'
  config.train.batch_size = 50
  config.train.epochs = 50.0
  config.train.kl_warmup_steps = 1000
  return config
