"""CIFAR-10 with the paper's sizes (Table 3).

    python -m draw_jax.train --config=cifar10 --workdir=runs/cifar10
    python -m draw_jax.train --config=cifar10:likelihood --workdir=runs/cifar10_likelihood

The paper shows images and gives no number. Its cross-entropy of intensities is
no likelihood. An epoch takes about eight minutes on two CPU cores; what it gave after
one is in README.md. The second gives a bound on the likelihood of the 256 values, in
bits/dim: what a short run of it gave is there, too; this size is not measured yet.
"""

from draw_jax import config as config_lib


def get_config(variant: str = ''):
  """T 64, 400 units, 200 latents, 5 x 5 for reading and writing.

  Variants: '' for the paper's cross-entropy, 'likelihood'.
  """
  config = config_lib.default()
  config_lib.check_variant(variant, ('likelihood',))
  if variant == 'likelihood':
    config.model.output = 'discretized_logistic'
  config.data.name = 'cifar10'
  config.model.glimpses = 64
  config.model.hidden = 400
  config.model.latent = 200
  config.model.read_size = 5
  config.model.write_size = 5
  return config
