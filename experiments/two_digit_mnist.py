"""Two digits on one 60 x 60 canvas (Section 4.3), with MNIST's sizes.

    python -m draw_jax.train --config=two_digit_mnist --workdir=runs/two_digit_mnist

The paper shows images and gives no number. Table 3 has no row for it: the
sizes are those of the MNIST model. An epoch takes about four minutes on two CPU
cores; what 80,000 images gave is in README.md.
"""

from draw_jax import config as config_lib


def get_config():
  """A new pair at each visit; intensities, as in the paper's Figure 8."""
  config = config_lib.default()
  config.data.name = 'two_digit_mnist'
  config.data.binarization = 'none'
  return config
