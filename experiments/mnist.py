"""MNIST with the paper's sizes (Table 3) on the fixed binarization.

    python -m draw_jax.train --config=mnist --workdir=runs/mnist
    python -m draw_jax.train --config=mnist:no_attention --workdir=runs/mnist_plain
    python -m draw_jax.train --config=mnist:gray --workdir=runs/mnist_gray

The second is the paper's DRAW without attention. With attention an epoch takes about
three minutes on two CPU cores; the bound on validation (10,000 images, one draw of each)
was 94.9 nats after 4 epochs and 87.3 after 12. The model that ships had 81.0 after 302:
how is told in README.md. The paper reports 80.97 nats on test with attention and 87.40
without, after an unstated number of epochs.

The third gives the 256 values of gray digits a likelihood, in bits/dim: other data, and
other numbers. It is not measured yet.
"""

from draw_jax import config as config_lib
from draw_jax import sweeps


def get_config(variant: str = ''):
  """Variants: '' for attention, 'no_attention', 'gray'."""
  config = config_lib.default()
  config_lib.check_variant(variant, ('no_attention', 'gray'))
  if variant == 'no_attention':
    config.model.attention = False
    # Every step writes on the whole canvas: the gain that attention needs would flood it.
    config.model.initialization.write_scale = 0.25
  elif variant == 'gray':
    config.data.name = 'mnist'
    config.data.binarization = 'none'
    config.model.output = 'discretized_logistic'
    config.model.components = 3
  config.train.batch_size = 50
  config.train.kl_warmup_steps = 1000
  return config


def get_sweep():
  """Learning rates and batch sizes around those above: six runs of as many epochs."""
  return sweeps.product(
    sweeps.values('optimizer.learning_rate', 1e-3, 2e-3, 4e-3),
    sweeps.values('train.batch_size', 50, 100),
  )
