r"""Trains an experiment with each of the settings that its `get_sweep()` lists, or the flags.

    python -m draw_jax.sweep --config=quickstart --workdir=runs/sweep
    python -m draw_jax.sweep --config=mnist --workdir=runs/mnist_sweep \
        --num_local=2 --config.train.epochs=1
    python -m draw_jax.sweep --config=mnist --workdir=runs/rates \
        --sweep.optimizer.learning_rate=1e-3,2e-3 --sweep.train.batch_size=50,100
    python -m draw_jax.sweep --config=mnist --workdir=runs/mnist_sweep \
        --print > runs.txt

The third is four runs: each rate with each size, whatever the experiment's `get_sweep()` says.
Each run has a folder in the workdir, named by what is special about it, with its log
in log.txt. The same command goes on with a sweep that was stopped; runs that are
finished are left as they are. At the end the runs are listed by their best figure on
validation, which is also written as sweep.json, sweep.csv and sweep.png.

Runs side by side share the cores. They do not share a GPU well, as each takes most of
its memory: give the lines of --print to a scheduler.
"""

import shlex
import sys
from collections.abc import Sequence

from absl import flags
from ml_collections import config_flags

from draw_jax import files
from draw_jax.cli import app, config_errors, config_flag
from draw_jax.errors import UserError
from draw_jax.sweeps import local, report

_CONFIG = config_flag.define(
  'An experiment: a name such as mnist, or a file. Its fields can be set for all runs.'
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Folder for the folders of the runs.')
_NUM_LOCAL = flags.DEFINE_integer('num_local', 1, 'How many to run at a time.', lower_bound=1)
_PRINT = flags.DEFINE_bool('print', False, 'Only print the command of each run, one a line.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')

_TRAIN = ('-m', 'draw_jax.train')
# Flags cannot be declared whose names are fields of a config: 'FIELD=VALUES' of those given.
_words: list[str] = []


def main() -> int:
  if files.is_remote(_WORKDIR.value):
    raise UserError(f'--workdir={_WORKDIR.value}: the folder of a sweep must be on this machine.')
  config = flags.FLAGS[_CONFIG.name]
  runs = local.make(
    config_flags.get_config_filename(config),
    config_flags.get_override_values(config),
    _WORKDIR.value,
    _passed_on(),
    _words,
  )
  if _PRINT.value:
    for run in runs:
      print(shlex.join(['python', *_TRAIN, *run.arguments]))
    return 0
  with report.Display() as display:
    program = [sys.executable, *_TRAIN]
    stopped = local.run_all(runs, _NUM_LOCAL.value, program, display.show)
  print(report.conclude(_WORKDIR.value, runs, stopped))
  return 128 + stopped if stopped else int(any(run.state == 'failed' for run in runs))


def _passed_on() -> list[str]:
  """Flags that every run gets as they were given here."""
  shared = flags.FLAGS.flags_by_module_dict()[app.__name__]
  return [flag.serialize() for flag in (flags.FLAGS[_DATA_DIR.name], *shared) if flag.present]


def _parse_flags(argv: Sequence[str]) -> list[str]:
  """The `flags_parser` of `app.run`, which takes --sweep.FIELD=VALUES out before."""
  begins = [word.lstrip('-') if word.startswith('-') else '' for word in argv]
  taken = [begin.startswith('sweep.') for begin in begins]
  _words[:] = [
    begin.removeprefix('sweep.') for begin, take in zip(begins, taken, strict=True) if take
  ]
  return config_errors.parse_flags([w for w, take in zip(argv, taken, strict=True) if not take])


def run() -> None:
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main, _parse_flags)


if __name__ == '__main__':
  run()
