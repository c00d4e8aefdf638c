"""The training loop: the same for every task, on any number of devices and processes."""

import contextlib
import functools
import math
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from draw_jax import config as config_lib
from draw_jax import data, files, memory, trained
from draw_jax.devices import processes, sharding
from draw_jax.devices.signals import Stop
from draw_jax.errors import UserError
from draw_jax.evaluation.evaluator import Evaluator
from draw_jax.tasks.base import EvaluationOptions
from draw_jax.training import checkpoint, phases, run_log, setup, start, summary, wandb_run
from draw_jax.training import workdir as workdir_lib
from draw_jax.training.step import TrainState

# Far apart, so that the order of the data after a rollback is that of no other seed in use.
_SEED_STRIDE = 1_000_003


class Result(NamedTuple):
  """How a run ended."""

  step: int  # steps done
  num_steps: int  # steps planned
  best: dict | None  # 'step', 'value', T ('glimpses') and 'rank' of the best evaluation
  signal: int | None  # that ended it early


class NotFiniteError(Exception):
  """A loss or a gradient is not a finite number."""


def train(
  config,
  workdir: str,
  *,
  data_dir: str | None = None,
  profile: tuple[int, int] | None = None,
) -> Result:
  """Trains, or goes on training, what a config describes.

  Args:
    config: see `config.default`.
    workdir: for checkpoints and metrics. A run that is there is continued.
    data_dir: where prepared datasets live.
    profile: the first and the last step of a trace to write into the workdir.
  """
  config_lib.validate(config)
  wandb_run.check_installed(config.log.wandb_project)
  processes.agree({'workdir': str(workdir), **config_lib.values(config, 'config.')})
  if profile and files.is_remote(workdir):
    raise UserError(f'--profile writes to this machine alone: give a local folder, not {workdir}.')
  dataset = data.open_dataset(data_dir=data_dir, **config.data)
  config_lib.validate_for(config, dataset.image_shape, jax.device_count())
  dataset.num_examples(config.eval.split)  # Refuses a split that is not there.
  if jax.process_count() > 1:
    about = {f'data.{split}': dataset.fingerprint(split) for split in dataset.splits}
    processes.agree({**about, 'checkpoints': workdir_lib.saved_steps(workdir)})
  with workdir_lib.alone(workdir), _explaining_full_disks(workdir):
    return _train(config, workdir, dataset, profile)


def _train(config, workdir: str, dataset, profile: tuple[int, int] | None) -> Result:
  changed = workdir_lib.claim(workdir, config)
  stop = Stop()
  try:
    trainer = _Trainer(config, files.place(workdir), dataset, stop, profile)
    if trainer.first:
      lines = summary.beginning(config, trainer.plan, dataset, trainer.setup, trainer.like, changed)
      print(lines, flush=True)
    result = trainer.run()
    if trainer.first:
      about = {'metric': trainer.task.metric, 'split': config.eval.split}
      workdir_lib.end(workdir, {**result._asdict(), **about})
      lines = summary.end(result, workdir, trainer.task, dataset.binarization, config.eval.split)
      print(lines, flush=True)
    return result
  finally:
    stop.restore()


@contextlib.contextmanager
def _explaining_full_disks(workdir) -> Iterator[None]:
  try:
    yield
  except OSError as error:
    if not files.is_full(error):
      raise
    raise UserError(f'no space left in {workdir}: make room, then start again to go on.') from error


