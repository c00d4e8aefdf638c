"""Sweeps: lists of the runs that an experiment is to be tried with, as pure functions.

A run is a dict of overrides, from 'section.field' to a value; a sweep is a list of
runs, which `get_sweep()` of an experiment returns:

    def get_sweep():
      return sweeps.product(
        sweeps.values('optimizer.learning_rate', 1e-3, 2e-3),
        sweeps.values('train.batch_size', 50, 100),
      )

is four runs. Lists are joined with `+`; `[{}]` is the experiment as it stands.
"""

import ast
import hashlib
import itertools
import re
from collections.abc import Sequence
from typing import Any

from draw_jax.errors import UserError

Overrides = dict[str, Any]

_LONGEST = 120  # characters of a name; file systems take 255


def values(name: str, *values: Any) -> list[Overrides]:
  """A run for each value of one field, such as 'train.batch_size'."""
  return [{name: value} for value in values]


def product(*sweeps: Sequence[Overrides]) -> list[Overrides]:
  """Every run of each sweep with every run of the others; the last one varies fastest."""
  return [_merged(runs) for runs in itertools.product(*sweeps)]


def zipped(*sweeps: Sequence[Overrides]) -> list[Overrides]:
  """The first run of each sweep together, then the second of each, and so on."""
  if len({len(sweep) for sweep in sweeps}) > 1:
    lengths = ', '.join(str(len(sweep)) for sweep in sweeps)
    raise UserError(f'sweeps of {lengths} runs cannot be zipped: give as many of each.')
  return [_merged(runs) for runs in zip(*sweeps, strict=True)]


def from_words(words: Sequence[str]) -> list[Overrides]:
  """The product of 'FIELD=VALUE,VALUE,...' as given on a command line."""
  swept = []
  for word in words:
    name, _, given = word.partition('=')
    texts = given.split(',')
    if not name or not all(texts) or re.search(r'[()\[\]]', given):
      raise UserError(
        f'--sweep.{word} is not a field and its values, such as '
        '--sweep.optimizer.learning_rate=1e-3,2e-3; those with commas go into a get_sweep().'
      )
    swept.append(values(name, *map(_literal, texts)))
  return product(*swept)


def names(sweep: Sequence[Overrides]) -> list[str]:
  """A name for each run that says what is special about it and can be that of a folder.

  Such as 'learning_rate=0.002,batch_size=50': fields without their section, but for
  those that two sections have.
  """
  fields = {field for run in sweep for field in run}
  ends = [field.rpartition('.')[2] for field in fields]
  short = {f: f if ends.count(end) > 1 else end for f, end in zip(fields, ends, strict=True)}
  found = [
    ','.join(f'{short[field]}={_safe(value)}' for field, value in run.items()) or 'unchanged'
    for run in sweep
  ]
  unclear = [len(name) > _LONGEST or found.count(name) > 1 for name in found]
  found = [
    f'{name[:_LONGEST]}-{_digest(run)}' if cut else name
    for name, run, cut in zip(found, sweep, unclear, strict=True)
  ]
  for name in found:
    if found.count(name) > 1:
      raise UserError(f'the sweep has the run {name} twice: leave one out.')
  return found


def _literal(text: str) -> Any:
  """A number where it is one, so that 1e-3 and 0.001 are the same run; else the text."""
  try:
    return ast.literal_eval(text)
  except (SyntaxError, ValueError):
    return text


def _merged(runs: Sequence[Overrides]) -> Overrides:
  merged = {}
  for run in runs:
    if twice := sorted(merged.keys() & run.keys()):
      raise UserError(f'{twice[0]} is set twice in one run of the sweep: leave one out.')
    merged |= run
  return merged


def _safe(value: Any) -> str:
  """The value with what has a meaning in paths, shells or names replaced."""
  return re.sub(r'[^A-Za-z0-9.+-]+', '_', str(value)).strip('_')


def _digest(run: Overrides) -> str:
  return hashlib.sha256(repr(sorted(run.items())).encode()).hexdigest()[:8]
