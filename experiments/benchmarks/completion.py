"""How near completions of test digits come to the truth, and to simpler guesses.

    python experiments/benchmarks/completion.py --mask=lower --images=100

Prints the nats that a hidden pixel costs under each guess, and how many are on the right side of a
half. That of one completion is as sure of itself as a digit is; the mean of several tells how sure
to be.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from scipy.special import logsumexp

import draw_jax
from draw_jax import completion
from draw_jax.figures import grid

_MODEL = flags.DEFINE_string('model', 'mnist', 'A name or a file.')
_MASK = flags.DEFINE_enum(
  'mask', 'lower', ['lower', 'right', 'middle', 'half'], 'What is hidden; half: pixels at random.'
)
_IMAGES = flags.DEFINE_integer('images', 100, 'Of the test split.', lower_bound=1)
_PARTICLES = flags.DEFINE_integer('particles', 16, 'K.', lower_bound=1)
_ROUNDS = flags.DEFINE_integer('rounds', 3, 'Of completion.', lower_bound=1)
_DRAWS = flags.DEFINE_integer('draws', 4, 'Completions of each image.', lower_bound=1)
_PICTURE = flags.DEFINE_string('picture', None, 'File for a picture of the first 12.')


def mask(name: str, height: int, width: int) -> np.ndarray:
  """Bool [H, W], True where pixels are hidden."""
  row, column = np.indices((height, width))
  return {
    'lower': row >= height // 2,
    'right': column >= width // 2,
    'middle': (abs(2 * row + 1 - height) < height / 2) & (abs(2 * column + 1 - width) < width / 2),
    'half': np.random.default_rng(0).random((height, width)) < 0.5,
  }[name]


def main(argv) -> None:
  del argv
  m = draw_jax.load(_MODEL.value)
  split = next(m.dataset.eval_batches('test', m.dataset.num_examples('test')))['image']
  order = np.random.default_rng(0).permutation(len(split))[: _IMAGES.value]
  x = split[order].astype(np.float32) / 255
  hidden = np.broadcast_to(mask(_MASK.value, *m.image_shape[:2]), x.shape[:3])
  each = hidden[0].sum()
  print(f'{len(x)} images of {m.dataset.name} test, {each} of {hidden[0].size} pixels hidden')

  def row(name, canvas):
    """Of canvases [N, S, ...], one at a time and their mean."""
    shown = np.asarray(m.model.mean(canvas), np.float64)
    for kind, guess in {'one': shown, 'mean': shown.mean(1, keepdims=True)}.items():
      right = ((guess > 0.5) == (x[:, None] > 0.5)).mean(1)[hidden].mean()
      guess = np.clip(guess, 1e-6, 1 - 1e-6)
      cost = -np.where(x[:, None] > 0.5, np.log(guess), np.log1p(-guess)).mean(1)
      nats = np.where(hidden[..., None], cost, 0).sum((1, 2, 3)) / each
      error = nats.std(ddof=1) / len(x) ** 0.5
      print(f'{name:<36} {kind:<4} {nats.mean():.3f} +- {error:.3f} nats {100 * right:6.2f} %')
      if canvas.shape[1] == 1:
        break

  start = jnp.broadcast_to(m.params['canvas'], (len(x), 1, *m.params['canvas'].shape))
  row('mean image', start)
  mean = np.asarray(m.model.mean(start[:, 0]))
  fillings = {'hidden are 0': 0 * mean, 'hidden are the mean': mean}
  for name, filling in fillings.items():
    filled = np.where(hidden[..., None], filling, x)
    terms = m.model.apply({'params': m.params}, filled, jax.random.key(0))
    row(f'reconstruction, {name}', terms.canvas[:, None])
    fillings[name] = m.model.mean(terms.canvas)
  repeated = [np.repeat(a, _DRAWS.value, 0) for a in (x, hidden)]
  begin = time.monotonic()
  sizes = {'particles': _PARTICLES.value, 'rounds': _ROUNDS.value}
  found = completion.posterior(m.model, m.params, *repeated, 0, **sizes)
  seconds = time.monotonic() - begin
  canvas = found.canvas[:, 0].reshape(len(x), _DRAWS.value, *found.canvas.shape[2:])
  row(f'{_DRAWS.value} completions, K {sizes["particles"]}, {sizes["rounds"]} rounds', canvas)
  log_weights = found.log_weights - logsumexp(found.log_weights, 1, keepdims=True)
  bound = np.log(sizes['particles']) - logsumexp(found.log_weights, 1)
  effective = np.exp(-logsumexp(2 * log_weights, 1))
  print(
    f'{seconds:.0f} s for {len(repeated[0])} completions; visible pixels: {bound.mean():.2f} nats'
  )
  print(f'effective particles in the last round: {effective.mean():.1f}')
  if _PICTURE.value:
    shown = [x, np.where(hidden[..., None], 0.5, x), *fillings.values()]
    shown += [m.model.mean(canvas[:, i]) for i in range(min(4, _DRAWS.value))]
    rows = [shown[1], *(np.where(hidden[..., None], a, x) for a in (shown[0], *shown[2:]))]
    rows = np.stack([row[:12] for row in rows])
    pictures = rows.reshape(-1, *m.image_shape)
    grid.save_png(_PICTURE.value, grid.tile(pictures, rows.shape[1], scale=2))


if __name__ == '__main__':
  app.run(main)
