"""Generation with DRAW; the loss is the bound of Eq. 12 in nats."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from draw_jax import distributions
from draw_jax.errors import UserError
from draw_jax.models.draw import DRAW
from draw_jax.tasks import base, bounds, tables


@dataclasses.dataclass(frozen=True)
class Generation(base.Task):
  """A network that draws images through latents."""

  model: DRAW
  kind: ClassVar[str] = 'bound'
  draws: ClassVar[bool] = True
  metric: ClassVar[str] = 'bound'
  shown_by: ClassVar[str] = 'sample'

  def init(self, key: jax.Array, mean_image: jax.Array) -> base.Params:
    """Parameters whose first canvas is the mean image."""
    x = jnp.zeros((1, *self.model.image_shape))
    given = self.given({'image': x, 'label': jnp.zeros(1, int)})
    params = self.model.init(key, x, key, glimpses=1, **given)['params']
    return self.model.start_canvas_at(params, mean_image)

  @property
  def neutral(self) -> tuple[str, ...]:
    return self.model.neutral

  def noise(self, key: jax.Array, num: int, glimpses: int) -> jax.Array:
    """[T, B, Z]."""
    return self.model.noise(key, num, glimpses)

  def loss(self, params, batch: base.Batch, noise, step: jax.Array | None = None):
    """The bound [B] with its KL weighted by `kl_warmup`; the bound itself and its parts."""
    x = base.to_device_float(batch['image'])
    given = self.given(batch)
    terms = self.model.apply({'params': params}, x, noise, method='infer', **given)
    kl = terms.kl.sum(0)
    metrics = {'bound': terms.loss, 'reconstruction': terms.reconstruction, 'kl': kl}
    if step is None or not self.kl_warmup:
      return terms.loss, metrics
    return terms.reconstruction + jnp.minimum(step / self.kl_warmup, 1) * kl, metrics

  def images(self, params, batch: base.Batch, key: jax.Array, glimpses: int) -> dict:
    """Samples from the prior; images, each followed by its reconstruction."""
    apply = functools.partial(
      self.model.apply, {'params': params}, glimpses=glimpses, **self.given(batch)
    )
    x = base.to_device_float(batch['image'])
    drawn, _ = apply(len(x), key, method='generate')
    seen, _ = apply(x, key, method='reconstruct')
    pairs = jnp.stack([x, self.model.mean(seen)], 1).reshape(-1, *x.shape[1:])
    return {'samples': self.model.mean(drawn), 'reconstructions': pairs}

  def evaluation(
    self,
    options: base.EvaluationOptions,
    glimpses: Sequence[int],
    chunk: int,
    num_classes: int | None,
  ) -> 'BoundEvaluation':
    """The bounds, from draws that come in chunks."""
    del num_classes
    return BoundEvaluation(self, options, tuple(glimpses), chunk)

  def rows_that_fit(self, options: base.EvaluationOptions, glimpses: Sequence[int]) -> int:
    """How many draws a device can work on at a time in the memory of the options, roughly."""
    model = self.model
    canvas = math.prod(model.image_shape[:2]) * model.distribution.canvas_channels
    traced = max(glimpses) if len(glimpses) > 1 else 0
    numbers = 8 * max(glimpses) * model.latent + (16 + traced) * canvas + 24 * model.hidden
    return max(1, options.memory * 2**20 // (4 * numbers))

  def table(self, result: Mapping[str, Any]) -> base.Table:
    """The bounds beside the paper's, and where the KL is."""
    longest = max(result['results'], key=lambda row: row['glimpses'])
    blocks = []
    for row in result['results']:
      # The paper's number is for the largest T, and for whole splits.
      comparable = row is longest and not result['partial']
      paper = result['paper'] if comparable else None
      blocks.append(tables.of_bounds(row, result['likelihood'], paper))
    draws = (
      f'draws       {result["draws"]:,} an image: R {result["repeats"]} x K '
      f'{result["importance_samples"]}, seed {result["seed"]}'
    )
    return base.Table([draws], [*blocks, tables.of_kl(longest)], self._notes(result))

  def _notes(self, result: Mapping[str, Any]) -> list[str]:
    """What the figures are, where they are not of binary pixels."""
    if not result['likelihood']:
      return [
        'note        cross-entropy of intensities under Bernoullis, as the paper uses it: neither '
        'the nats\n            nor the bits are a likelihood of the pixels, RGB or gray; it is '
        'never below their entropy'
      ]
    values = self.model.distribution.values
    if values == 2:
      return []
    of = 'a density of intensities' if values is None else f'the likelihood of {values} values'
    notes = [f'note        a bound on {of}, in nats an image and bits for each of its numbers']
    if result['resized']:
      notes.append(
        'note        images of another size were resized: the likelihood is that of the resized '
        'images'
      )
    return notes

  @property
  def title(self) -> str:
    return f'{self.name} {"with" if self.model.attention else "without"} attention'

  def metric_name(self, binarization: str) -> str:
    """The bound by its name, which it deserves only for some data."""
    return 'bound' if self.is_likelihood(binarization) else 'cross-entropy + KL'

  def metric_label(self, binarization: str) -> str:
    return f'{self.metric_name(binarization)} (nats)'

  def weights(self, step: int) -> dict[str, float]:
    """That of the KL while it rises; the bound is told without it."""
    return {'kl_weight': step / self.kl_warmup} if step < self.kl_warmup else {}

  def is_likelihood(self, binarization: str) -> bool:
    """Depends on the output distribution, too."""
    return distributions.is_likelihood(self.model.distribution, binarization)

  def weights_used_once(self, params) -> int:
    """Without attention those that meet the image itself."""
    if self.model.attention:
      return 0
    return math.prod(self.model.image_shape) * params['encoder']['kernel'].shape[-1]

  def check_draws(self) -> None:
    """It does."""

  def check_looks(self) -> None:
    raise UserError('DRAW classifies nothing: the figure reconstructions shows where it reads.')

  def with_latents(self, params, num: int):
    return self.model.with_latents(params, num)


