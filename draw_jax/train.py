r"""Trains a model.

    python -m draw_jax.train --config=mnist --workdir=runs/mnist \
        --config.train.epochs=20

The same command goes on with a run that was stopped or killed. Any field of
the config can be set as train.epochs is here; README.md says where the fields are explained.
"""

from absl import flags
from ml_collections import config_flags

from draw_jax import config as config_lib
from draw_jax import errors
from draw_jax.cli import app, config_errors, config_flag
from draw_jax.training import loop, start

_CONFIG = config_flag.define('An experiment: a name such as mnist, or a file.')
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder for checkpoints and metrics; a run that is there is continued.'
)
_START_FROM = flags.DEFINE_string(
  'start_from',
  None,
  'A trained model to start from, a name such as mnist or a file: sets train.start_from and takes '
  'the whole section model from it.',
)
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')
_PROFILE = flags.DEFINE_list(
  'profile', None, 'First and last step of a trace to write into the workdir, such as 100,110.'
)
app.define_process_flags()


def main() -> int:
  config = _CONFIG.value
  if _START_FROM.value:
    given = config_flags.get_override_values(flags.FLAGS[_CONFIG.name])
    start.take_model(config, _START_FROM.value, _WORKDIR.value, given)
  config_lib.validate(config)
  part = config.train.batch_size // config.optimizer.accumulate
  app.start_devices([part, config.eval.batch_size])
  result = loop.train(config, _WORKDIR.value, data_dir=_DATA_DIR.value, profile=_profile())
  return 128 + result.signal if result.signal else 0


def _profile() -> tuple[int, int] | None:
  if not _PROFILE.value:
    return None
  try:
    first, last = (int(number) for number in _PROFILE.value)
  except ValueError:
    first, last = 1, 0
  if not 1 <= first <= last:
    given = ','.join(_PROFILE.value)
    raise errors.UserError(f'--profile={given} is not a first and a last step, such as 100,110.')
  return first, last


def run() -> None:
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main, config_errors.parse_flags)


if __name__ == '__main__':
  run()
