"""Writes a trained model as one small file, to be kept, shared or shipped.

    python -m draw_jax.export --workdir=runs/mnist --output=mnist.safetensors
    python -m draw_jax.export --workdir=runs/mnist --name=mine

The second puts it in the package, where `--model=mine` of every binary and
`draw_jax.load('mine')` find it; those over 5 MB are refused there. The config goes in
whole: with pictures of your own their path too.
"""

import pathlib
import re
import subprocess

from absl import flags

from draw_jax import binary, checkpoint, files, model_file
from draw_jax.errors import UserError

LIMIT = 5_000_000  # bytes of a model in the package

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a training run.', required=True)
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_NAME = flags.DEFINE_string('name', None, 'Of the model, to go into the package.')
_OUTPUT = flags.DEFINE_string('output', None, 'File to write instead, of any size.')
_NOTE = flags.DEFINE_string('note', None, 'What else is to be known of the model.')
_FORCE = flags.DEFINE_bool('force', False, 'Replace a file that is there.')


def main() -> None:
  """Writes the file."""
  path = _path()
  if files.is_there(path) and not _FORCE.value:
    raise UserError(f'{path} is there already: give another name, or --force to replace it.')
  loaded = checkpoint.load(_WORKDIR.value, _CHECKPOINT.value)
  size = model_file.write(
    path, loaded, commit=_commit(), note=_NOTE.value, limit=LIMIT if _NAME.value else None
  )
  print(f'The model of step {loaded.step} is in {path}, {size / 1e6:.1f} MB.')


def _path() -> pathlib.Path:
  name, output = _NAME.value, _OUTPUT.value
  if (name is None) == (output is None):
    raise UserError('give either --name=NAME or --output=FILE.')
  if output is not None:
    if not output.endswith(model_file.SUFFIX):
      raise UserError(f'--output={output} must end with {model_file.SUFFIX}.')
    return pathlib.Path(output)
  if not re.fullmatch(r'[a-z0-9_]+', name):
    raise UserError(f'--name={name} must be of small letters, digits and _.')
  return pathlib.Path(str(model_file.folder())) / f'{name}{model_file.SUFFIX}'


def _commit() -> str | None:
  """Of the checkout that this package is in, marked where that was changed since."""
  folder = pathlib.Path(__file__).parent
  try:
    # The repository around an installed package is not its own.
    for command in (
      ['ls-files', '--error-unmatch', '__init__.py'],
      ['describe', '--always', '--dirty', '--abbrev=40', '--exclude=*'],
    ):
      done = subprocess.run(
        ['git', *command], cwd=folder, capture_output=True, text=True, check=True
      )
  except (OSError, subprocess.CalledProcessError):
    return None
  return done.stdout.strip()


def run() -> None:
  """The command `draw-export`."""
  binary.run(main)


if __name__ == '__main__':
  run()
