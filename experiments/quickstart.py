"""A small DRAW on 5,000 digits that come with a package: minutes on a laptop's CPU.

    python -m draw_jax.train --config=quickstart --workdir=runs/quickstart

`bash launch/quickstart.sh` installs, trains, evaluates and draws: 3 minutes on two
cores of an AMD EPYC, of which 95 seconds are training. The bound was 123.3 +- 1.6
nats an image (valid, 500 images, one draw of each, K 1). The pixels are drawn anew
at each visit (dynamic binarization), so it is not comparable with the paper's.
"""

from draw_jax import config as config_lib
from draw_jax import sweeps


def get_config():
  """T 16 and fewer units than the paper's model."""
  config = config_lib.default()
  config.data.name = 'mnist_5k'
  config.data.binarization = 'dynamic'
  config.model.glimpses = 16
  config.model.hidden = 128
  config.model.latent = 32
  config.train.epochs = 40.0
  config.eval.every_epochs = 5.0
  return config


def get_sweep():
  """Two learning rates, to see how a sweep works."""
  return sweeps.values('optimizer.learning_rate', 1e-3, 2e-3)
