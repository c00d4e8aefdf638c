r"""Trains a model.

    python -m draw_jax.train --config=experiments/mnist.py --workdir=runs/mnist \
        --config.train.epochs=20

The same command goes on with a run that was stopped or killed.
"""

import os
import pathlib
import sys

import jax
from absl import app, flags, logging
from ml_collections import config_flags

from draw_jax import config_errors, errors, sharding, training

_CACHE = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser() / 'draw_jax'

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'An experiment, such as experiments/mnist.py.', lock_config=True
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder for checkpoints and metrics; a run that is there is continued.'
)
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')
_COMPILATION_CACHE = flags.DEFINE_string(
  'compilation_cache', str(_CACHE / 'xla'), "Folder for compiled programs; '' for none."
)
_PROFILE = flags.DEFINE_list(
  'profile', None, 'First and last step of a trace to write into the workdir, such as 100,110.'
)
_COORDINATOR = flags.DEFINE_string(
  'coordinator_address', None, 'host:port of process 0, where no scheduler tells it.'
)
_NUM_PROCESSES = flags.DEFINE_integer('num_processes', None, 'Number of processes.')
_PROCESS_ID = flags.DEFINE_integer('process_id', None, 'Which process this is, from 0.')


def main(argv) -> int:
  """Flags in, library call out."""
  if len(argv) > 1:
    raise errors.UserError(f'unknown argument {argv[1]!r}: options begin with --.')
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
  if _COMPILATION_CACHE.value:
    jax.config.update('jax_compilation_cache_dir', _COMPILATION_CACHE.value)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  sharding.start_processes(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
  result = training.train(
    _CONFIG.value, _WORKDIR.value, data_dir=_DATA_DIR.value, profile=_profile()
  )
  return 128 + result.signal if result.signal else 0


def _guarded(argv) -> int:
  # As `errors.run`, which leaves the parsing of flags to absl.
  try:
    return main(argv)
  except errors.UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2


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


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(_guarded, flags_parser=config_errors.parse_flags)
