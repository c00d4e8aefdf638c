"""Past the paper: DRAW with a learned prior and posteriors with covariances, on binarized MNIST.

    python -m draw_jax.export --model=mnist --latents=3 --output=three.safetensors
    python -m draw_jax.train --config=dependent_latents --workdir=runs/dependent

| variant | p(z_t) | q(z_t) |
| --- | --- | --- |
| '' | learned, from h_dec | all covariances |
| `learned_prior` | learned, from h_dec | diagonal |
| `full_covariance` | standard normal | all covariances |
| `neither` | standard normal | diagonal: DRAW, to compare with |

Each goes on from the weights of the model that ships, with its three latents in use, and at first
has the same bound. What each gains in two epochs is in README.md of this folder; six are not
measured.
"""

from draw_jax import config as config_lib


def get_config(variant: str = ''):
  """Variants: see the table."""
  config = config_lib.default()
  config_lib.check_variant(variant, ('learned_prior', 'full_covariance', 'neither'))
  config.model = config_lib.model_section(
    'dependent_latents',
    latent=3,
    learned_prior=variant in ('', 'learned_prior'),
    full_covariance=variant in ('', 'full_covariance'),
    dtype='bfloat16',
  )
  config.train.start_from = 'three.safetensors'
  config.train.batch_size = 50
  config.train.epochs = 6.0
  config.optimizer.learning_rate = 1e-3
  config.optimizer.arguments.weight_decay = 0.01
  config.optimizer.schedule = 'trapezoid'
  config.optimizer.fall_fraction = 1.0
  config.optimizer.ema_decay = 0.9995
  return config
