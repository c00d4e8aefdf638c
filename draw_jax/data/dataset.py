"""From splits to batches that are the same on any number of hosts."""

import zlib
from collections.abc import Iterator

import numpy as np

from draw_jax.data import sources
from draw_jax.data.sources import MemorySource, Source
from draw_jax.data.spec import Spec
from draw_jax.data.transforms import BINARIZERS, Together, Transform, identity, threshold
from draw_jax.errors import UserError

Batch = dict[str, np.ndarray]

_ENDLESS = 2**62
_MEAN_EXAMPLES = 10_000
_MEAN_BATCH = 100


class Dataset:
  """One dataset: its splits, and batches of them.

  Attributes:
    name: one of `NAMES`.
    binarization: 'fixed', 'dynamic', 'threshold' or 'none'; results must carry it.
    num_classes: of the labels, or None.
    image_shape: (H, W, C).
    splits: the names of the splits that are there.
    notes: what the user's own images were found to be.
    resized: whether images of another size were resized, so that results are about resized ones.
  """

  def __init__(
    self, spec: Spec, sources: dict[str, Source], binarization: str, *, resized: bool = False
  ):
    self.name = spec.name
    self.resized = resized
    self.binarization = binarization
    classes = spec.num_classes
    self.num_classes = classes(sources) if callable(classes) else classes
    self.splits = tuple(sources)
    self.notes: tuple[str, ...] = getattr(sources['train'], 'notes', ())
    self._sources = sources
    self._transform = spec.transform
    self.image_shape = self._eval_view('train').example(0)['image'].shape

  def num_examples(self, split: str) -> int:
    """Returns the number of examples of a split."""
    return len(self._source(split))

  def fingerprint(self, split: str) -> str:
    """Returns the number of examples of a split and a checksum of them."""
    source = self._source(split)
    return f'{len(source):,} examples, checksum {sources.checksum(source):08x}'

  def train_batches(
    self,
    batch_size: int,
    *,
    seed: int,
    start_step: int = 0,
    split: str = 'train',
    process_index: int = 0,
    process_count: int = 1,
  ) -> Iterator[Batch]:
    """Returns an endless iterator of shuffled batches.

    The global batch of a step depends on the seed and the step alone. Each process gets an equal
    run of it, in order, so that the processes' batches, one after the other, are the global batch.

    Args:
      batch_size: of the global batch, B.
      seed: of the order and of every random transform.
      start_step: the step of the first batch.
      split: which split.
      process_index: of this process.
      process_count: the number of processes; B must be a multiple.

    Returns:
      Iterator of 'image' uint8 [B / process_count, H, W, C] and, where the dataset has labels,
      'label' int32 [B / process_count].
    """
    view = _View(self._source(split), self._chain(split, training=True), seed, shuffled=True)
    local = _local_size(batch_size, process_count)

    def batch(step: int) -> Batch:
      first = step * batch_size + process_index * local
      return view.batch(np.arange(first, first + local))

    return _iterate(batch, start_step, _ENDLESS)

  def eval_batches(
    self, split: str, batch_size: int, *, process_index: int = 0, process_count: int = 1
  ) -> Iterator[Batch]:
    """Returns an iterator over each example of a split once, in order.

    Random transforms are drawn from a fixed seed, so that each pass sees the same pixels.

    Args:
      split: which split.
      batch_size: of the global batch, B.
      process_index: of this process.
      process_count: the number of processes; B must be a multiple.

    Returns:
      Iterator of batches as in `train_batches`, with 'mask' bool [B / process_count], which is
      False for the padding of the last batch. Every process yields equally many.
    """
    view = self._eval_view(split)
    total = self.num_examples(split)
    local = _local_size(batch_size, process_count)

    def batch(step: int) -> Batch:
      positions = step * batch_size + process_index * local + np.arange(local)
      return view.batch(np.minimum(positions, total - 1)) | {'mask': positions < total}

    return _iterate(batch, 0, -(-total // batch_size))

  def mean_image(self) -> np.ndarray:
    """Returns float32 [H, W, C], the mean of up to 10,000 training examples in [0, 1]."""
    view = self._eval_view('train')
    total = self.num_examples('train')
    # Spread over the split, which may be sorted by class.
    chosen = np.unique(np.linspace(0, total - 1, min(total, _MEAN_EXAMPLES)).astype(int))
    mean = np.zeros(self.image_shape)
    for some in np.array_split(chosen, -(-len(chosen) // _MEAN_BATCH)):
      mean += view.batch(some)['image'].sum(0, dtype=np.int64)
    return (mean / (255 * len(chosen))).astype(np.float32)

  def _source(self, split: str) -> Source:
    if split not in self._sources:
      raise UserError(f'{self.name} has no split {split!r}: it has {", ".join(self.splits)}')
    return self._sources[split]

  def _chain(self, split: str, training: bool) -> tuple[Transform, ...]:
    binarizer = BINARIZERS[self.binarization]
    if self._transform is None:
      return (binarizer,)
    return (self._transform(self._source(split), training), binarizer)

  def _eval_view(self, split: str) -> '_View':
    seed = zlib.crc32(f'{self.name}/{split}'.encode())
    source = self._source(split)
    return _View(source, self._chain(split, training=False), seed, shuffled=False)


class _View:
  """An endless row of examples, each a function of the seed and its position alone."""

  def __init__(
    self, source: Source, transforms: tuple[Transform, ...], seed: int, *, shuffled: bool
  ):
    self._source = source
    self._transforms = transforms
    self._seed = seed
    self._shuffled = shuffled
    # A batch at a time, where nothing else is drawn. Of two examples there is but one other, which
    # is not drawn.
    self._together = (
      isinstance(transforms[0], Together)
      and transforms[1] in (identity, threshold)
      and isinstance(source, MemorySource)
      and len(source) > 2
    )
    self._order = (-1, None)  # the last epoch asked for, and its order

  def example(self, position: int) -> dict[str, np.ndarray]:
    return self._example(position, _Streams(self._seed))

  def batch(self, positions: np.ndarray) -> Batch:
    """The examples at these positions, one after the other."""
    streams = _Streams(self._seed)
    positions = positions.tolist()
    if not self._together:
      return _stack([self._example(position, streams) for position in positions])
    first, binarize = self._transforms
    indices = np.array([self._index(position) for position in positions])
    words = np.stack([streams.at(p).bit_generator.random_raw(first.draws) for p in positions])
    images, sure = first.together(indices, words)
    images = binarize({'image': images}, None)['image']
    for i in np.flatnonzero(~sure):
      images[i] = self._example(positions[i], streams)['image']
    batch = {'image': images}
    if self._source.labels is not None:
      batch['label'] = self._source.labels[indices].astype(np.int32)
    return batch

  def _example(self, position: int, streams: '_Streams') -> dict[str, np.ndarray]:
    index = self._index(position)
    example = self._source[index] | {'index': index}
    rng = streams.at(position)
    for transform in self._transforms:
      example = transform(example, rng)
    return example

  def _index(self, position: int) -> int:
    if not self._shuffled:
      return position
    epoch, place = divmod(position, len(self._source))
    # One assignment, so that threads never see the order of another epoch.
    cached = self._order
    if cached[0] != epoch:
      order = np.random.default_rng([self._seed, epoch]).permutation(len(self._source))
      self._order = cached = (epoch, order)
    return int(cached[1][place])


class _Streams:
  """The generators of the positions of a view: one that is set anew, faster than to make many."""

  def __init__(self, seed: int):
    self._rng = np.random.Generator(np.random.Philox(key=[seed, 0]))
    self._start = self._rng.bit_generator.state

  def at(self, position: int) -> np.random.Generator:
    """The generator of a position, at its start; it is in use until the next call."""
    self._start['state']['key'][1] = position
    self._rng.bit_generator.state = self._start
    return self._rng


class _Steps:
  """What Grain wants to see of batches that can be made in any order."""

  def __init__(self, batch, length: int):
    self._batch = batch
    self._length = length

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, step: int) -> Batch:
    return self._batch(step)


def _iterate(batch, start: int, stop: int) -> Iterator[Batch]:
  import grain  # With Orbax, which takes a second that a config need not wait for.

  # Python's lock lets one thread work at a time: a second one only hides waiting for a disk.
  options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=8)
  steps = grain.MapDataset.source(_Steps(batch, stop))[start:]
  return iter(steps.to_iter_dataset(options))


def _stack(examples: list[dict[str, np.ndarray]]) -> Batch:
  batch = {'image': np.stack([example['image'] for example in examples])}
  if 'label' in examples[0]:
    batch['label'] = np.array([example['label'] for example in examples], np.int32)
  return batch


def _local_size(batch_size: int, process_count: int) -> int:
  if batch_size < 1 or batch_size % process_count:
    raise UserError(
      f'a batch size of {batch_size} does not divide among {process_count} processes: '
      'give a multiple of their number'
    )
  return batch_size // process_count
