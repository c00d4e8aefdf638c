"""The paper's numbers, and for which evaluations they are comparable."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of Table 1 or 2.

  Attributes:
    numbers: by T.
    data: what an evaluation on the same data says of them.
    words: of a number, with the fields `number` and `glimpses`.
    same_training: whether T in training must have been the same.
  """

  numbers: Mapping[int, float]
  data: Mapping[str, str]
  words: str
  same_training: bool


def _errors(numbers: Mapping[int, float]) -> Row:
  """Table 1: errors in percent on cluttered MNIST."""
  words = '{number:.2f} % errors with T {glimpses} (other images, made in the same way)'
  return Row(numbers, {'dataset': 'cluttered_mnist', 'split': 'test'}, words, same_training=True)


def _bounds(number: float, which: str) -> Row:
  """Table 2: upper bounds in nats with T 64 (Table 3)."""
  data = {'dataset': 'binarized_mnist', 'binarization': 'fixed', 'split': 'test'}
  words = f'at most {{number:.2f}} nats {which} (a bound as Eq. 12, same data)'
  return Row({64: number}, data, words, same_training=False)


# By `Task.title`.
ROWS = {
  'draw with attention': _bounds(80.97, 'with attention'),
  'draw without attention': _bounds(87.40, 'without attention'),
  'differentiable_ram': _errors({8: 3.36, 4: 4.18}),
  'ram': _errors({8: 8.11, 4: 9.41}),
  'convolutional': _errors({1: 14.35}),
}


def number(about: Mapping[str, Any], glimpses: int) -> tuple[float | None, str]:
  """The paper's number for the same model, data and T, and what it is; or None and why not.

  Args:
    about: what `report.describe` says of an evaluation.
    glimpses: the largest T of it.
  """
  row = ROWS.get(about['title'])
  if row is None:
    return None, f'not comparable: it has no figures for {about["title"]}'
  if any(about[name] != value for name, value in row.data.items()):
    data = ', '.join(f'{name} {value}' for name, value in row.data.items())
    return None, f'not comparable: its figures are for {data}'
  trained = about['trained_glimpses']
  if glimpses not in row.numbers or (row.same_training and glimpses != trained):
    known = ' or '.join(str(glimpses) for glimpses in sorted(row.numbers))
    also = ', in training too' if row.same_training else ''
    return None, f'not comparable: its figures are for T {known}{also}'
  found = row.numbers[glimpses]
  return found, row.words.format(number=found, glimpses=glimpses)
