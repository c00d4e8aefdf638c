"""Writes a trained model as one small file, to be kept, shared or shipped.

    python -m draw_jax.export --workdir=runs/mnist --output=mnist.safetensors
    python -m draw_jax.export --workdir=runs/mnist --name=mine

The second puts it in the package, where `--model=mine` of every command and
`draw_jax.load('mine')` find it; those over 5 MB are refused there. The config goes in
whole: with images of your own their path too.

    python -m draw_jax.export --model=mine --latents=3 --output=three.safetensors

keeps the three latents that depend most on the image. Training leaves the decoder
listening to latents that carry nothing (`draw_jax.evaluate --kl_latents` shows which), to
their noise alone. A larger number adds latents without effect. With --float16 a file has half
the size; `draw_jax.evaluate --model=FILE` tells whether the bound is still the same.
"""

import pathlib
import re
import subprocess

from absl import flags

from draw_jax import files, trained
from draw_jax.cli import app
from draw_jax.errors import UserError
from draw_jax.pretrained import file_format

LIMIT = 5_000_000  # bytes of a model in the package

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a training run.')
_MODEL = flags.DEFINE_string(
  'model', None, 'Name of a shipped model, or a file of this command, in place of a workdir.'
)
_LATENTS = flags.DEFINE_integer('latents', None, 'Z of the model to write, if not its own.')
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_NAME = flags.DEFINE_string('name', None, 'Of the model, to go into the package.')
_OUTPUT = flags.DEFINE_string('output', None, 'File to write instead, of any size.')
_NOTE = flags.DEFINE_string(
  'note', None, 'What else is to be known of the model. Default: what the file of --model says.'
)
_FLOAT16 = flags.DEFINE_bool('float16', False, 'Round the parameters to 16 bits.')
_FORCE = flags.DEFINE_bool('force', False, 'Replace a file that is there.')


def main() -> None:
  path = _path()
  if files.is_there(path) and not _FORCE.value:
    raise UserError(f'{path} is there already: give another name, or --force to replace it.')
  model = trained.find(_WORKDIR.value, _MODEL.value, _CHECKPOINT.value)
  if _LATENTS.value is not None:
    model = model.with_latents(_LATENTS.value)
  note = model.provenance.get('note') if _NOTE.value is None else _NOTE.value
  limit = LIMIT if _NAME.value else None
  size = trained.save(path, model, commit=_commit(), note=note, limit=limit, half=_FLOAT16.value)
  print(f'The model of step {model.step} is in {path}, {size / 1e6:.1f} MB.')


def _path() -> pathlib.Path:
  name, output = _NAME.value, _OUTPUT.value
  if (name is None) == (output is None):
    raise UserError('give either --name=NAME or --output=FILE.')
  if output is not None:
    if not output.endswith(file_format.SUFFIX):
      raise UserError(f'--output={output} must end with {file_format.SUFFIX}.')
    return pathlib.Path(output)
  if not re.fullmatch(r'[a-z0-9_]+', name):
    raise UserError(f'--name={name} must be of small letters, digits and _.')
  return pathlib.Path(str(trained.folder())) / f'{name}{file_format.SUFFIX}'


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
  app.run(main)


if __name__ == '__main__':
  run()
