"""The paper's numbers, and for which evaluations they are comparable."""

from collections.abc import Mapping
from typing import Any

# Table 2, in nats: upper bounds for the test images with fixed binarization, T 64 (Table 3).
BOUNDS = {'draw with attention': 80.97, 'draw without attention': 87.40}
BOUND_GLIMPSES = 64
_BOUND_DATA = ('binarized_mnist', 'fixed', 'test')
# Table 1, in percent: errors on cluttered MNIST by model and T.
ERRORS = {
  ('differentiable_ram', 8): 3.36,
  ('differentiable_ram', 4): 4.18,
  ('ram', 8): 8.11,
  ('ram', 4): 9.41,
  ('convolutional', 1): 14.35,
}


def number(about: Mapping[str, Any], glimpses: int) -> tuple[float | None, str]:
  """The paper's number for the same model, data and T, and what it is; or None and why not.

  Args:
    about: what `report.describe` says of an evaluation.
    glimpses: the largest T of it.
  """
  return _bound(about, glimpses) if about['task'] == 'bound' else _error(about, glimpses)


def _error(about: Mapping[str, Any], glimpses: int) -> tuple[float | None, str]:
  error = ERRORS.get((about['title'], glimpses))
  same = (about['dataset'], about['split']) == ('cluttered_mnist', 'test')
  if not same or error is None or glimpses != about['trained_glimpses']:
    return None, (
      'not comparable: its figures are for cluttered_mnist, split test, trained with T 4 or 8'
    )
  return error, f'{error:.2f} % errors with T {glimpses} (other images, made in the same way)'


def _bound(about: Mapping[str, Any], glimpses: int) -> tuple[float | None, str]:
  bound = BOUNDS.get(about['title'])
  if (about['dataset'], about['binarization'], about['split']) != _BOUND_DATA or bound is None:
    return None, (
      'not comparable: its figures are for draw on binarized_mnist, fixed binarization, split test'
    )
  if glimpses != BOUND_GLIMPSES:
    return None, f'not comparable: its figures are for T {BOUND_GLIMPSES}'
  words = about['title'].partition(' ')[2]
  return bound, f'at most {bound:.2f} nats {words} (a bound as Eq. 12, same data)'
