r"""Trains an experiment with each of the settings that its `get_sweep()` lists.

    python -m draw_jax.sweep --config=quickstart --workdir=runs/sweep
    python -m draw_jax.sweep --config=mnist --workdir=runs/mnist_sweep \
        --num_local=2 --config.train.epochs=1
    python -m draw_jax.sweep --config=mnist --workdir=runs/mnist_sweep \
        --print > runs.txt

Each run has a folder in the workdir, named by what is special about it, with its log
in log.txt. The same command goes on with a sweep that was stopped; runs that are
finished are left as they are. At the end the runs are listed by their best figure on
validation, which is also written as sweep.json, sweep.csv and sweep.png.

Runs side by side share the cores. They do not share a GPU well, as each takes most of
its memory: give the lines of --print to a scheduler.
"""

import shlex
import sys

from absl import flags
from ml_collections import config_flags

from draw_jax.cli import app, config_errors, config_flag
from draw_jax.sweeps import local, report

_CONFIG = config_flag.define(
  'An experiment with a get_sweep(): a name such as mnist, or a file. Its fields can be set for '
  'all runs.'
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Folder for the folders of the runs.')
_NUM_LOCAL = flags.DEFINE_integer('num_local', 1, 'How many to run at a time.', lower_bound=1)
_PRINT = flags.DEFINE_bool('print', False, 'Only print the command of each run, one a line.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')

_TRAIN = ('-m', 'draw_jax.train')


def main() -> int:
  config = flags.FLAGS[_CONFIG.name]
  runs = local.make(
    config_flags.get_config_filename(config),
    config_flags.get_override_values(config),
    _WORKDIR.value,
    _passed_on(),
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


def run() -> None:
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main, config_errors.parse_flags)


if __name__ == '__main__':
  run()
