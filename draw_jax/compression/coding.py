"""From images to the content of a file, and back, with a trained model."""

import math
from typing import Any

import tqdm

from draw_jax.compression import coded_file, images
from draw_jax.compression.bins import NotCodedHereError
from draw_jax.compression.bits_back import Codec, Coded, Network
from draw_jax.compression.coded_file import Header
from draw_jax.errors import UserError
from draw_jax.pretrained import file_format
from draw_jax.tasks import bounds

_BATCH_SIZE = 128
# Bytes for the canvases of all glimpses of a batch, and for its tables of probabilities.
_MEMORY = 2**28


class Coder:
  """Codes with one model.

  Args:
    model: the `trained.TrainedModel`.
  """

  def __init__(self, model: Any):
    model.task.check_codes()
    if not model.task.is_likelihood(model.binarization):
      raise UserError(
        f'the model was trained on intensities with the output {model.config.model.output!r}, '
        'which is no likelihood of them: there is nothing to code by.'
      )
    self._model = model
    self._network = Network(model.model, model.params, model.glimpses)

  @property
  def binary(self) -> bool:
    """Whether images are of two values only."""
    return self._network.pixels.values == 2

  def compress(
    self, given: images.Given, latent_bits: int, batch_size: int | None = None
  ) -> tuple[Header, Any]:
    """The header and the stream, uint32."""
    batch_size = batch_size or self._fitting()
    codec = Codec(self._network, latent_bits, batch_size)
    with _bar('coded', len(given.images)) as bar:
      coded = codec.encode(given.images, bar.update)
    header = Header(
      **self._described(),
      **coded_file.platform(),
      layout=given.layout._asdict(),
      images_sha256=coded_file.sha256(given.images),
      latent_bits=latent_bits,
      batch_size=batch_size,
      batches=coded_file.run_lengths(coded.batches),
      borrowed=coded.borrowed,
      fingerprint=codec.fingerprint(coded.batches),
    )
    return header, coded.words

  def decompress(self, header: Header, words: Any, label: str) -> Any:
    """The images uint8 [N, H, W, C], the very ones that were coded, or a `UserError`."""
    own = self._described()
    if header.model_sha256 != own['model_sha256']:
      raise UserError(
        f'{label} was coded with another model: {header.model!r}, sha256 '
        f'{header.model_sha256[:8]}, and this is {own["model"]!r}, {own["model_sha256"][:8]}.'
      )
    coded_file.check_platform(header, label)
    codec = Codec(self._network, header.latent_bits, header.batch_size)
    if codec.fingerprint(header.sizes) != header.fingerprint:
      raise UserError(
        f'{label} was coded on another kind of computer, whose arithmetic rounds in another way: '
        'decode it there.'
      )
    try:
      with _bar('decoded', header.count) as bar:
        decoded = codec.decode(Coded(words, header.borrowed, header.sizes), bar.update)
    except NotCodedHereError:
      decoded = None
    if decoded is None or coded_file.sha256(decoded) != header.images_sha256:
      raise UserError(
        f'{label} does not give back the images that were coded: arithmetic differs here from '
        'where it was made, in a way that was not foreseen.'
      )
    return decoded

  def _described(self) -> dict[str, Any]:
    model = self._model
    about = {'glimpses': model.glimpses, 'image_shape': list(model.image_shape)}
    tensors = file_format.as_arrays(model.params)
    return {
      'model': model.name,
      'model_sha256': file_format.digest(about, tensors),
      'glimpses': model.glimpses,
      'image_shape': model.image_shape,
    }

  def _fitting(self) -> int:
    """A batch size whose canvases fit into memory."""
    pixels = math.prod(self._model.image_shape[:2])
    canvases = self._model.glimpses * math.prod(self._model.params['canvas'].shape)
    numbers = max(canvases, pixels * self._network.pixels.values)
    return max(1, min(_BATCH_SIZE, _MEMORY // (4 * numbers)))


def report(header: Header, size: int, words: int, label: str) -> str:
  """What became of the images, for people.

  Args:
    header: of the file.
    size: of the file, in bytes.
    words: of the stream.
    label: of the images.
  """
  borrowed = 4 * header.borrowed
  return '\n'.join([
    f'images      {header.count:,} of {label}',
    f'file        {size:,} bytes: {rates(size, header.count, header.image_shape)}',
    f'of these    {4 * words - borrowed:,} the images, {borrowed:,} to begin with, '
    f'{size - 4 * words:,} around the stream',
  ])  # fmt: skip


def rates(size: int, count: int, image_shape: tuple[int, ...]) -> str:
  """Bytes in the units of bounds."""
  nats = 8 * size * math.log(2) / count
  return f'{bounds.bits_per_dim(nats, image_shape):.4f} bits/dim, {nats:.2f} nats an image'


def _bar(word: str, count: int) -> tqdm.tqdm:
  # None is for quiet where there is no terminal.
  return tqdm.tqdm(total=count, unit=f' images {word}', dynamic_ncols=True, disable=None)
