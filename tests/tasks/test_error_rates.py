import numpy as np
import pytest
from scipy import stats

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
def test_interval_is_wilsons(errors, num):
  expected = stats.binomtest(errors, num).proportion_ci(0.95, method='wilson')
  np.testing.assert_allclose(error_rates.wilson_interval(errors, num), expected, atol=1e-12)
