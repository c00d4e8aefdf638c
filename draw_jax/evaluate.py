r"""Evaluates a trained model on a whole split.

    python -m draw_jax.evaluate --workdir=runs/mnist --importance_samples=100 \
        --output=runs/mnist/test.json
    python -m draw_jax.evaluate --model=mnist

prints the bound of Eq. 12 and importance-weighted bounds with their standard errors (for
classifiers: the error rate with its 95 % interval), and writes them as JSON: see
`draw_jax.evaluation.report`.
`--glimpses=1,2,4,8,16,32,64` gives the bound against the number of glimpses, `--kl_latents`
shows how many latents are in use. Ctrl-C prints what there is so far, marked as partial,
and writes OUTPUT.partial.json.
"""

import dataclasses
import os
import pathlib
import signal

import jax
from absl import flags

from draw_jax import errors, trained
from draw_jax.cli import app
from draw_jax.devices import processes, sharding
from draw_jax.evaluation import evaluator, report
from draw_jax.tasks import base, bounds
from draw_jax.training import checkpoint_files

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a training run.')
_MODEL = flags.DEFINE_string(
  'model', None, 'Name of a shipped model, or a file of draw_jax.export, in place of a workdir.'
)
_CHECKPOINT = flags.DEFINE_string('checkpoint', 'best', 'best, latest, or a step.')
_EMA = flags.DEFINE_bool('ema', True, 'The moving average of the parameters, or they themselves.')
_SPLIT = flags.DEFINE_string(
  'split',
  None,
  'Of the dataset trained on. Default: test, or where there is none that of validation.',
)
_GLIMPSES = flags.DEFINE_list('glimpses', [], 'T, one or several; that of training if left out.')
_SAMPLES = flags.DEFINE_list(
  'importance_samples',
  ['1'],
  'K, also giving bounds with 10, 100, ...; or several, for just those.',
)
_REPEATS = flags.DEFINE_integer('repeats', 1, 'R: draws are made R x K times for each image.')
_LATENTS = flags.DEFINE_bool('kl_latents', False, 'Also the KL of each latent.')
_SEED = flags.DEFINE_integer(
  'seed', 0, 'The same seed gives the same draws; training validates with 0.'
)
_OUTPUT = flags.DEFINE_string('output', None, 'JSON file to write.')
_BATCH_SIZE = flags.DEFINE_integer(
  'batch_size', None, 'Images at a time on all devices together; if left out, that of training.'
)
_MEMORY = flags.DEFINE_integer('memory', 128, 'MiB for the draws a device works on at a time.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Folder of prepared datasets.')
app.define_process_flags()


def main() -> int:
  output = _output()
  samples = _integers('importance_samples', _SAMPLES.value)
  glimpses = _integers('glimpses', _GLIMPSES.value)
  options = base.EvaluationOptions(
    split=_SPLIT.value or 'test',
    importance_samples=bounds.ladder(*samples) if len(samples) == 1 else samples,
    repeats=_REPEATS.value,
    latents=_LATENTS.value,
    seed=_SEED.value,
    batch_size=_BATCH_SIZE.value,
    memory=_MEMORY.value,
  )
  app.start_devices([options.batch_size or base.EVALUATION_BATCH])
  processes.agree({
    **dataclasses.asdict(options), 'glimpses': glimpses, 'workdir': _WORKDIR.value,
    'model': _MODEL.value, 'checkpoint': _CHECKPOINT.value, 'ema': _EMA.value,
  })  # fmt: skip
  try:
    model = trained.find(
      _WORKDIR.value, _MODEL.value, _CHECKPOINT.value, ema=_EMA.value, data_dir=_DATA_DIR.value
    )
    dataset = model.dataset
    if _SPLIT.value is None and 'test' not in dataset.splits:
      options = dataclasses.replace(options, split=model.config.eval.split)
    model.check_held_out(dataset, options.split)
    glimpses, mesh = glimpses or (model.glimpses,), sharding.make_mesh()
    size = model.config.eval.batch_size
    options = evaluator.as_in_training(options, size, model.task, glimpses, mesh)
    if jax.process_count() > 1:
      split = options.split
      about = {f'data.{split}': dataset.fingerprint(split), 'step of the checkpoint': model.step}
      processes.agree({**about, 'checksum of the weights': checkpoint_files.checksum(model.params)})
    evaluation = evaluator.Evaluator(model.task, dataset, options, mesh, glimpses)
    measured = evaluation.measure(model.params)
  except KeyboardInterrupt:
    print('stopped before there was any figure.')
    return 128 + signal.SIGINT
  source = {'workdir': _WORKDIR.value, 'which': _CHECKPOINT.value}
  if _MODEL.value is not None:
    source = {'file': _MODEL.value}
  result = report.describe(model, dataset, options, measured, **source)
  if jax.process_index() == 0:
    # The file first: whoever reads the table, such as `head`, may have gone.
    if output:
      # A whole result that is there already must not give way to a part of one.
      report.save(output.with_suffix('.partial.json') if measured.partial else output, result)
    print(report.table(result, model.task))
  return 128 + signal.SIGINT if measured.partial else 0


def _output() -> pathlib.Path | None:
  """Where to write, if asked to; refuses in time what could not be written after hours."""
  if not _OUTPUT.value:
    return None
  path = pathlib.Path(_OUTPUT.value)
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise errors.UserError(f'cannot write --output={path}: {error.strerror}.') from error
  if not os.access(path.parent, os.W_OK | os.X_OK) or path.is_dir():
    raise errors.UserError(f'cannot write --output={path}: give a file in a folder of yours.')
  return path


def _integers(name: str, words: list[str]) -> tuple[int, ...]:
  given = ','.join(words)
  if not all(word.isdecimal() and int(word) for word in words):
    raise errors.UserError(f'--{name}={given}: give a number of at least 1, or several as 1,10.')
  if any(int(word) >= 2**31 for word in words):  # They are counted in 32 bits.
    raise errors.UserError(f'--{name}={given}: give numbers below {2**31}.')
  return tuple(int(word) for word in words)


def run() -> None:
  app.run(main)


if __name__ == '__main__':
  run()
