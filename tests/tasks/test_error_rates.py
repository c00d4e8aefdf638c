import numpy as np
import pytest

from draw_jax.tasks import error_rates


def test_summary_counts_each_example_once():
  labels = np.array([0, 0, 0, 1, 1, 3])
  predictions = np.array([0, 0, 1, 1, 3, 3])
  summary = error_rates.summary(labels, predictions, 4)
  assert summary['confusion'] == [[2, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]]
  assert (summary['error']['errors'], summary['error']['examples']) == (2, 6)
  assert summary['error']['rate'] == pytest.approx(1 / 3)
  rates = [row['rate'] for row in summary['classes']]
  assert rates == [pytest.approx(1 / 3), 0.5, None, 0.0]
  assert summary['classes'][2] == {'examples': 0, 'errors': 0, 'rate': None, 'interval': None}


@pytest.mark.parametrize(('errors', 'num'), [(0, 50), (1, 30), (336, 10_000), (30, 30)])
def test_interval_holds_the_rates_that_a_score_test_accepts(errors, num):
  low, high = error_rates.interval(errors, num)
  assert 0 <= low <= errors / num <= high <= 1
  for end in (low, high):
    deviation = abs(errors / num - end)
    if deviation < 1e-9:  # at 0 or 1, where all rates as far are accepted
      assert errors in (0, num)
    else:
      assert deviation / np.sqrt(end * (1 - end) / num) == pytest.approx(1.959964, abs=1e-5)
