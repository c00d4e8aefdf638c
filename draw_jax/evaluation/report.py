r"""The results of an evaluation: as JSON, and as a table for people.

The JSON is one object:

  schema             'draw_jax.evaluation/2'
  task               'bound' or 'classification'
  partial            true if it was stopped before the end
  dataset, binarization, split
  resized            whether images of another size than the model's were resized; the figures
                     are about the resized ones
  examples           images that the figures are about
  examples_in_split  all there are; the same unless partial
  workdir, checkpoint
                     of a training run: where it is, how the model was chosen; else null
  model_file, sha256
                     of a model in a file: its name or path, its hash; else null
  step, ema          training steps taken, whether its parameters are the moving average
  start_from         the trained model that training started from, or null
  trained_glimpses   T of its training at that time
  title              the model in words
  model              the `model` section of its config
  seed, repeats, importance_samples
                     of the draws: R repeats of K samples
  draws              for each image, R x K; fewer if partial
  likelihood         whether the figures are bounds on a negative log-likelihood of the
                     data; if not, they are cross-entropies (task 'bound' only)
  paper              what the paper reports for this task and the largest T below, or null
  paper_note         what that is, or why there is none
  results            a row for each T, see below
  draws_per_second   images x samples, after the first chunk; null if there was no other
  devices            number and kind
  versions           of draw_jax, jax, flax and python

A row of a 'bound' has `glimpses`, T, and in nats an image:

  bound              Eq. 12, the mean over all images and draws
  reconstruction     its first part, Eq. 9
  kl                 its second part, Eq. 10
  kl_glimpses        [T], the second part by glimpse
  kl_latents         [T][Z], also by latent, if asked for
  importance         list of importance-weighted bounds, with `samples`, the K of each,
                     and `groups`, how many of K draws it is the mean of for each image
  entropy_floor      of cross-entropies of intensities only: the entropy of the intensities,
                     summed over each image, which no cross-entropy goes below

Each but the lists of numbers is an object of

  mean
  stderr_images      standard error for other images of the same kind; null for one image
  stderr_draws       standard error for other draws; null for one draw
  bits_per_dim       the mean over H x W x C, in bits

A row of a 'classification' has `glimpses`; `error` and a list `classes`, with `examples`,
`errors`, `rate` and its 95 % `interval`; and `confusion`, a row for each label and a
column for each prediction; and `cross_entropy`, its mean in nats.
"""

import json
import platform
from typing import Any

import jax

from draw_jax import files
from draw_jax.data import Dataset
from draw_jax.evaluation import evaluator, paper
from draw_jax.pretrained import file_format
from draw_jax.tasks.base import EvaluationOptions, Task
from draw_jax.trained import TrainedModel


def describe(
  trained: TrainedModel,
  dataset: Dataset,
  options: EvaluationOptions,
  measured: evaluator.Measurement,
  *,
  workdir: str | None = None,
  which: str | None = None,
  file: str | None = None,
) -> dict[str, Any]:
  """Every figure with all that it depends on, for JSON.

  Args:
    trained: the model.
    dataset: that it was evaluated on.
    options: of the evaluation.
    measured: its figures.
    workdir: of the training run that the model is from.
    which: checkpoint was asked for there.
    file: that the model is from instead: its name or path.
  """
  task = trained.task
  about = {
    'schema': 'draw_jax.evaluation/2',
    'task': task.kind,
    'partial': measured.partial,
    'dataset': dataset.name,
    'binarization': dataset.binarization,
    'split': options.split,
    'resized': dataset.resized,
    'examples': measured.examples,
    'examples_in_split': dataset.num_examples(options.split),
    'workdir': workdir,
    'checkpoint': which,
    'model_file': file,
    'sha256': trained.provenance.get('sha256'),
    'step': trained.step,
    'start_from': trained.config.train.get('start_from'),
    'ema': trained.ema,
    'trained_glimpses': trained.glimpses,
    'title': task.title,
    'model': trained.config.model.to_dict(),
    'seed': options.seed,
    'repeats': options.repeats,
    'importance_samples': max(options.importance_samples, default=1),
    'draws': measured.draws,
  }
  if (likelihood := task.is_likelihood(dataset.binarization)) is not None:
    about['likelihood'] = likelihood
  most = max(row['glimpses'] for row in measured.results)
  about['paper'], about['paper_note'] = paper.number(about, most)
  return about | {
    'results': measured.results,
    'draws_per_second': measured.speed,
    'devices': f'{jax.device_count()} x {jax.devices()[0].device_kind}',
    'versions': file_format.versions() | {'python': platform.python_version()},
  }


def save(path, result: dict[str, Any]) -> None:
  """Writes the JSON; the file appears whole or not at all."""
  text = json.dumps(result, indent=2, allow_nan=False)
  with files.writing(path) as temporary:
    temporary.write_text(text + '\n')


def table(result: dict[str, Any], task: Task) -> str:
  """The figures for people, with their labels.

  Args:
    result: what `describe` gave.
    task: of the model.
  """
  words = task.table(result)
  lines = [
    f'data        {result["dataset"]}, binarization {result["binarization"]}, split '
    f'{result["split"]}, {result["examples"]:,} of {result["examples_in_split"]:,} images',
    f'model       {result["title"]}, {_source(result)}, '
    f'{"EMA" if result["ema"] else "no EMA"}, trained with T {result["trained_glimpses"]}',
    *words.draws,
  ]
  if result['partial']:
    lines.insert(0, 'PARTIAL     stopped before the end')
    if result['examples'] < result['examples_in_split']:
      lines[0] += ': the first images only, and a split may be sorted by class'
  for block in words.blocks:
    lines += ['', *block]
  lines += ['', f'paper       {result["paper_note"]}', *words.notes]
  if result['draws_per_second']:
    lines.append(
      f'speed       {result["draws_per_second"]:,.0f} images x samples a second, '
      f'{result["devices"]}'
    )
  return '\n'.join(lines)


def _source(result: dict[str, Any]) -> str:
  step = f'step {result["step"]}'
  if result['start_from']:
    step += f' after {result["start_from"]}'
  if result['model_file']:
    return f'{result["model_file"]} (sha256 {result["sha256"][:8]}), {step}'
  return f'{result["workdir"]}, {step} ({result["checkpoint"]})'
