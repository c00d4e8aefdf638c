"""What a sweep shows: a table while it runs, and a sorted one, a plot and files at its end."""

import csv
import io
import json
import math
import pathlib
import shlex
import signal
from collections.abc import Sequence
from typing import Any

import rich.console
import rich.live
import rich.table
import rich.text

from draw_jax import files
from draw_jax.data import registry as datasets
from draw_jax.figures import curves, page
from draw_jax.sweeps.local import Run
from draw_jax.tasks import registry
from draw_jax.training import run_log

_ORDER = ('running', 'stopping', 'failed', 'stopped', 'finished', 'waiting')  # in the live table
_DRAWN = 10  # runs in the plot: as many as there are colors
_LINES = 5  # of the log of a run that failed
_ANY_SIZE = (1024, 1024, 1)  # of images: every model has room on them


class Display:
  """A live table on a terminal; elsewhere a line when a run begins or ends."""

  def __init__(self, console: rich.console.Console | None = None):
    self._console = console or rich.console.Console(stderr=True)
    self._live = None
    self._states: dict[str, str] = {}

  def __enter__(self):
    if self._console.is_terminal:
      self._live = rich.live.Live(console=self._console, refresh_per_second=2, transient=True)
      self._live.start()
    return self

  def __exit__(self, *error):
    if self._live:
      self._live.stop()

  def show(self, runs: Sequence[Run]) -> None:
    """Takes in where the runs are now."""
    for run in runs:
      before = self._states.get(run.name, 'waiting')
      self._states[run.name] = run.state
      if run.state != before and (run.state == 'failed' or not self._live):
        done = sum(other.state == 'finished' for other in runs)
        self._say(f'{run.state:<9} {run.name}  ({done} of {len(runs)} finished)')
        if run.state == 'failed':
          self._say('\n'.join(f'  {line}' for line in failure(run)))
    if self._live:
      self._live.update(_table(runs))

  def _say(self, text: str) -> None:
    self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def failure(run: Run) -> list[str]:
  """Why a run failed, in a few lines."""
  return [*run.last_lines(_LINES), f'{run.problem}; all it printed is in {run.log}']


def rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """A row for each run, the best first; None for what there is not."""
  found = []
  for run in runs:
    result = run.result or {}
    best = result.get('best') or {}
    found.append({
      'run': run.name,
      'state': run.state,
      'metric': result.get('metric'),
      'split': result.get('split'),
      'best': best.get('value'),
      'best_step': best.get('step'),
      'step': result.get('step'),
      'num_steps': result.get('num_steps'),
      'workdir': str(run.workdir),
      'overrides': run.overrides,
    })  # fmt: skip
  return sorted(found, key=lambda row: math.inf if row['best'] is None else row['best'])


def table(rows: Sequence[dict[str, Any]]) -> str:
  """The rows for people."""
  width = max(len(row['run']) for row in rows)
  lines = [f'{"best":>10} {"at step":>8}  {"run":<{width}}  state']
  for row in rows:
    value = '-' if row['best'] is None else f'{row["best"]:.3f}'
    step = '-' if row['best_step'] is None else row['best_step']
    lines.append(f'{value:>10} {step:>8}  {row["run"]:<{width}}  {row["state"]}')
  judged = {(row['metric'], row['split']) for row in rows if row['best'] is not None}
  lines += [f'best is the lowest {metric} on {split}' for metric, split in sorted(judged)]
  return '\n'.join(lines)


def conclude(folder: str | pathlib.Path, runs: Sequence[Run], stopped: int | None) -> str:
  """Writes the files and says what came out, what did not, and what to do next.

  Args:
    folder: for the files.
    runs: of the sweep.
    stopped: signal that ended it early.
  """
  found = rows(runs)
  lines = [table(found), f'written   {", ".join(map(str, save(folder, runs, found)))}']
  if found[0]['best'] is not None:
    command = ['python', '-m', 'draw_jax.evaluate', f'--workdir={found[0]["workdir"]}']
    lines.append(f'evaluate  {shlex.join(command)}')
  lines += [f'failed    {r.name}: {failure(r)[-1]}' for r in runs if r.state == 'failed']
  if stopped:
    done = sum(run.state == 'finished' for run in runs)
    lines.append(
      f'stopped   by {signal.Signals(stopped).name}, {done} of {len(runs)} finished; the same '
      'command goes on from there'
    )
  return '\n'.join(lines)


def save(
  folder: str | pathlib.Path, runs: Sequence[Run], found: Sequence[dict[str, Any]]
) -> list[pathlib.Path]:
  """Writes sweep.json, sweep.csv and, once a run was evaluated, sweep.png and .pdf.

  Args:
    folder: for the files.
    runs: of the sweep.
    found: their `rows`.

  Returns:
    The files.
  """
  folder = pathlib.Path(folder)
  with files.writing(folder / 'sweep.json') as temporary:
    temporary.write_text(json.dumps(found, indent=2) + '\n')
  with files.writing(folder / 'sweep.csv') as temporary:
    temporary.write_text(_csv(found))
  written = [folder / 'sweep.json', folder / 'sweep.csv']
  drawn = {}
  for row in found[:_DRAWN]:
    if row['best'] is not None:
      evaluated = [r for r in run_log.read(row['workdir']) if r['split'] == row['split']]
      drawn.setdefault(row['metric'], {})[row['run']] = evaluated
  if drawn:
    metric, lines = next(iter(drawn.items()))
    labels = dict.fromkeys(_label(run.config) for run in runs if run.name in lines)
    written += page.save(curves.curves(lines, metric, ' or '.join(labels)), folder / 'sweep')
  return written


def _label(config) -> str:
  """What a plot calls the metric of a run; the size of the images does not matter."""
  binarization = datasets.find(config.data.name).binarization(config.data.binarization)
  return registry.create(config.model, _ANY_SIZE, 1).metric_label(binarization)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
  fields = list(dict.fromkeys(field for row in rows for field in row['overrides']))
  columns = [name for name in rows[0] if name != 'overrides']
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow([*columns, *fields])
  for row in rows:
    writer.writerow(
      [*(row[name] for name in columns), *(row['overrides'].get(field) for field in fields)]
    )
  return text.getvalue()


def _progress(run: Run) -> str:
  """The last that a run said of its steps; the time left first, as the end may be cut."""
  said = run.last_lines(1, 'step ') if run.state != 'waiting' else []
  step, *words = said[0].split('  ') if said else ['']
  return '  '.join([step, *sorted(words, key=lambda word: not word.endswith(' left'))])


def _table(runs: Sequence[Run]) -> rich.table.Table:
  done = sum(run.state == 'finished' for run in runs)
  made = rich.table.Table(title=f'{done} of {len(runs)} finished', title_justify='left')
  made.add_column('run', no_wrap=True)
  made.add_column('state', no_wrap=True)
  made.add_column('progress')
  for run in sorted(runs, key=lambda run: _ORDER.index(run.state)):
    words = run.problem or _progress(run)
    # Cut, not wrapped: a column that does not wrap would take its room from the others.
    made.add_row(run.name, run.state, rich.text.Text(words, no_wrap=True, overflow='ellipsis'))
  return made
