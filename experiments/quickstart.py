"""A small DRAW on 5,000 digits that come with a package: minutes on a laptop's CPU.

    python -m draw_jax.train --config=experiments/quickstart.py --workdir=runs/quickstart

The pixels are drawn anew at each visit (dynamic binarisation), so its bound is
not comparable with the paper's. Cost and bound: not yet measured.
"""

from draw_jax import config as config_lib


def get_config():
  """T 16 and fewer units than the paper's model."""
  config = config_lib.default()
  config.data.name = 'mnist_5k'
  config.data.binarization = 'dynamic'
  config.model.steps = 16
  config.model.hidden = 128
  config.model.latent = 32
  config.train.epochs = 40.0
  config.eval.every_epochs = 5.0
  return config
