"""Results of an evaluation in lines for people; see `base.Table`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_BOUND_COLUMNS = ('nats/image', '+- images', '+- draws', 'bits/dim', 'paper')


def of_bounds(row: Row, likelihood: bool, paper: float | None) -> list[str]:
  """The bounds with one number of glimpses.

  Args:
    row: as `draw_jax.evaluation.report` describes it.
    likelihood: whether they are of a likelihood of the data.
    paper: the paper's bound to stand beside that of Eq. 12, if there is one.
  """
  name = 'bound' if likelihood else 'cross-entropy + KL'
  beside = '-' if paper is None else f'{paper:.2f}'
  lines = [_columns(f'T {row["glimpses"]}', *_BOUND_COLUMNS)]
  rows = [
    (f'{name} (Eq. 12)', row['bound'], beside),
    ('  reconstruction', row['reconstruction'], ''),
    ('  KL', row['kl'], ''),
  ]
  rows += [(f'importance-weighted, K {one["samples"]}', one, '') for one in row['importance']]
  if 'entropy_floor' in row:
    rows.append(('entropy of the intensities', row['entropy_floor'], ''))
  for label, numbers, last in rows:
    errors = (_error(numbers[f'stderr_{of}']) for of in ('images', 'draws'))
    numbers = f'{numbers["mean"]:.3f}', *errors, f'{numbers["bits_per_dim"]:.4f}'
    lines.append(_columns(label, *numbers, last).rstrip())
  return lines


def of_kl(row: Row) -> list[str]:
  """The KL of each glimpse, and that of each latent where it is known."""
  lines = [f'KL of each of {row["glimpses"]} glimpses, nats', *_numbers(row['kl_glimpses'])]
  if 'kl_latents' in row:
    totals = [math.fsum(kl) for kl in zip(*row['kl_latents'], strict=True)]
    title = f'KL of each of {len(totals)} latents over all glimpses, nats, the largest first'
    lines += ['', title, *_numbers(sorted(totals, reverse=True))]
  return lines


def of_errors(row: Row) -> list[str]:
  """The error rates and the confusion matrix with one number of glimpses."""
  lines = [f'T {row["glimpses"]:<10}{"error":>9}   95 % interval     errors of images']
  rows = [('all', row['error'])] + [(f'class {i}', one) for i, one in enumerate(row['classes'])]
  for label, one in rows:
    if one['examples']:
      low, high = one['interval']
      lines.append(
        f'{label:<12}{one["rate"]:>9.2%}   {low:>6.2%} - {high:>6.2%} {one["errors"]:>10,} of '
        f'{one["examples"]:,}'
      )
  width = max(len(str(number)) for numbers in row['confusion'] for number in numbers) + 1
  lines += ['confusion: a row for each label, a column for each prediction']
  lines += [''.join(f'{number:>{width}}' for number in numbers) for numbers in row['confusion']]
  return lines


def _columns(label: str, mean: str, images: str, draws: str, bits: str, paper: str) -> str:
  return f'{label:<28}{mean:>11}{images:>11}{draws:>10}{bits:>10}{paper:>8}'


def _error(value: float | None) -> str:
  return '-' if value is None else f'{value:.3f}'


def _numbers(values: Sequence[float], columns: int = 16) -> list[str]:
  return [
    ' '.join(f'{value:.2f}' for value in values[i : i + columns])
    for i in range(0, len(values), columns)
  ]
