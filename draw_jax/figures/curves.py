"""Figure 11: cost against steps of training."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

_SIZE = (5.5, 3.4)  # inches
_LABELS = {'bound': 'bound (nats)', 'error': 'error (%)'}
# Of the longest run: the steep beginning, which would flatten the rest.
_BEGINNING = 0.05


def curves(
  runs: Mapping[str, Sequence[Mapping]], metric: str = 'bound', label: str | None = None
) -> Figure:
  """Fig. 11: training and validation cost of one or several runs.

  Args:
    runs: by the name to show, the rows of a run: each has 'split', 'step' and
      numbers by name. Rows without the metric are passed over.
    metric: the number that is drawn.
    label: what to call it; None for its usual name.

  Returns:
    A figure; training is a thin line, any other split a thick one with points.
  """
  figure = Figure(figsize=_SIZE, layout='constrained')
  axes = figure.add_subplot(xlabel='training steps', ylabel=label or _LABELS.get(metric, metric))
  axes.spines[['top', 'right']].set_visible(False)
  tail = []
  longest = max((row['step'] for rows in runs.values() for row in rows), default=0)
  for number, (name, rows) in enumerate(runs.items()):
    for split in dict.fromkeys(row['split'] for row in rows):
      points = [(r['step'], r[metric]) for r in rows if r['split'] == split and metric in r]
      if not points:
        continue
      steps, values = np.array(points, float).T
      look = {'lw': 0.8, 'alpha': 0.6} if split == 'train' else {'lw': 1.6, 'marker': '.'}
      which = f'{name}, {split}' if len(runs) > 1 else split
      axes.plot(steps, values, color=f'C{number}', label=which, **look)
      tail.append(values[steps >= _BEGINNING * longest])
  tail = np.concatenate(tail) if tail else np.zeros(0)
  tail = tail[np.isfinite(tail)]
  if tail.size:
    margin = 0.03 * (tail.max() - tail.min()) or 1.0
    axes.set_ylim(tail.min() - margin, tail.max() + margin)
    axes.legend(frameon=False)
  return figure
