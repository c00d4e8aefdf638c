"""Cluttered MNIST, 100 x 100, with the paper's attention classifier (Section 4.1, Table 1).

    python -m draw_jax.train --config=experiments/cluttered_mnist.py --workdir=runs/cluttered
    python -m draw_jax.train --config=experiments/cluttered_mnist.py:4_glimpses --workdir=runs/four

Pictures to train on are made on the fly from MNIST's training digits and never
repeat; those of the test are fixed. The paper's test errors are 3.36 % with 8
glimpses and 4.18 % with 4. Cost and error: not yet measured.
"""

from draw_jax import config as config_lib


def get_config(variant: str = ''):
  """Variants: '8_glimpses', which is also '', and '4_glimpses'."""
  config_lib.check_variant(variant, ('8_glimpses', '4_glimpses'))
  config = config_lib.default()
  config.data.name = 'cluttered_mnist'
  config.data.binarization = 'none'
  config.model = config_lib.differentiable_ram()
  config.model.steps = 4 if variant == '4_glimpses' else 8
  config.train.batch_size = 100
  config.train.epochs = 100.0
  config.optimizer.learning_rate = 1e-3
  config.optimizer.clip_norm = 10.0
  config.eval.every_epochs = 2.0
  config.eval.pictures = 8
  config.checkpoint.every_steps = 1000
  config.log.every_steps = 100
  return config
