"""Street View House Numbers, 54 x 54 patches, with the paper's sizes (Table 3).

    python -m draw_jax.train --config=svhn --workdir=runs/svhn

The paper shows images and the cost against epochs (Figure 11). It is the
cross-entropy of intensities, no likelihood. An epoch takes about ten minutes on two
CPU cores without `extra`, and seven times as long with it; what it gave after 55,000
images is in README.md.
"""

from draw_jax import config as config_lib


def get_config():
  """T 32, 800 units, 12 x 12 for reading and writing."""
  config = config_lib.default()
  config.data.name = 'svhn'
  config.model.glimpses = 32
  config.model.hidden = 800
  config.model.latent = 100
  config.model.read_size = 12
  config.model.write_size = 12
  return config