class BoundEvaluation:
  """The bounds with several numbers of glimpses; see `base.Evaluation`."""

  def __init__(
    self, task: Generation, options: base.EvaluationOptions, glimpses: tuple[int, ...], chunk: int
  ):
    self._task, self._glimpses, self._chunk = task, glimpses, chunk
    self._draws, self._latents = options.draws, options.latents
    self._empty = bounds.Bounds(
      importance=tuple(bounds.ImportanceBound(k) for k in sorted({*options.importance_samples}))
    )
    # By batch: the bounds with each number of glimpses, and the sums of 'kl_latents' [T, Z].
    # Both are replaced at once, so that Ctrl-C finds them in step.
    self._kept: dict[int, tuple[list[bounds.Bounds], np.ndarray | float]] = {}
    # By batch, of outputs of binary values: the entropy of each image.
    self._entropy: dict[int, np.ndarray] = {}

  def on_device(self, params, batch: base.Batch, keys: jax.Array, part: jax.Array) -> dict:
    """Terms of the examples [B, ...] with the draws of one chunk."""
    num, model = len(keys), self._task.model
    draws = part * self._chunk + jnp.arange(self._chunk)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    keys = jax.vmap(fold, (0, None))(keys, draws).reshape(-1)
    noise = base.noise_of_each(self._task, keys, max(self._glimpses))
    images = base.to_device_float(batch['image'])
    x, given = jax.tree.map(
      lambda a: jnp.repeat(a, self._chunk, 0), (images, self._task.given(batch))
    )
    # A pass with fewer glimpses is the beginning of one with more: all come from the longest.
    several = len(self._glimpses) > 1
    terms = model.apply({'params': params}, x, noise, method='infer', trace=several, **given)
    reconstruction = terms.reconstruction[None]
    if several:
      canvases = terms.trace.canvas[np.array(self._glimpses) - 1]
      reconstruction = -model.log_prob(canvases, x)

    def by_example(a):  # [., B S] -> [B, ., S]
      return jnp.moveaxis(a.reshape(len(a), num, self._chunk), 1, 0)

    values = {
      'reconstruction': by_example(reconstruction),
      'kl': by_example(terms.kl),
      'log_ratio': by_example(terms.log_ratio),
    }
    if model.distribution.values == 2:
      values['entropy'] = distributions.bernoulli_entropy(images).sum((1, 2, 3))
    if self._latents:
      used = (draws < self._draws)[:, None]
      kl = terms.kl_latents.reshape(len(terms.kl), num, self._chunk, -1)
      values['kl_latents'] = jnp.moveaxis(jnp.where(used, kl, 0).sum(2), 1, 0)
    return values

  def add(self, batch: int, used: int, values: Mapping[str, np.ndarray]) -> None:
    """Takes in the first `used` draws of a chunk."""
    mask = values['mask']
    reconstruction, kl, log_ratio = (
      values[name][mask][..., :used] for name in ('reconstruction', 'kl', 'log_ratio')
    )
    before, sums = self._kept.get(batch, ([self._empty] * len(self._glimpses), 0.0))
    after = [
      one.add(reconstruction[:, i], kl[:, :t], log_ratio[:, :t])
      for i, (one, t) in enumerate(zip(before, self._glimpses, strict=True))
    ]
    if self._latents:
      sums = sums + values['kl_latents'][mask].sum(0, dtype=np.float64)
    if 'entropy' in values:
      self._entropy[batch] = values['entropy'][mask]
    self._kept[batch] = after, sums

  def by_example(self) -> np.ndarray:
    """The mean over draws of each example [N], with the largest number of glimpses.

    Of the importance-weighted bound with the most samples, or of Eq. 12 if there is none.
    """
    rows = [self._kept[batch][0][int(np.argmax(self._glimpses))] for batch in sorted(self._kept)]
    kinds = [row.importance[-1].groups if row.importance else row.bound for row in rows]
    return np.concatenate([kind.mean for kind in kinds])

  def examples(self) -> int:
    return sum(len(kept[0].bound.mean) for kept, _ in self._kept.values())

  def draws(self) -> int:
    return min(kept[0].bound.count for kept, _ in self._kept.values())

  def done(self) -> int:
    return sum(kept[0].bound.count * len(kept[0].bound.mean) for kept, _ in self._kept.values())

  def results(self) -> list[dict[str, Any]]:
    return [self._result(i, t) for i, t in enumerate(self._glimpses)]

  def metrics(self) -> dict[str, float]:
    rows = self._rows(int(np.argmax(self._glimpses)))
    return {
      name: bounds.estimate([getattr(row, name) for row in rows])['mean']
      for name in ('bound', 'reconstruction', 'kl')
    }

  def _rows(self, i: int) -> list[bounds.Bounds]:
    return [kept[i] for kept, _ in self._kept.values()]

  def _result(self, i: int, glimpses: int) -> dict[str, Any]:
    rows = self._rows(i)
    bad = sum(int((~np.isfinite(row.bound.mean)).sum()) for row in rows)
    if bad:
      raise UserError(
        f'the bound of {bad} images is not a finite number: choose another --checkpoint.'
      )
    result = {'glimpses': glimpses}
    for name in ('bound', 'reconstruction', 'kl'):
      result[name] = self._estimate([getattr(row, name) for row in rows])
    entropy = [self._entropy[batch][:, None] for batch in self._kept if self._entropy]
    if any(part.any() for part in entropy):  # That of binary values is zero.
      result['entropy_floor'] = self._estimate([bounds.Moments().add(part) for part in entropy])
    kl_glimpses = np.concatenate([row.kl_glimpses.mean for row in rows])
    result['kl_glimpses'] = kl_glimpses.mean(0).tolist()
    if self._latents:
      means = sum(sums / kept[i].bound.count for kept, sums in self._kept.values())
      result['kl_latents'] = (means[:glimpses] / self.examples()).tolist()
    result['importance'] = []
    for parts in zip(*(row.importance for row in rows), strict=True):
      groups = min(part.groups.count for part in parts)
      if groups:  # Not all are whole where the user stopped early.
        about = {'samples': parts[0].samples, 'groups': groups}
        result['importance'].append(about | self._estimate([part.groups for part in parts]))
    return result

  def _estimate(self, parts: list[bounds.Moments]) -> dict[str, float | None]:
    numbers = bounds.estimate(parts)
    shape = self._task.model.image_shape
    return numbers | {'bits_per_dim': bounds.bits_per_dim(numbers['mean'], shape)}
