"""The record of a run: metrics.jsonl, TensorBoard files, W&B, and what the terminal shows."""

import contextlib
import io
import json
import pathlib
import sys
import time
from collections.abc import Mapping

import numpy as np
import tqdm

from draw_jax import files, renamed
from draw_jax.training import events
from draw_jax.training.phases import Plan
from draw_jax.training.wandb_run import WandbRun

# What the time of a whole run is estimated from, at the least.
_FIRST_STEPS, _FIRST_SECONDS = 3, 2.0

_BAR = '{percentage:3.0f}%|{bar:20}| step {n_fmt}/{total_fmt} {postfix}'


class MetricsMean:
  """The mean of metrics over the steps since the last row."""

  def __init__(self, sums: Mapping[str, float] | None = None, count: int = 0):
    self._sums = dict(sums or {})
    self._count = count

  def add(self, metrics: Mapping[str, float]) -> None:
    for name, value in metrics.items():
      self._sums[name] = self._sums.get(name, 0.0) + float(value)
    self._count += 1

  def mean(self) -> dict[str, float]:
    """The mean of each metric; it begins anew."""
    mean = {name: value / self._count for name, value in self._sums.items()}
    self._sums, self._count = {}, 0
    return mean

  def to_json(self) -> dict:
    """What `MetricsMean` was made from, a copy to be saved in a checkpoint."""
    return {'sums': dict(self._sums), 'count': self._count}


