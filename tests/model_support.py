"""Small networks with random parameters, and what they give."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import draw_jax

B, T, Z, D = 3, 5, 4, 5  # T is no multiple of a whole number of steps near its root

CASES = {
  'oblong': {'image_shape': (5, 7, 1), 'read_size': 2, 'write_size': 3},
  'color': {'image_shape': (6, 4, 3), 'read_size': 3, 'write_size': 2},
  'one filter': {'image_shape': (4, 4, 2), 'read_size': 1, 'write_size': 4},
  'whole': {'image_shape': (3, 5, 1), 'attention': False},
  'whole color': {'image_shape': (4, 3, 3), 'attention': False},
}
BOTH_KINDS = ['oblong', 'whole color']

# These programs run once: compiling them well takes longer than running them.
FAST = {'xla_backend_optimization_level': 0}


def build(case='oblong', param_dtype='float32', **more):
  # Its own number of steps is not the one that the tests run.
  sizes = {'glimpses': T - 1, 'hidden': D, 'latent': Z} | CASES[case]
  return draw_jax.DRAW(param_dtype=param_dtype, **(sizes | more))


@functools.cache
def random_params(model, **given):
  """Parameters without a zero among them, initial states and biases too."""
  rng = np.random.default_rng(0)
  image = jnp.zeros((1, *model.image_shape))
  init = functools.partial(model.init, **given)
  shapes = jax.eval_shape(init, jax.random.key(0), image, jax.random.key(0))['params']

  def draw(leaf):
    scale = leaf.shape[0] ** -0.5 if leaf.ndim == 2 else 0.5
    return (scale * rng.normal(size=leaf.shape)).astype(leaf.dtype)

  return jax.tree.map(draw, shapes)


def inputs(model):
  """Images, the first of them binary, and noise."""
  rng = np.random.default_rng(1)
  x = rng.uniform(size=(B, *model.image_shape)).astype(model.param_dtype)
  x[0] = np.round(x[0])
  return x, rng.normal(size=(T, B, Z)).astype(model.param_dtype)


@functools.cache
def compiled(model, method, trace):
  apply = functools.partial(model.apply, method=method, trace=trace)
  return jax.jit(apply, compiler_options=FAST)


def paper(window) -> np.ndarray:
  """[T, B, 5] in the paper's coordinates, which count pixels from 1."""
  x, y, *others = map(np.asarray, window)
  return np.stack([x + 1, y + 1, *others], -1)


def flatten(trace, **others) -> dict:
  """A trace and other results by the names of the reference's."""
  windows = {name: getattr(trace, name) for name in ('write', 'read')}
  windows = {name: paper(window) for name, window in windows.items() if window is not None}
  return {'canvases': trace.canvas, **windows, **others}


def infer(model, params, x, noise) -> dict:
  terms = compiled(model, 'infer', True)({'params': params}, x, noise)
  return flatten(**terms._asdict(), loss=terms.loss)


def decode(model, params, latents) -> dict:
  canvas, trace = compiled(model, 'decode', True)({'params': params}, latents)
  return flatten(trace, canvas=canvas)


def edit(params, *path, to):
  """Parameters with one array replaced by `to` of it."""
  first, *rest = path
  return {**params, first: edit(params[first], *rest, to=to) if rest else to(params[first])}