class _Trainer:
  """One run: what stays the same through it, and its few moving parts."""

  def __init__(self, config, workdir: pathlib.Path, dataset, stop: Stop, profile):
    self.config, self.workdir, self.dataset = config, workdir, dataset
    self.stop, self.profile = stop, profile
    self.plan = phases.make(config, dataset.num_examples('train'))
    self.setup = setup.make(
      config, dataset.image_shape, dataset.num_classes, num_steps=self.plan.num_steps
    )
    self.task, self.mesh = self.setup.task, self.setup.mesh
    self.metric_name = self.task.metric_name(dataset.binarization)
    self.init = self.setup.init()
    self.like = jax.eval_shape(self.init, np.zeros(dataset.image_shape, np.float32))
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.like.params))
    # With its average, its gradient and at the least one moment.
    memory.check(4 * state, f'a model of this size, model.hidden={config.model.get("hidden")},')
    if not workdir_lib.saved_steps(workdir):
      _ = self.before  # Refused now, if it does not fit; a run that goes on does not need it.
    self.checkpoints = checkpoint.Checkpoints(
      workdir, config.checkpoint.keep_latest, config.checkpoint.keep_best
    )
    self.processes = {
      'process_index': jax.process_index(),
      'process_count': jax.process_count(),
    }
    self.first = jax.process_index() == 0
    self.display = self.log = run_log.Silence()
    # Set by `_begin`, changed by every step or evaluation:
    self.rollbacks, self.best, self.window, self.clock = 0, None, None, None
    self.tracing = False
    # One for each T:
    self.train_steps, self.evaluators = {}, {}
    self.images = jax.jit(self.task.images, static_argnums=3)

  def run(self) -> Result:
    """Trains to the end, or until a signal; goes back where that is asked for."""
    state = self._begin()
    try:
      with (
        processes.ending_together(),
        _explaining_full_disks(self.workdir),
        memory.explaining(),
      ):
        return self._run(state)
    finally:
      self.log.close()
      self.display.close()
      self.checkpoints.close()

  def _run(self, state: TrainState) -> Result:
    while True:
      try:
        state = self._fit(state)
        break
      except NotFiniteError as error:
        if self.tracing:
          self._end_trace()
        self._refuse_or_go_back(error)
        state = self._begin()
    self.checkpoints.wait()
    step, num_steps = int(state.step), self.plan.num_steps
    # A signal that came in the last evaluation found nothing to stop.
    return Result(step, num_steps, self.best, self.stop.signal if step < num_steps else None)

  def _begin(self) -> TrainState:
    """The state to go on from, the newest that was saved or that before any step."""
    restored = self.checkpoints.restore(
      self.like,
      sharding.replicated(self.mesh),
      self.dataset.image_shape,
      self.dataset.num_examples('train'),
    )
    state, progress = restored or (self._start(), {})
    step = int(state.step)
    self.rollbacks = max(self.rollbacks, int(state.rollbacks))
    rollbacks = jax.device_put(np.int32(self.rollbacks), sharding.replicated(self.mesh))
    self.best = progress.get('best')
    self.window = run_log.MetricsMean(**progress.get('window', {}))
    self.clock = run_log.Clock(self.plan, self.config.train.batch_size)
    if self.first:
      self.log.close()
      self.display.close()
      self.log = run_log.RunLog(self.workdir, step, self.config)
      self.display = run_log.Display(self.plan.num_steps, step)
    if step:
      self.display.say(f'continued from {self.checkpoints.path(step)}')
    return state._replace(rollbacks=rollbacks)

  @functools.cached_property
  def before(self) -> trained.TrainedModel | None:
    """The trained model to start from."""
    if not self.config.train.start_from:
      return None
    return start.load(self.config, self.dataset, self.like.params, self.task.neutral)

  def _start(self) -> TrainState:
    """The state before the first step."""
    state = self.init(self.dataset.mean_image())
    before, name = self.before, self.config.train.start_from
    if not before:
      return state
    there, here = ((s.name, s.path) for s in (before.config.data, self.config.data))
    if there == here:
      before.check_held_out(self.dataset, 'valid')
    if self.first:
      print(f'start     from the weights of {name}, after {before.step} steps', flush=True)
      if there != here:
        where = there[1] or there[0]
        note = f'{name} was trained on {where}: some of it may be held out here'
        print(f'note      {note}', flush=True)
    values = jax.device_get({**state.params, **before.params})
    # An array each: a step uses up what it is given.
    params, ema = (jax.device_put(values, sharding.replicated(self.mesh)) for _ in range(2))
    return state._replace(params=params, ema=ema)

  def _fit(self, state: TrainState) -> TrainState:
    step, pending = int(state.step), None
    if self.profile and not step < self.profile[0] <= self.plan.num_steps:
      self.display.say(
        f'no trace: {step} of {self.plan.num_steps} steps are done, --profile begins at '
        f'{self.profile[0]}'
      )
    batches = self.dataset.train_batches(
      self.config.train.batch_size,
      seed=(self.config.train.seed + self.rollbacks * _SEED_STRIDE) % 2**32,
      start_step=step,
      **self.processes,
    )
    batches = sharding.prefetch(self.mesh, batches)
    while step < self.plan.num_steps:
      if self.profile and step + 1 == self.profile[0]:
        jax.profiler.start_trace(str(self.workdir / 'profile'))
        self.tracing = True
      batch = next(batches)
      state, numbers = self._train_step(step, state, batch)(state, batch)
      step += 1
      # The device is busy with this step while the numbers of the last one are read.
      if pending:
        self._watch(*pending)
      pending = (step, numbers)
      stopping = self.stop.reached(step)
      if self.tracing and (stopping or step >= min(self.profile[1], self.plan.num_steps)):
        self._end_trace(state)
      if stopping or self.plan.saves(step):
        self._watch(*pending)
        pending = None
        with self.clock.paused():
          self._save(state, step)
      if stopping:
        break
    return state

  def _train_step(self, step: int, state: TrainState, batch):
    """The function that takes the next step; there is one for each T."""
    glimpses = self.plan.glimpses(step)
    if glimpses not in self.train_steps:
      function = self.setup.train_step(glimpses)
      with self.clock.paused():
        self.train_steps[glimpses] = function.lower(state, batch).compile()
    return self.train_steps[glimpses]

  def _watch(self, step: int, numbers) -> None:
    """Reads the numbers of a step that is done, and writes a row where it is due."""
    numbers = {name: float(value) for name, value in jax.device_get(numbers).items()}
    bad = [name for name, value in numbers.items() if not math.isfinite(value)]
    if bad:
      # The sum is bad with any of its parts: name the part.
      parts = [name for name in bad if name not in (self.task.metric, 'grad_norm')] or bad
      raise NotFiniteError(
        f'step {step}: {" and ".join(parts)} not finite, gradient norm {numbers["grad_norm"]:.4g}'
      )
    self.clock.start(step)
    self.window.add(numbers)
    if seconds := self.clock.estimate(step):
      self.display.say(
        f'the whole run takes about {run_log.duration(seconds)} and its evaluations, '
        f'as the first {step - self.clock.begin} steps went'
      )
    # A row has one T.
    ends = step == self.plan.num_steps or self.plan.glimpses(step) != self.plan.glimpses(step - 1)
    if ends or step % self.plan.log_every == 0:
      mean = self.window.mean()
      epoch, (speed, left) = self.plan.epoch(step), self.clock.lap(step)
      about = {'epoch': epoch, 'glimpses': self.plan.glimpses(step - 1)}
      if speed is not None:
        about['images_per_second'] = speed
      mean |= self.task.weights(step - 1)
      self.log.row('train', step, {**mean, **about})
      shown = {k: v for k, v in mean.items() if k not in ('grad_norm', 'learning_rate')}
      self.display.show(step, {'epoch': epoch, **self._named(shown)}, speed, left)

  def _save(self, state: TrainState, step: int) -> None:
    """Saves the state; evaluates it before where that is due."""
    numbers = rank = None
    glimpses = self.plan.glimpses(step - 1)
    if self.plan.evaluates(step):
      numbers = self._evaluate(state.ema, step, glimpses)
      value = numbers[self.task.metric]
      if not math.isfinite(value):
        raise NotFiniteError(
          f'step {step}: {self.task.metric} on {self.config.eval.split} not finite'
        )
      rank = (self.plan.phases_left(step), value)
      if self.best is None or rank <= tuple(self.best['rank']):
        self.best = {'step': step, 'value': value, 'glimpses': glimpses, 'rank': rank}
    progress = {
      'best': self.best,
      'window': self.window.to_json(),
      'glimpses': glimpses,
      'image_shape': self.dataset.image_shape,
      'num_classes': self.dataset.num_classes,
      'binarization': self.dataset.binarization,
      'num_train': self.dataset.num_examples('train'),
    }
    self.log.save()
    self.checkpoints.save(state, progress, numbers, rank)

  def _evaluate(self, params, step: int, glimpses: int) -> dict[str, float]:
    """The mean of each metric over the whole split, with the averaged parameters."""
    section = self.config.eval
    if glimpses not in self.evaluators:
      # The same draws for every run, by the default seed: those of `draw_jax.evaluate`.
      options = EvaluationOptions(split=section.split, batch_size=section.batch_size)
      self.evaluators[glimpses] = Evaluator(
        self.task, self.dataset, options, self.mesh, (glimpses,)
      )
    mean = self.evaluators[glimpses].metrics(params)
    about = {
      'epoch': self.plan.epoch(step),
      'glimpses': glimpses,
      'examples': self.dataset.num_examples(section.split),
    }
    self.log.row(section.split, step, {**mean, **about})
    words = '  '.join(f'{name} {value:.2f}' for name, value in self._named(mean).items())
    self.display.say(f'step {step}/{self.plan.num_steps}  {section.split}: {words}  (T {glimpses})')
    if self.first:
      self._show(params, step, glimpses)
    return mean

  def _named(self, numbers: dict[str, float]) -> dict[str, float]:
    """The numbers by the names that people are told."""
    names = {self.task.metric: self.metric_name, 'kl_weight': 'KL weight'}
    return {names.get(name, name): value for name, value in numbers.items()}

  def _show(self, params, step: int, glimpses: int) -> None:
    """Images for TensorBoard, made by this process alone."""
    num = self.config.eval.images
    batch = next(self.dataset.eval_batches(self.config.eval.split, num))
    key = jax.random.key(self.config.train.seed)
    images = self.images(jax.device_get(params), batch, key, glimpses)
    self.log.images(step, jax.device_get(images))

  def _refuse_or_go_back(self, error: NotFiniteError) -> None:
    """Counts a rollback, or ends the run where no further one is allowed."""
    self.checkpoints.wait()
    latest = self.checkpoints.latest()
    kept = f'the checkpoint of step {latest}' if latest else 'the beginning'
    if self.config.on_nan == 'stop':
      hint = 'a smaller optimizer.learning_rate or clip_norm, or --config.on_nan=rollback'
      raise UserError(f'{error}. Nothing was saved since {kept}. Try {hint}.') from error
    if self.rollbacks >= self.config.max_rollbacks:
      hint = (
        f'a smaller optimizer.learning_rate or clip_norm; max_rollbacks={self.rollbacks} are used'
      )
      raise UserError(f'{error}. Nothing was saved since {kept}. Try {hint}.') from error
    self.rollbacks += 1
    self.display.say(
      f'{error}. Back to {kept}, with another order of the data and updates '
      f'{self.config.rollback_scale**self.rollbacks:g} times as large.'
    )

  def _end_trace(self, state: TrainState | None = None) -> None:
    jax.block_until_ready(state)
    jax.profiler.stop_trace()
    self.tracing = False
    self.display.say(f'trace in {self.workdir / "profile"}')
