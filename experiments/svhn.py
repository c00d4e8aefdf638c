"""Street View House Numbers, 54 x 54 patches, with the paper's sizes (Table 3).

    python -m draw_jax.train --config=svhn --workdir=runs/svhn
    python -m draw_jax.train --config=svhn:likelihood --workdir=runs/svhn_likelihood

The paper shows images and the cost against epochs (Figure 11). It is the
cross-entropy of intensities, no likelihood. An epoch takes about ten minutes on two
CPU cores without `extra`, and seven times as long with it; what it gave after 55,000
images is in README.md. The second gives a bound on the likelihood of the 256 values
of the resized images, in bits/dim: not measured yet.
"""

from draw_jax import config as config_lib


def get_config(variant: str = ''):
  """T 32, 800 units, 12 x 12 for reading and writing.

  Variants: '' for the paper's cross-entropy, 'likelihood'.
  """
  config = config_lib.default()
  config_lib.check_variant(variant, ('likelihood',))
  if variant == 'likelihood':
    config.model.output = 'discretized_logistic'
  config.data.name = 'svhn'
  config.model.glimpses = 32
  config.model.hidden = 800
  config.model.latent = 100
  config.model.read_size = 12
  config.model.write_size = 12
  return config
