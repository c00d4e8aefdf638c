"""What well-known formats make of the same images."""

import bz2
import gzip
import io
import lzma
import math
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable

import numpy as np
import tqdm
from PIL import Image

from draw_jax.tasks import bounds

_WIDEST = 16383  # pixels of a WebP image


def table(images: np.ndarray, binary: bool, size: int) -> str:
  """Sizes of all formats beside one of our own.

  Args:
    images: uint8 [N, H, W, C], of 0 and 255 if binary.
    binary: bits are packed, and PNG files have one bit a pixel.
    size: of our own file, in bytes.
  """
  count, *shape = images.shape
  sheet = _sheet(images)
  rows = [('draw_jax', None, size)]
  bar = tqdm.tqdm(total=len(_FORMATS) * count, unit=' files', dynamic_ncols=True, disable=None)
  with bar:
    for name, (encode, drawn) in _FORMATS.items():
      each = 0
      for image in images:
        each += len(encode(_picture(image, binary) if drawn else _bytes(image, binary)))
        bar.update()
      fits = not drawn or max(sheet.shape) <= _WIDEST
      whole = _picture(sheet, binary) if drawn else _bytes(images, binary)
      rows.append((name, each, len(encode(whole)) if fits else None))
  if shutil.which('optipng'):
    rows.append(('PNG by optipng', None, _optipng(_picture(sheet, binary))))
  lines = [f'{"bytes of":<16}{"a file an image":>17}{"one file of all":>17}{"bits/dim":>10}'
           f'{"nats an image":>15}']  # fmt: skip
  for name, each, together in sorted(rows, key=lambda row: _least(*row[1:])):
    nats = 8 * math.log(2) * _least(each, together) / count
    lines.append(
      f'{name:<16}{_number(each):>17}{_number(together):>17}'
      f'{bounds.bits_per_dim(nats, shape):>10.4f}{nats:>15.2f}'
    )
  kind = 'bits, 8 to a byte' if binary else 'bytes'
  lines.append(
    f'gzip, bz2 and xz of {kind}; PNG and WebP of all: the images side by side in one. The last '
    'two columns are of the smaller number of bytes.'
  )
  return '\n'.join(lines)


def _bytes(images: np.ndarray, binary: bool) -> bytes:
  return (np.packbits(images > 0) if binary else images).tobytes()


def _picture(image: np.ndarray, binary: bool) -> Image.Image:
  picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
  return picture.convert('1', dither=Image.Dither.NONE) if binary else picture


def _sheet(images: np.ndarray) -> np.ndarray:
  """The images side by side, in about a square: [H', W', C]."""
  count, height, width, channels = images.shape
  columns = math.isqrt(count - 1) + 1
  rows = -(-count // columns)
  images = np.pad(images, [(0, rows * columns - count), (0, 0), (0, 0), (0, 0)])
  images = images.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
  return images.reshape(rows * height, columns * width, channels)


def _saved(**options) -> Callable[[Image.Image], bytes]:
  def encode(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    # WebP has no mode of one bit.
    wanted = picture.convert('L') if options['format'] == 'WEBP' else picture
    (picture if picture.mode == 'RGB' else wanted).save(file, **options)
    return file.getvalue()

  return encode


def _xz(content: bytes) -> bytes:
  # A dictionary that is larger than the content only takes time.
  filters = [
    {
      'id': lzma.FILTER_LZMA2,
      'preset': 9 | lzma.PRESET_EXTREME,
      'dict_size': max(4096, len(content)),
    }
  ]
  return lzma.compress(content, filters=filters)


_FORMATS = {
  'gzip -9': (lambda content: gzip.compress(content, 9, mtime=0), False),
  'bz2 -9': (lambda content: bz2.compress(content, 9), False),
  'xz -9e': (_xz, False),
  'PNG by Pillow': (_saved(format='PNG', optimize=True), True),
  'WebP lossless': (_saved(format='WEBP', lossless=True, quality=100, method=6), True),
}


def _optipng(picture: Image.Image) -> int:
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'all.png'
    picture.save(path, optimize=True)
    subprocess.run(['optipng', '-quiet', '-o5', path], check=True)
    return path.stat().st_size


def _least(*sizes: int | None) -> int:
  return min(size for size in sizes if size is not None)


def _number(size: int | None) -> str:
  return '-' if size is None else f'{size:,}'
