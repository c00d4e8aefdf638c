"""The bounds of single images, given as arrays."""

import functools
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from draw_jax.evaluation import evaluator
from draw_jax.tasks import base


def bounds(
  task: base.Task, params, batch: Mapping[str, np.ndarray], samples: int, seed: int
) -> np.ndarray:
  """Bounds on -log p(x) of each image in nats, float64 [N].

  Those of `evaluator.Evaluator` for a split of these images in this order.

  Args:
    task: of a model that draws images.
    params: its parameters.
    batch: 'image', float32 [N, H, W, C] in [0, 1], and 'label' [N] if the model is told classes.
    samples: K of the importance-weighted bound; 1: Eq. 12, with one draw.
    seed: of the draws.
  """
  importance = (samples,) if samples > 1 else ()
  options = base.EvaluationOptions(importance_samples=importance, seed=seed)
  glimpses = (task.model.glimpses,)
  rows = task.rows_that_fit(options, glimpses)
  num = len(batch['image'])
  size, chunk = evaluator.plan(options, num, rows, devices=1)
  work = task.evaluation(options, glimpses, chunk, None)
  program = _program(task, samples, chunk)
  passes = [
    (part, place)
    for part in range(math.ceil(samples / chunk))
    for place in range(math.ceil(num / size))
  ]
  for part, place in tqdm.tqdm(passes, 'bounding', disable=None if len(passes) > 1 else True):
    mask = np.arange(size) < num - place * size
    some = {name: _padded(a[place * size : (place + 1) * size], size) for name, a in batch.items()}
    values = jax.device_get(program(params, some, jax.random.key(seed), place * size, part))
    work.add(place, min(chunk, samples - part * chunk), {**values, 'mask': mask})
  return work.by_example()


def _padded(a: np.ndarray, size: int) -> np.ndarray:
  """With zeros behind, so that there are `size` of them."""
  return np.concatenate([a, np.zeros((size - len(a), *a.shape[1:]), a.dtype)])


@functools.lru_cache(maxsize=32)
def _program(task: base.Task, samples: int, chunk: int):
  """The jitted (params, batch, key, place of the first, part) -> values of each image."""
  importance = (samples,) if samples > 1 else ()
  options = base.EvaluationOptions(importance_samples=importance)
  work = task.evaluation(options, (task.model.glimpses,), chunk, None)

  def run(params, batch, key, first, part):
    places = first + jnp.arange(len(batch['image']))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, places)
    return work.on_device(params, batch, keys, part)

  return jax.jit(run)
