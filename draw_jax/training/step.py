"""One training step, spread over the devices.

Each device works on its part of the batch alone; what they must tell each other
(gradients and sums of metrics) goes through a single all-reduce at the end. Left
to the compiler, the gradients of the weights would be reduced inside the
backward scan, once for each time-step.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from draw_jax.devices import sharding
from draw_jax.tasks.base import Task
from draw_jax.training import optimizer as optimizer_lib


class TrainState(NamedTuple):
  """All that one step hands to the next, the same on every device."""

  step: jax.Array  # int32, the number of steps taken
  params: Any
  ema: Any  # their moving average, by which the model is judged
  optimizer: Any
  key: jax.Array  # of the run; every draw is from this key and the step
  rollbacks: jax.Array  # int32, how often training went back after a loss that was not finite


def make_init(task: Task, transform: optax.GradientTransformation, seed: int, mesh: Mesh):
  """The jitted function mean_image [H, W, C] -> state before the first step."""

  def init(mean_image) -> TrainState:
    key = jax.random.key(seed)
    params = task.init(jax.random.fold_in(key, 0), mean_image)
    zero = jnp.zeros((), jnp.int32)
    key = jax.random.fold_in(key, 1)
    average = jax.tree.map(jnp.copy, params)
    return TrainState(zero, params, average, transform.init(params), key, zero)

  return jax.jit(init, out_shardings=sharding.replicated(mesh))


def make_train_step(
  task: Task,
  transform: optax.GradientTransformation,
  learning_rate: optax.Schedule,
  mesh: Mesh,
  *,
  glimpses: int,
  accumulate: int = 1,
  ema_decay: float = 0.0,
  rollback_scale: float = 1.0,
):
  """The jitted function (state, batch) -> (state, metrics); the state given is used up.

  Args:
    task: the model and its loss.
    transform: the optimizer.
    learning_rate: its schedule, only to be reported.
    mesh: of all devices.
    glimpses: T.
    accumulate: in how many parts each device works through its share of a batch,
      one after the other, to save memory. The sums are the same.
    ema_decay: see `optimizer.average`.
    rollback_scale: factor on the update for each rollback so far.
  """

  def train_step(state: TrainState, batch):
    num = len(batch['image'])
    key = jax.random.fold_in(jax.random.fold_in(state.key, state.rollbacks), state.step)
    noise = _noise(task, key, num, glimpses, mesh)
    spread = over_devices(mesh, lambda *args: _gradients(task, accumulate, *args))
    sums = spread((state.params, state.step), batch, noise)
    grads, metrics = jax.tree.map(lambda a: a / num, sums)
    updates, optimizer = transform.update(grads, state.optimizer, state.params)
    scale = rollback_scale**state.rollbacks
    params = optax.apply_updates(state.params, jax.tree.map(lambda u: scale * u, updates))
    ema = optimizer_lib.average(state.ema, params, state.step, ema_decay)
    metrics |= {
      'grad_norm': optax.tree.norm(grads),
      'learning_rate': scale * learning_rate(state.step),
    }
    return TrainState(state.step + 1, params, ema, optimizer, state.key, state.rollbacks), metrics

  return jax.jit(train_step, donate_argnums=0)


def _noise(task: Task, key, num: int, glimpses: int, mesh: Mesh):
  """Noise of the whole batch, each device drawing its own part of it.

  Drawn as one array, it does not depend on the number of devices.
  """
  noise = task.noise(key, num, glimpses)
  return jax.lax.with_sharding_constraint(noise, sharding.by_batch(mesh, axis=1))


def over_devices(mesh: Mesh, function):
  """`function(shared, batch, noise)` on each device's part, summed over devices."""

  def summed(shared, batch, noise):
    flat, unravel = ravel_pytree(function(shared, batch, noise))
    return unravel(jax.lax.psum(flat, sharding.AXIS))

  everywhere, parts = PartitionSpec(), PartitionSpec(sharding.AXIS)
  return jax.shard_map(
    summed,
    mesh=mesh,
    in_specs=(everywhere, parts, PartitionSpec(None, sharding.AXIS)),
    out_specs=everywhere,
    # With the check, gradients of replicated arrays come with reductions of their own.
    check_vma=False,
  )


def _gradients(task: Task, accumulate: int, shared, batch, noise):
  """Sums over examples of the gradients and of the metrics."""
  params, step = shared

  def total(params, batch, noise):
    loss, metrics = task.loss(params, batch, noise, step)
    return loss.sum(), jax.tree.map(jnp.sum, metrics)

  def sums(batch, noise):
    grads, metrics = jax.grad(total, has_aux=True)(params, batch, noise)
    return grads, metrics

  if accumulate == 1:
    return sums(batch, noise)

  def split(a, axis):
    shape = (*a.shape[:axis], accumulate, -1, *a.shape[axis + 1 :])
    return jnp.moveaxis(a.reshape(shape), axis, 0)

  parts = (
    jax.tree.map(lambda a: split(a, 0), batch),
    jax.tree.map(lambda a: split(a, 1), noise),
  )
  zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(sums, *jax.tree.map(lambda a: a[0], parts)))
  add = lambda total, part: (jax.tree.map(jnp.add, total, sums(*part)), None)  # noqa: E731
  return jax.lax.scan(add, zeros, parts)[0]
