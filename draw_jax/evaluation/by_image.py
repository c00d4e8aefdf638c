"""The bounds of single images, given as arrays."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from draw_jax.evaluation import evaluator
from draw_jax.tasks import base


def bounds(task: base.Task, params, images: np.ndarray, samples: int, seed: int) -> np.ndarray:
  """Bounds on -log p(x) of each image in nats, float64 [N].

  Those of `evaluator.Evaluator` for a split of these images in this order.

  Args:
    task: of a model that draws images.
    params: its parameters.
    images: float32 [N, H, W, C] in [0, 1].
    samples: K of the importance-weighted bound; 1: Eq. 12, with one draw.
    seed: of the draws.
  """
  importance = (samples,) if samples > 1 else ()
  options = base.EvaluationOptions(importance_samples=importance, seed=seed)
  glimpses = (task.model.glimpses,)
  rows = task.rows_that_fit(options, glimpses)
  size, chunk = evaluator.plan(options, len(images), rows, devices=1)
  work = task.evaluation(options, glimpses, chunk, None)
  program = _program(task, samples, chunk)
  passes = [
    (part, batch)
    for part in range(math.ceil(samples / chunk))
    for batch in range(math.ceil(len(images) / size))
  ]
  for part, batch in tqdm.tqdm(passes, 'bounding', disable=None if len(passes) > 1 else True):
    x = images[batch * size : (batch + 1) * size]
    mask = np.arange(size) < len(x)
    x = np.concatenate([x, np.zeros((size - len(x), *x.shape[1:]), x.dtype)])
    values = jax.device_get(program(params, x, jax.random.key(seed), batch * size, part))
    work.add(batch, min(chunk, samples - part * chunk), {**values, 'mask': mask})
  return work.by_example()


@functools.lru_cache(maxsize=32)
def _program(task: base.Task, samples: int, chunk: int):
  """The jitted (params, images, key, place of the first, part) -> values of each image."""
  importance = (samples,) if samples > 1 else ()
  options = base.EvaluationOptions(importance_samples=importance)
  work = task.evaluation(options, (task.model.glimpses,), chunk, None)

  def run(params, images, key, first, part):
    places = first + jnp.arange(len(images))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, places)
    return work.on_device(params, {'image': images}, keys, part)

  return jax.jit(run)
