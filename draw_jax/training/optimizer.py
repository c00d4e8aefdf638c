"""An optimizer of optax, its schedule, and the moving average of the parameters."""

import dataclasses
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import optax

from draw_jax import fields
from draw_jax.errors import UserError, first_line

SCHEDULES = ('cosine', 'constant', 'trapezoid')
# What optax does not check.
_LIMITS = {
  'b1': {'at least': 0, 'below': 1},
  'b2': {'at least': 0, 'below': 1},
  'weight_decay': {'at least': 0},
}
# In place of its own defaults.
_ADAMW = {'b1': 0.9, 'b2': 0.999, 'weight_decay': 0.0}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """The section `optimizer` of a config."""

  # Of a function of optax that takes a learning_rate.
  name: str = 'adamw'
  # For that function, besides the learning rate. None: its own default; AdamW has b1=0.9, b2=0.999
  # and weight_decay=0. An experiment can add any others that the function takes. Weight decay of
  # AdamW is on matrices only, times the learning rate.
  arguments: dict[str, float | None] = fields.field(
    dict.fromkeys(('b1', 'b2', 'eps', 'momentum', 'weight_decay'))
  )
  # At its highest.
  learning_rate: float = fields.field(2e-3, above=0)
  # Steps of a linear rise to it.
  warmup_steps: int = fields.field(200, at_least=0)
  # To the end of the run.
  schedule: str = fields.field('cosine', choices=SCHEDULES)
  # Last part of the run, in which the trapezoid falls.
  fall_fraction: float = fields.field(0.25, at_least=0, at_most=1)
  # Of the learning rate, at the end of cosine or trapezoid.
  final_fraction: float = fields.field(0.02, at_least=0, at_most=1)
  # Factor on the learning rate of the layers that place windows. Adam moves every weight by the
  # learning rate at most, and so the five numbers that place a window by that times hundreds of
  # hidden units: pixels at a step.
  window_rate: float = fields.field(1.0, at_least=0)
  # Of the whole gradient of the mean loss; 0: never clip.
  clip_norm: float = fields.field(100.0, at_least=0)
  # Parts of a batch worked through one after the other.
  accumulate: int = fields.field(1, at_least=1)
  # Of the averaged parameters that are evaluated; 0: none.
  ema_decay: float = fields.field(0.999, at_least=0, below=1)


def check(config) -> None:
  """Raises a `UserError` for the first field of the section `optimizer` that cannot work."""
  accepted = _optimizers()
  fields.check_choice('optimizer.name', config.name, accepted)
  own = [name for name in accepted[config.name] if name not in ('learning_rate', 'mask')]
  for name, value in _given(config).items():
    if name not in own:
      raise UserError(
        f'optax.{config.name} takes no {name!r}: leave out optimizer.arguments.{name}. '
        f'It takes {", ".join(own) or "only a learning rate"}.'
      )
    if name in _LIMITS:
      fields.check_number(f'optimizer.arguments.{name}', value, _LIMITS[name])
  # Shapes only: the devices are not to be chosen yet.
  params = {'kernel': jax.ShapeDtypeStruct((2, 2), jnp.float32)}
  try:
    transform = create(config, lambda step: 0.1)
    jax.eval_shape(lambda p: transform.update(p, transform.init(p), p), params)
  except Exception as error:  # Whatever optax makes of the values.
    raise UserError(
      f'optimizer.name={config.name!r} does not work with these optimizer.arguments: '
      f'{first_line(error)}'
    ) from error


@functools.cache
def _optimizers() -> dict[str, tuple[str, ...]]:
  """The optimizers of optax, and the arguments of each."""
  public = [name for name in dir(optax) if not name.startswith(('_', 'scale_by_'))]
  functions = {name: getattr(optax, name) for name in public}
  arguments = {
    name: tuple(inspect.signature(function).parameters)
    for name, function in functions.items()
    if inspect.isfunction(function)
  }
  return {name: own for name, own in arguments.items() if 'learning_rate' in own}


def _given(config) -> dict[str, Any]:
  """The arguments that are not left to the optimizer's own defaults."""
  return {name: value for name, value in config.arguments.items() if value is not None}


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
  """Clipping by global norm, and an optimizer of optax with weight decay on the matrices only.

  That of AdamW has the same state whatever the values, so that a run can be resumed with other
  ones.

  Args:
    config: the `optimizer` section.
    learning_rate: see `schedule`.
  """
  function = getattr(optax, config.name)
  arguments = (_ADAMW if config.name == 'adamw' else {}) | _given(config)
  if 'mask' in _optimizers()[config.name]:
    arguments['mask'] = _kernels
  chain = optax.chain(
    optax.clip_by_global_norm(config.clip_norm or float('inf')),
    function(learning_rate, **arguments),
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
