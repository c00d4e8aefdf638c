"""Images being drawn: frames, GIF files and films."""

import importlib.util
import math
import shutil
import subprocess

import jax
import numpy as np
from PIL import Image

from draw_jax import files
from draw_jax.attention import Window
from draw_jax.figures import grid, windows

# Pixels: about as wide as a frame is made when no scale is asked for.
_FRAME_WIDTH = 640

_SECONDS = 5.0  # from the first frame to the last
_PAUSE = 2.0  # seconds that the last frame stays

# What each kind of film is encoded with; yuv420p is what every browser plays.
_ENCODERS = {
  '.mp4': ('libx264', ['-crf', '18', '-movflags', '+faststart']),
  '.webm': ('libvpx-vp9', ['-crf', '30', '-b:v', '0']),
}


def drawing_frames(
  images,
  window: Window | None = None,
  size: int | None = None,
  *,
  columns: int | None = None,
  scale: int | None = None,
) -> np.ndarray:
  """The frames of an animation in which several images are drawn side by side.

  Args:
    images: [T, n, H, W, C], the images after each step.
    window: where each step wrote, each field [T, n]; None shows no rectangles.
    size: N of the window's grid; not needed without a window.
    columns: images in a row; None makes the grid about square.
    scale: pixels of a frame for one of an image; None gives frames of a
      moderate size.

  Returns:
    uint8 [T, h, w, 3].
  """
  num, height, width = images.shape[1:4]
  columns = columns or grid.default_columns(num)
  scale = scale or default_scale(columns * width)
  shown = None if window is None else windows.rectangles(window, size, height, width)

  def frame(t):
    marked = windows.mark(images[t], jax.tree.map(lambda a: a[t], shown), scale, windows.RED)
    return grid.tile(marked, columns)

  return np.stack([frame(t) for t in range(len(images))])


def reconstruction_frames(
  targets,
  images,
  read: Window | None = None,
  write: Window | None = None,
  sizes: tuple[int, int] = (0, 0),
  *,
  columns: int | None = None,
  scale: int | None = None,
) -> np.ndarray:
  """The frames of an animation in which images are read, on the left, and drawn again.

  Args:
    targets: [n, H, W, C], the images that are encoded.
    images: [T, n, H, W, C], their reconstructions after each step.
    read: where each step read, each field [T, n]; shown in green.
    write: where each step wrote, each field [T, n]; shown in red.
    sizes: N of the reading and of the writing grid.
    columns: pairs in a row; None makes the grid about square.
    scale: pixels of a frame for one of an image; None gives frames of a
      moderate size.

  Returns:
    uint8 [T, h, w, 3].
  """
  num, height, width = images.shape[1:4]
  columns = columns or grid.default_columns(math.ceil(num / 2))
  scale = scale or default_scale(2 * columns * width)
  sides = [
    None if window is None else windows.rectangles(window, size, height, width)
    for window, size in zip((read, write), sizes, strict=True)
  ]

  def frame(t):
    read, write = jax.tree.map(lambda a: a[t], sides)
    left = windows.mark(targets, read, scale, windows.GREEN)
    right = windows.mark(images[t], write, scale, windows.RED)
    return grid.tile(np.concatenate([left, right], 2), columns, padding=4)

  return np.stack([frame(t) for t in range(len(images))])


def default_scale(width: int) -> int:
  """How much to enlarge a grid that is so many pixels of its images wide."""
  return int(np.clip(_FRAME_WIDTH // width, 1, 8))


def save_gif(path, frames, *, seconds: float = _SECONDS, pause: float = _PAUSE) -> None:
  """Writes an animation that repeats for ever.

  Args:
    path: of the file.
    frames: uint8 [T, h, w, 3].
    seconds: from the first frame to the last.
    pause: seconds that the last frame stays.
  """
  pages, durations = _pages(frames, 256), _durations(len(frames), seconds, pause)
  with files.writing(path) as temporary:
    pages[0].save(
      temporary,
      format='GIF',
      save_all=True,
      append_images=pages[1:],
      duration=durations,
      loop=0,
      optimize=True,
    )


def save_webp(path, frames, *, seconds: float = _SECONDS, pause: float = _PAUSE) -> None:
  """The same as WebP: in few colors, and a tenth to a third of the size of a GIF."""
  first, *others = [page.convert('RGB') for page in _pages(frames, 64)]
  durations = _durations(len(frames), seconds, pause)
  with files.writing(path) as temporary:
    first.save(
      temporary,
      format='WEBP',
      save_all=True,
      append_images=others,
      duration=durations,
      loop=0,
      lossless=True,
      method=6,
      quality=80,  # of the search for a short encoding; at 100 it takes minutes
    )


def save_film(path, frames) -> str | None:
  """Writes an animation as MP4 or WebM, by the suffix, where ffmpeg can.

  Args:
    path: of the file, ending in .mp4 or .webm.
    frames: uint8 [T, h, w, 3].

  Returns:
    None when the file is written, or a sentence that says why it is not.
  """
  encoder, options = _ENCODERS[path.suffix]
  program = find_ffmpeg()
  if program is None:
    return f'{path.name} is left out: there is no ffmpeg on the PATH, and no imageio-ffmpeg.'
  if encoder not in _run(program, '-hide_banner', '-encoders').stdout.decode():
    return f'{path.name} is left out: {program} has no {encoder} encoder.'
  frames = _even(np.asarray(frames))
  rate = len(frames) / _SECONDS
  still = np.broadcast_to(frames[-1], (max(1, round(_PAUSE * rate)), *frames.shape[1:]))
  height, width = frames.shape[1:3]
  source = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', f'{width}x{height}', '-r', f'{rate:.4f}']
  with files.writing(path) as temporary:
    done = _run(
      program, '-y', *source, '-i', '-', '-an', '-c:v', encoder, '-pix_fmt', 'yuv420p', *options,
      str(temporary), stdin=frames.tobytes() + still.tobytes(),
    )  # fmt: skip
    if done.returncode:
      raise OSError(f'{program}: {done.stderr.decode().strip().splitlines()[-1]}')
  return None


def find_ffmpeg() -> str | None:
  """The ffmpeg on the PATH, else that of the package imageio-ffmpeg, else None."""
  if program := shutil.which('ffmpeg'):
    return program
  if importlib.util.find_spec('imageio_ffmpeg') is None:
    return None
  import imageio_ffmpeg

  try:
    return imageio_ffmpeg.get_ffmpeg_exe()
  except RuntimeError:  # the package was installed without a binary for this machine
    return None


def _pages(frames, colors: int) -> list[Image.Image]:
  """Frames with one palette for all of them: nothing flickers, the file is small."""
  frames = np.asarray(frames)
  chosen = frames[np.linspace(0, len(frames) - 1, min(len(frames), 6)).round().astype(int)]
  palette = Image.fromarray(np.concatenate(chosen)).quantize(colors, dither=Image.Dither.NONE)
  return [Image.fromarray(f).quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]


def _durations(num: int, seconds: float, pause: float) -> list[int]:
  """How long each frame is shown, in milliseconds."""
  # Times in a GIF are hundredths of a second, and browsers do not go below two of them.
  step = max(20, 10 * round(100 * seconds / num))
  return [step] * (num - 1) + [max(step, round(1000 * pause))]


def _even(frames: np.ndarray) -> np.ndarray:
  """Repeats the last row or column where needed: yuv420p has even sides only."""
  height, width = frames.shape[1:3]
  return np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode='edge')


def _run(*command: str, stdin: bytes | None = None) -> subprocess.CompletedProcess:
  return subprocess.run(command, input=stdin, capture_output=True, check=False)
