"""What one does with a trained model: arrays in, arrays out.

Images are float [N, H, W, C] in [0, 1], of NumPy or JAX; results are NumPy arrays. Each program is
compiled once for images of one number. The letters of the shapes are those of `draw_jax.attention`.
"""

import math
from typing import Any

import flax.linen as nn
import numpy as np

from draw_jax import completion, fields, memory
from draw_jax.errors import UserError
from draw_jax.evaluation import by_image
from draw_jax.figures import passes
from draw_jax.models import checks
from draw_jax.tasks import base


class Methods:
  """The methods of `draw_jax.trained.TrainedModel`.

  Example i of every result depends on the seed and on i alone. Images that are drawn show the mean
  of each pixel, or with `binary` a draw of it. With `trace` the result is a `passes.Drawing`:
  `images` [T, N, H, W, C] after each glimpse, and the windows `write` and `read`, each field
  [T, N], where the network wrote and read.

  A model that is told the classes of its images takes `label`, a class for all images or one for
  each of them; without it samples are of all classes in turns.
  """

  # Of the dataclass.
  params: base.Params
  image_shape: tuple[int, int, int]
  binarization: str
  task: base.Task
  model: nn.Module

  def sample(
    self,
    num: int,
    seed: int = 0,
    *,
    label: Any = None,
    binary: bool = False,
    trace: bool = False,
  ) -> np.ndarray | passes.Drawing:
    """Images drawn from the model [N, H, W, C], those of `draw-sample` with this seed."""
    self.task.check_draws()
    checks.count('num', num)
    _check_seed(seed)
    steps = self.model.glimpses if trace else 1
    memory.check(4.0 * num * steps * math.prod(self.image_shape), f'num={num}')
    given = self.task.chosen(num, None) if label is None else self._given(label, num)
    fixed = {'trace': trace, 'binary': binary, 'given': given}
    drawing = passes.generate(self.model, self.params, num, seed, **fixed)
    return drawing if trace else drawing.images[0]

  def reconstruct(
    self,
    x: Any,
    seed: int = 0,
    *,
    label: Any = None,
    binary: bool = False,
    trace: bool = False,
  ) -> np.ndarray | passes.Drawing:
    """Images encoded and drawn again, [N, H, W, C].

    With `trace` the result has `kl` [T, N], too, in nats: beside the negative log-likelihood of x
    under the last image its sum over T is `bound(x, 1, seed)`.
    """
    self.task.check_draws()
    x = self._images('x', x)
    _check_seed(seed)
    fixed = {'trace': trace, 'binary': binary, 'given': self._given(label, len(x))}
    drawing = passes.reconstruct(self.model, self.params, x, seed, **fixed)
    return drawing if trace else drawing.images[0]

  def bound(self, x: Any, samples: int = 1, seed: int = 0, *, label: Any = None) -> np.ndarray:
    """Bounds on -log p(x), or -log p(x | label), of each image in nats, float64 [N].

    Those of `draw-evaluate` for a split of these images: with `samples` K > 1 the
    importance-weighted bound, which is the tighter the larger K; with 1 that of Eq. 12, from one
    draw. For intensities under Bernoullis it is a cross-entropy and no bound, see README.
    """
    self.task.check_draws()
    x = self._images('x', x)
    checks.count('samples', samples)
    _check_seed(seed)
    between = x[(x > 0) & (x < 1)]
    of_binary = self.task.is_likelihood(self.binarization) and not self.task.is_likelihood('none')
    if of_binary and between.size:
      raise UserError(
        f'x has values such as {between[0]:.3g}, and the model gives binary pixels a likelihood: '
        "binarize them as its data were, such as (x > 0.5).astype('float32')."
      )
    batch = {'image': x, **self._labels(label, len(x))}
    return by_image.bounds(self.task, self.params, batch, samples, seed)

  def interpolate(
    self, a: Any, b: Any, num: int = 9, seed: int = 0, *, label: Any = None, binary: bool = False
  ) -> np.ndarray:
    """Images on straight lines between the latents of a and b, [N, num, H, W, C].

    The first and the last are reconstructions of a and b. Here `label` may also be [2, N], for a
    and for b; on the way the network is told what lies between.
    """
    self.task.check_draws()
    a, b = self._images('a', a), self._images('b', b)
    if len(a) != len(b):
      raise UserError(f'a holds {len(a)} images and b {len(b)}: give as many of both.')
    checks.count('num', num)
    _check_seed(seed)
    if np.ndim(label) == 2:
      label = np.concatenate(label)
    elif np.ndim(label):
      label = np.concatenate([label, label])
    fixed = {'binary': binary, 'given': self._given(label, 2 * len(a))}
    return passes.interpolate(self.model, self.params, a, b, num, seed, **fixed)

  def complete(
    self,
    x: Any,
    mask: Any,
    seed: int = 0,
    *,
    particles: int = 16,
    rounds: int = 3,
    binary: bool = False,
    trace: bool = False,
  ) -> np.ndarray | passes.Drawing:
    """Images whose hidden pixels are drawn given the others, [N, H, W, C].

    Latents are drawn from those of the model's prior and of its encoder by importance: by how
    likely the visible pixels are under what they draw, which is exact, in several rounds. More
    particles come closer to p(hidden | visible); see `draw_jax.completion`. The same image several
    times in x, as by np.repeat, gets a completion each.

    Args:
      x: [N, H, W, C] in [0, 1]; what hidden pixels hold does not matter.
      mask: True where pixels are hidden, [H, W] for all images or [N, H, W].
      seed: of all randomness.
      particles: K, draws for each image; time is in proportion to it.
      rounds: in which draws lead to the next ones; time is in proportion to them.
      binary: draw the hidden pixels, or else show their means.
      trace: return the `passes.Drawing` of the latents, as it is before the visible pixels of x
        take their places.
    """
    self.task.check_completes()
    for name, count in (('particles', particles), ('rounds', rounds)):
      checks.count(name, count)
    _check_seed(seed)
    checks.batch_shape(x, self.image_shape)
    hidden = _hidden(mask, len(x), self.image_shape)
    # Hidden pixels may hold anything, such as NaN.
    x = self._images('x', np.where(hidden[..., None], 0, x))
    found = completion.posterior(
      self.model,
      self.params,
      x,
      hidden,
      seed,
      particles=particles,
      rounds=rounds,
    )
    latents = found.latents[:, :, 0]
    drawing = passes.decode(self.model, self.params, latents, seed, trace=trace, binary=binary)
    return drawing if trace else np.where(hidden[..., None], drawing.images[0], x)

  def classify(self, x: Any, *, trace: bool = False) -> np.ndarray | tuple:
    """The probabilities of the classes of images, [N, K]; of a classifier.

    With `trace` also a `passes.Looking`: the `window` of each glimpse, each field [T, N], and the
    `glimpse` itself.
    """
    self.task.check_classifies()
    if trace:
      self.task.check_looks()
    x = self._images('x', x)
    found = passes.classify(self.model, self.params, x)
    return (found, passes.look(self.model, self.params, x)) if trace else found

  def _labels(self, label: Any, num: int) -> dict[str, np.ndarray]:
    """The classes of `num` images as a batch has them; none for a model that is told none."""
    classes = self.task.classes
    if classes is None:
      if label is not None:
        raise UserError(f'a model {self.task.name!r} is told of no classes: leave out label.')
      return {}
    if np.ndim(label) > 1:
      raise UserError(
        f'label is {checks.by(np.shape(label))}: give one class for all images, or one for each.'
      )
    return {'label': np.broadcast_to(checks.label(label, num, classes), (num,))}

  def _given(self, label: Any, num: int) -> dict[str, Any]:
    """What the network is told of `num` images of these classes."""
    return self.task.given(self._labels(label, num))

  def _images(self, name: str, x: Any) -> np.ndarray:
    """Images as float32 [N, H, W, C]; raises a `UserError` unless they are some."""
    if not checks.batch(x, self.image_shape, name):
      raise UserError(f'{name} holds no images: give at least one.')
    return np.asarray(x, np.float32)


def _hidden(mask: Any, num: int, image_shape: tuple[int, int, int]) -> np.ndarray:
  """A mask as bool [N, H, W]; raises a `UserError` unless it is one for N images."""
  mask = np.asarray(mask)
  for shape in (image_shape[:2], (num, *image_shape[:2])):
    if mask.shape in (shape, (*shape, 1)):
      break
  else:
    by = checks.by(image_shape[:2])
    raise UserError(
      f'the mask is {checks.by(mask.shape)}: it must be {by} for all images, or {num} x {by} for '
      'these, one value for all channels of a pixel.'
    )
  if not ((mask == 0) | (mask == 1)).all():
    raise UserError(
      'the mask holds other values than True and False: True marks the pixels to be drawn.'
    )
  if not mask.any():
    raise UserError('the mask hides no pixel: True marks the pixels to be drawn.')
  return np.broadcast_to(mask.reshape(shape).astype(bool), (num, *image_shape[:2]))


def _check_seed(seed: int) -> None:
  fields.check_whole('seed', seed)
  fields.check_number('seed', seed, {'at least': 0, 'below': 2**32})
