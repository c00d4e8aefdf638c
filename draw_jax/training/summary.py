"""What a run says of itself at its beginning and at its end."""

import math
import shlex
import signal

import jax

from draw_jax import files
from draw_jax.tasks.base import Task


def beginning(config, plan, dataset, setup, like, changed: dict[str, tuple]) -> str:
  """Devices, data, length and parameters of a run.

  Args:
    config: of the run.
    plan: its course.
    dataset: that it is trained on.
    setup: its task and its mesh of all devices.
    like: its state, or the shapes of it.
    changed: fields that differ from the last start in this workdir, (old, new).
  """
  mesh = setup.mesh
  device = mesh.devices.flat[0]
  cost = _operations(config, plan, setup.task, like.params)
  height, width, channels = dataset.image_shape
  curriculum = ', '.join(f'T {glimpses} to step {end}' for end, glimpses in plan.phases)
  lines = [
    f'devices   {mesh.size} x {device.device_kind}, {jax.process_count()} process(es), '
    f'mesh {dict(mesh.shape)}',
    f'data      {dataset.name}, binarization {dataset.binarization}, {height} x {width} x '
    f'{channels}, {dataset.num_examples("train")} to train on, '
    f'{dataset.num_examples(config.eval.split)} in {config.eval.split}',
    *(f'images    {note}' for note in dataset.notes),
    f'run       {plan.num_steps} steps of {config.train.batch_size} images, '
    f'{plan.steps_per_epoch:g} an epoch, {curriculum}',
    f'log       every {plan.log_every} steps, checkpoint every {plan.checkpoint_every}, '
    f'evaluation every {plan.eval_every}',
    f'cost      about {cost:.1e} operations in matrix products; the time is estimated from the '
    'first steps',
    *_parameters(like.params),
    *(
      f'changed   {name}: {old} at the last start, {new} now'
      for name, (old, new) in changed.items()
    ),
  ]
  return '\n'.join(lines)


def end(result, workdir: str, task: Task, binarization: str, split: str) -> str:
  """Where the model is and what to do with it, or how to go on."""
  best = 'not yet evaluated'
  if result.best:
    name = task.metric_name(binarization)
    best = f'{name} {result.best["value"]:.2f} on {split} at step {result.best["step"]}'
  lines = [f'saved     {workdir}/checkpoints/{result.step}', f'best      {best}']
  if result.signal:
    name = signal.Signals(result.signal).name
    lines.append(
      f'stopped   by {name} after {result.step} of {result.num_steps} steps; '
      'the same command goes on from there'
    )
  else:
    folder = task.shown_by if files.is_remote(workdir) else f'{workdir}/{task.shown_by}'
    output = f'--output={folder}'
    lines.append(f'evaluate  {_command("evaluate", f"--workdir={workdir}")}')
    lines.append(f'{task.shown_by:<9} {_command(task.shown_by, f"--workdir={workdir}", output)}')
  return '\n'.join(lines)


def _command(name: str, *arguments: str) -> str:
  """A command for a shell."""
  return shlex.join(['python', '-m', f'draw_jax.{name}', *arguments])


def _operations(config, plan, task: Task, params) -> float:
  """Each weight of a matrix is used once a glimpse, and twice more in the backward pass.

  Some, as the task says, once a pass. That a convolution's are used at many places is not counted.
  """
  weights = sum(
    math.prod(leaf.shape)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    if path[-1].key == 'kernel'
  )
  once = task.weights_used_once(params)
  uses = (weights - once) * plan.work(0, plan.num_steps) + once * plan.num_steps
  return 2.0 * 3 * uses * config.train.batch_size


def _parameters(params) -> list[str]:
  rows = [
    ('/'.join(str(key.key) for key in path), leaf.shape)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
  ]
  width = max(len(name) for name, _ in rows)
  table = [
    f'  {name:<{width}}  {math.prod(shape):>10,}  {" x ".join(map(str, shape))}'
    for name, shape in rows
  ]
  total = sum(math.prod(shape) for _, shape in rows)
  return [f'model     {total:,} parameters', *table]
