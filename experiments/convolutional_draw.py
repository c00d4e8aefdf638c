r"""Past the paper: convolutional DRAW (Gregor et al. 2016) on binarized MNIST and CIFAR-10.

    python -m draw_jax.train --config=convolutional_draw --workdir=runs/convolutional
    python -m draw_jax.train --config=convolutional_draw:cifar10 --workdir=runs/cifar10

Sizes for minutes on one core. Larger ones by flags, such as these, are not measured:

    --config.model.glimpses=16 --config.model.features=128 --config.model.latent_channels=12 \
        --config.model.scale=2 --config.model.kernel_size=5

After two minutes of processor time on one core, in batches of 25, the first had a bound of 102.19
nats on validation (10,000 images, one draw of each), where DRAW with T 64 had 132.30 after as long:
the flags are in README.md of this folder. Longer runs are not measured yet. Of the second, which
gives bits/dim, only a beginning is measured.
"""

from draw_jax import config as config_lib


def get_config(variant: str = ''):
  """Variants: '' for binarized MNIST, 'cifar10' for CIFAR-10 with a likelihood of its values."""
  config = config_lib.default()
  config_lib.check_variant(variant, ('cifar10',))
  config.model = config_lib.model_section('convolutional_draw', dtype='bfloat16')
  if variant == 'cifar10':
    config.data.name = 'cifar10'
    config.model.output = 'discretized_logistic'
    config.model.latent_channels = 8
  config.train.batch_size = 50
  config.optimizer.learning_rate = 4e-3
  return config
