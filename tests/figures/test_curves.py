"""Learning curves from the rows of runs."""

import json

import numpy as np

from draw_jax.figures import curves
from draw_jax.training import run_log


def rows(offset=0.0):
  train = [{'split': 'train', 'step': s, 'bound': 100 + 1000 / s + offset} for s in range(1, 101)]
  valid = [{'split': 'valid', 'step': s, 'bound': 101 + 900 / s + offset} for s in (50, 100)]
  return [*train, *valid, {'split': 'train', 'step': 101, 'other': 1.0}]


def test_draws_each_split_of_each_run():
  figure = curves.curves({'a': rows(), 'b': rows(5)})
  lines = {line.get_label(): line.get_xydata() for line in figure.axes[0].lines}
  assert list(lines) == ['a, train', 'a, valid', 'b, train', 'b, valid']
  np.testing.assert_allclose(lines['b, valid'], [[50, 124], [100, 115]])
  assert len(lines['a, train']) == 100
  assert figure.axes[0].get_ylabel() == 'bound (nats)'


def test_other_metrics_have_other_units():
  errors = [{'split': 'valid', 'step': s, 'error': 10.0} for s in (1, 2)]
  assert curves.curves({'a': errors}, 'error').axes[0].get_ylabel() == 'error (%)'
  assert curves.curves({'a': rows()}, label='cost').axes[0].get_ylabel() == 'cost'


def test_the_steep_beginning_does_not_flatten_the_rest():
  top = curves.curves({'a': rows()}).axes[0].get_ylim()[1]
  assert 120 < top < 320


def test_a_cost_that_is_not_finite_leaves_the_rest():
  bad = [*rows(), {'split': 'train', 'step': 102, 'bound': float('nan')}]
  assert np.isfinite(curves.curves({'a': bad}).axes[0].get_ylim()).all()


def test_a_last_line_that_was_cut_off_is_passed_over(tmp_path):
  text = ''.join(json.dumps(row) + '\n' for row in rows())
  (tmp_path / 'metrics.jsonl').write_text(text + '{"split": "train", "step": 10')
  figure = curves.curves({'a': run_log.read(tmp_path)})
  assert len(figure.axes[0].lines[0].get_xydata()) == 100


def test_no_rows_give_an_empty_figure():
  assert not curves.curves({'a': []}).axes[0].lines
