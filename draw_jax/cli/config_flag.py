"""The flag --config: an experiment by name or path, whose fields can be set as --config.FIELD."""

from absl import flags
from ml_collections import config_flags

from draw_jax import config as config_lib


class _Parser(flags.ArgumentParser):
  """Finds an experiment by its name, then reads the file as ml_collections does."""

  def __init__(self, reader: flags.ArgumentParser):
    self._reader = reader
    self.syntactic_help = reader.syntactic_help

  def parse(self, argument):
    return self._reader.parse(config_lib.find_experiment(argument))

  def flag_type(self) -> str:
    return self._reader.flag_type()


def define(
  help_text: str, values: flags.FlagValues = flags.FLAGS, argv: list[str] | None = None
) -> flags.FlagHolder:
  """Defines --config among some flags.

  Args:
    help_text: what --help says of it.
    values: the flags.
    argv: the command line that they are read from; None: this program's.
  """
  holder = config_flags.DEFINE_config_file(
    'config', None, help_text, values, lock_config=True, sys_argv=argv
  )
  flag = values['config']
  flag.parser = _Parser(flag.parser)
  return holder