class RunLog:
  """Rows of numbers in metrics.jsonl, and they and images for TensorBoard and perhaps W&B.

  A row has `split`, `step`, and numbers by name.
  """

  def __init__(self, workdir: str | pathlib.Path, step: int, config=None):
    """Opens the record to go on after a step; later rows are of a past that is undone.

    Args:
      workdir: of the run.
      step: training steps done.
      config: of the run, which says whether W&B has it, too.
    """
    workdir = files.place(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    self._path = workdir / 'metrics.jsonl'
    kept = _keep_until(self._path, step)
    if files.is_remote(workdir):
      self._file = io.StringIO()
      self._file.write(kept)
    else:
      self._file = self._path.open('a')
    self._events = events.EventFile(workdir / 'tensorboard')
    self._board = self._events.writer(purge_step=step + 1 if step else None)
    is_named = config is not None and config.log.wandb_project is not None
    self._wandb = WandbRun(workdir, config) if is_named else Silence()

  def row(self, split: str, step: int, numbers: Mapping[str, float]) -> None:
    """Writes one row, so that it outlives this process; to a remote workdir `save` does it."""
    self._events.check()
    self._file.write(json.dumps({'split': split, 'step': step, **numbers}) + '\n')
    self._file.flush()
    for name, value in numbers.items():
      self._board.add_scalar(f'{split}/{name}', value, step)
    self._wandb.row(split, step, numbers)

  def images(self, step: int, images: Mapping[str, np.ndarray]) -> None:
    """Shows batches of images [B, H, W, C] in [0, 1], each as one grid; C is 1 or 3."""
    shown = {
      name: np.round(255 * np.clip(batch, 0, 1)).astype(np.uint8) for name, batch in images.items()
    }
    self._wandb.images(step, shown)
    for name, batch in shown.items():
      framed = np.pad(batch, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
      # In rows of eight: an even number keeps an image and its reconstruction side by side.
      self._board.add_images(name, framed, step, dataformats='NHWC')
    self._board.flush()

  def save(self) -> None:
    """Sends the rows to a remote workdir, whose files can only be written as a whole.

    Before each checkpoint: a run that goes on from there lacks none.
    """
    if files.is_remote(self._path):
      with files.reaching(self._path):
        self._path.write_text(self._file.getvalue())

  def close(self) -> None:
    """Writes what is left."""
    if not self._file.closed:
      self.save()
    self._file.close()
    self._board.close()
    self._wandb.close()


def read(workdir: str | pathlib.Path) -> list[dict]:
  """The rows of a run's metrics.jsonl."""
  path = files.place(workdir) / 'metrics.jsonl'
  return _rows(path) if files.is_there(path) else []


def _rows(path: pathlib.Path) -> list[dict]:
  """Whole rows; one is cut off where a run was killed while writing it, or has lost its text."""
  rows = []
  for line in path.read_bytes().decode(errors='replace').splitlines(keepends=True):
    with contextlib.suppress(ValueError):
      row = json.loads(line)
      # Without its end a row may have lost digits and still be JSON.
      if line.endswith('\n') and isinstance(row, dict) and 'step' in row:
        rows.append(renamed.record(row))
  return rows


def _keep_until(path: pathlib.Path, step: int) -> str:
  """Removes later rows, and gives what is left."""
  if not path.exists():
    return ''
  kept = ''.join(json.dumps(row) + '\n' for row in _rows(path) if row['step'] <= step)
  files.write_text(path, kept)
  return kept


class Clock:
  """How fast a run is, and how long it will take.

  A step's work is taken to grow with its T, so that a run that begins with fewer
  glimpses is not announced too short.
  """

  def __init__(self, plan: Plan, batch_size: int):
    self._plan, self._batch_size = plan, batch_size
    self._step = self._since = None
    self._told = False
    self.begin = 0  # the first step that is timed comes after this

  def start(self, step: int) -> None:
    """Runs from the first step that is done: what came before is start-up."""
    if self._since is None:
      self.begin, self._step, self._since = step, step, time.monotonic()

  @contextlib.contextmanager
  def paused(self):
    """Leaves out what is no training: compiling, evaluating, saving."""
    begin = time.monotonic()
    yield
    if self._since is not None:
      self._since += time.monotonic() - begin

  def estimate(self, step: int) -> float | None:
    """Seconds that all steps of the plan take; once, where no lap came before."""
    elapsed, done = time.monotonic() - self._since, self._plan.work(self.begin, step)
    if self._told or step < self.begin + _FIRST_STEPS or elapsed < _FIRST_SECONDS:
      return None
    self._told = True
    return self._plan.work(0, self._plan.num_steps) * elapsed / done

  def lap(self, step: int) -> tuple[float | None, float | None]:
    """Images a second since the last lap and seconds left at that speed, or None where unknown."""
    elapsed = time.monotonic() - self._since
    done = self._plan.work(self._step, step)
    left = self._plan.work(step, self._plan.num_steps)
    if not done or elapsed <= 0:
      return None, None
    self._told = True  # It says how much is left.
    speed = (step - self._step) * self._batch_size / elapsed
    self._step, self._since = step, time.monotonic()
    return speed, left * elapsed / done


class Display:
  """A bar on a terminal, plain lines elsewhere."""

  def __init__(self, num_steps: int, step: int):
    self._num_steps = num_steps
    self._bar = None
    if sys.stderr.isatty():
      self._bar = tqdm.tqdm(total=num_steps, initial=step, dynamic_ncols=True, bar_format=_BAR)

  def show(
    self, step: int, numbers: Mapping[str, float], speed: float | None, left: float | None
  ) -> None:
    """Shows where the run is and, once they are known, how fast and how many seconds are left."""
    words = [f'{name} {value:.2f}' for name, value in numbers.items()]
    if speed is not None:
      words += [f'{speed:.0f} images/s', f'{duration(left)} left']
    if self._bar is not None:
      self._bar.set_postfix_str('  '.join(words), refresh=False)
      self._bar.update(step - self._bar.n)
    else:
      self.say('  '.join([f'step {step}/{self._num_steps}', *words]))

  def say(self, line: str) -> None:
    """Prints a line, above the bar if there is one."""
    if self._bar is not None:
      self._bar.write(line, file=sys.stderr)
    else:
      print(line, file=sys.stderr, flush=True)

  def close(self) -> None:
    """Leaves the terminal in order."""
    if self._bar is not None:
      self._bar.close()


class Silence:
  """In place of a RunLog and of a Display, on all processes but the first."""

  def __getattr__(self, name: str):
    return lambda *args: None


def duration(seconds: float) -> str:
  """H:MM:SS."""
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02d}:{seconds:02d}'
