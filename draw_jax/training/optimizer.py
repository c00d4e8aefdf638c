"""Adam, its schedule, and the average of the parameters, from the config through optax."""

import jax
import jax.numpy as jnp
import optax

SCHEDULES = ('cosine', 'constant', 'trapezoid')


def schedule(config, num_steps: int) -> optax.Schedule:
  """The learning rate at each step: a linear warm-up, then one of `SCHEDULES`.

  The cosine falls all the time. The trapezoid is constant and then falls in a line
  over the last `fall_fraction` of the run: up to there it does not depend on the
  length of the run, which can be chosen late and made longer from a checkpoint.

  Args:
    config: the `optimizer` section.
    num_steps: of the whole run; the cosine and the trapezoid end there.
  """
  peak, warmup = config.learning_rate, min(config.warmup_steps, num_steps)
  if config.schedule == 'cosine':
    rest = optax.cosine_decay_schedule(peak, max(num_steps - warmup, 1), config.final_fraction)
  elif config.schedule == 'trapezoid':
    fall = min(round(config.fall_fraction * num_steps), num_steps - warmup)
    begin = num_steps - warmup - fall
    rest = optax.linear_schedule(peak, config.final_fraction * peak, fall, begin)
  else:
    rest = optax.constant_schedule(peak)
  # From peak / warmup, not from zero: the first step moves too.
  rise = optax.linear_schedule(peak / max(warmup, 1), peak, max(warmup - 1, 1))
  return optax.join_schedules([rise, rest], [warmup])


def create(config, learning_rate: optax.Schedule) -> optax.GradientTransformation:
  """Clipping by global norm, Adam, and weight decay on the matrices only.

  It has the same state whatever the values, so that a run can be resumed with
  other ones.

  Args:
    config: the `optimizer` section.
    learning_rate: see `schedule`.
  """
  chain = optax.chain(
    optax.clip_by_global_norm(config.clip_norm or float('inf')),
    optax.adamw(
      learning_rate,
      b1=config.beta1,
      b2=config.beta2,
      weight_decay=config.weight_decay,
      mask=_kernels,
    ),
  )

  def update(gradients, state, params):
    updates, state = chain.update(gradients, state, params)
    slower = lambda path, u: config.window_rate * u if _places_a_window(path) else u  # noqa: E731
    return jax.tree_util.tree_map_with_path(slower, updates), state

  return optax.GradientTransformation(chain.init, update)


def average(ema, params, step: jax.Array, decay: float):
  """The exponential moving average of the parameters after another step.

  It weighs recent parameters more at first, (1 + n) / (10 + n) after n steps: a
  plain average would hold on to the random start for thousands of steps.

  Args:
    ema: the average so far.
    params: the new parameters.
    step: n, the number of steps before this one.
    decay: reached once n is large; 0 keeps no average, only the parameters.
  """
  decay = jnp.minimum(decay, (1 + step) / (10 + step))
  return jax.tree.map(lambda e, p: e + (1 - decay) * (p - e), ema, params)


def _kernels(params):
  return jax.tree_util.tree_map_with_path(
    lambda path, _: isinstance(path[-1], jax.tree_util.DictKey) and path[-1].key == 'kernel', params
  )


def _places_a_window(path) -> bool:
  return any('window' in str(getattr(key, 'key', '')) for key in path)
