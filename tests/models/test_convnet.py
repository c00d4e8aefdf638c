import functools

import jax
import numpy as np
import reference

from draw_jax.models.convnet import Convnet


def classify_one(model, params, x):
  """One image, with a filter at a time at a place at a time."""
  k, stride = model.filter_size, model.stride
  height, width, _ = x.shape
  layer = params['convolution']
  seen = []
  for top in range(0, height - k + 1, stride):
    for left in range(0, width - k + 1, stride):
      patch = x[top : top + k, left : left + k]
      seen += [max(v, 0) for v in reference.linear(layer, patch.ravel())]
  hidden = [max(v, 0) for v in reference.linear(params['dense'], seen)]
  return reference.linear(params['head'], hidden)


def test_scores_agree_with_loops():
  model = Convnet((10, 8, 2), num_classes=3, filters=4, filter_size=4, stride=3, hidden=5)
  x = np.random.default_rng(0).uniform(size=(3, *model.image_shape)).astype(np.float32)
  params = jax.jit(model.init)(jax.random.key(0), x)['params']
  apply = functools.partial(model.apply, glimpses=4, trace=True)
  logits, trace = jax.jit(apply)({'params': params}, x)
  assert trace is None
  for n in range(3):
    reference.assert_close(logits[n], classify_one(model, params, x[n]), 1e-5)


def test_sizes_of_the_table():
  """8 filters of 10 x 10 at 19 x 19 places, and 256 hidden units."""
  model = Convnet((100, 100, 1))
  shapes = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 100, 100, 1)))['params']
  kernels = {name: layer['kernel'].shape for name, layer in shapes.items()}
  assert kernels == {'convolution': (100, 8), 'dense': (19 * 19 * 8, 256), 'head': (256, 10)}
