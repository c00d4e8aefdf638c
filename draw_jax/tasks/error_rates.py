"""How often a classifier errs: pure functions of labels and predictions."""

from typing import Any

import numpy as np


def confusion(labels: np.ndarray, predictions: np.ndarray, num_classes: int) -> np.ndarray:
  """How often each class was taken for each.

  Args:
    labels: int [N].
    predictions: int [N].
    num_classes: of both.

  Returns:
    int [num_classes, num_classes], a row for each label and a column for each prediction.
  """
  table = np.zeros((num_classes, num_classes), np.int64)
  np.add.at(table, (labels, predictions), 1)
  return table


def interval(errors: int, num: int) -> tuple[float, float]:
  """The 95 % confidence interval of an error rate (Wilson 1927), good for few errors too."""
  from scipy import stats  # half a second, which training need not wait for

  found = stats.binomtest(errors, num).proportion_ci(0.95, method='wilson')
  return float(found.low), float(found.high)


def summary(labels: np.ndarray, predictions: np.ndarray, num_classes: int) -> dict[str, Any]:
  """Error rates with their 95 % intervals over all and by class, and the confusion matrix.

  Args:
    labels: int [N].
    predictions: int [N].
    num_classes: of both.

  Returns:
    For JSON: 'error' and the rows of 'classes' have 'examples', 'errors', 'rate' and
    'interval'; a class without examples has None for the last two.
  """
  table = confusion(labels, predictions, num_classes)
  counts = table.sum(1)
  errors = counts - table.diagonal()
  return {
    'error': _rate(int(errors.sum()), int(counts.sum())),
    'classes': [_rate(int(e), int(n)) for e, n in zip(errors, counts, strict=True)],
    'confusion': table.tolist(),
  }


def _rate(errors: int, num: int) -> dict[str, Any]:
  return {
    'examples': num,
    'errors': errors,
    'rate': errors / num if num else None,
    'interval': list(interval(errors, num)) if num else None,
  }
