"""Every figure by its name: what a run has to give for it, and the files that come of it."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable

import numpy as np
import tqdm

from draw_jax import files, memory
from draw_jax.data import images as own_images
from draw_jax.data import registry
from draw_jax.errors import UserError
from draw_jax.figures import animation, curves, explain, neighbors, page, passes, player, sequences
from draw_jax.trained import TrainedModel
from draw_jax.training import run_log
from draw_jax.training import workdir as workdir_lib

_COLUMNS = 10  # of the grid of samples
_BETWEEN = 9  # images of an interpolation


@dataclasses.dataclass(frozen=True)
class FigureOptions:
  """What the user can choose.

  Attributes:
    output: the folder for all files.
    num: examples, or rows, of a figure.
    seed: of all randomness.
    binary: show images drawn from the pixels' distributions, not their means.
    npz: also write the arrays.
    image: an image file for the figures that explain attention; None takes one
      of the run's.
    compare: workdirs of further runs for the curves.
  """

  output: pathlib.Path
  num: int = 8
  seed: int = 0
  binary: bool = False
  npz: bool = False
  image: str | None = None
  compare: tuple[str, ...] = ()


def make_sequences(trained: TrainedModel, options: FigureOptions) -> None:
  """Figs. 1, 7 and 10."""
  drawing = _generate(trained, options)
  page.save(
    sequences.sequences(drawing.images, drawing.write, trained.model.write_size),
    options.output / 'sequences',
  )
  _save_arrays(options, 'sequences', drawing)


def make_samples(trained: TrainedModel, options: FigureOptions) -> None:
  """Figs. 6, 8, 9 and 12; without neighbors where the training set is not at hand."""
  trained.task.check_draws()
  num = options.num * _COLUMNS
  memory.check(4 * num * math.prod(trained.image_shape), f'--num={options.num}')
  images = passes.generate(
    trained.model,
    trained.params,
    num,
    options.seed,
    trace=False,
    binary=options.binary,
    given=trained.task.chosen(num, None),
  ).images[0]
  beside = images[_COLUMNS - 1 :: _COLUMNS]
  arrays = {'images': images}
  try:
    chunks = trained.training_images()
    bar = tqdm.tqdm(chunks, 'searching neighbors', unit='chunk', disable=None)
    index, distance, found = neighbors.nearest(beside, bar)
    arrays |= {'nearest': found, 'nearest_index': index, 'nearest_distance': distance}
  except UserError as error:
    print(f'samples: without nearest neighbors. {error}')
    found = None
  page.save(neighbors.samples(images, _COLUMNS, found), options.output / 'samples')
  if options.npz:
    save_npz(options.output / 'samples.npz', **arrays)


def make_filters(trained: TrainedModel, options: FigureOptions) -> None:
  """Fig. 3."""
  page.save(explain.explainer(_image(trained, options)), options.output / 'filters')


def make_zooming(trained: TrainedModel, options: FigureOptions) -> None:
  """Fig. 4."""
  page.save(explain.zooming(_image(trained, options)), options.output / 'zooming')


def make_curves(trained: TrainedModel, options: FigureOptions) -> None:
  """Fig. 11."""
  metric, label = trained.task.metric, trained.task.metric_label(trained.binarization)
  if not trained.curve:
    raise UserError(
      f'{trained.name} has no learning curve: give a --workdir whose metrics.jsonl has rows, or a '
      'file of its model that has one.'
    )
  rows = {trained.name: trained.curve}
  for workdir in map(files.place, options.compare):
    found = run_log.read(workdir)
    if not found:
      raise UserError(f'{workdir / "metrics.jsonl"} is not there or has no rows yet.')
    if not any(metric in row for row in found):
      raise UserError(f'{workdir} has no {metric} to compare: it holds a model of another kind.')
    other = workdir_lib.read_config(workdir).data
    there = other.name, registry.find(other.name).binarization(other.binarization)
    here = trained.config.data.name, trained.binarization
    if there != here:
      raise UserError(
        f'{workdir} was trained on {there[0]} with binarization {there[1]}, {trained.name} on '
        f'{here[0]} with {here[1]}: their costs do not compare.'
      )
    rows[_unused(files.name(workdir), rows)] = found
  page.save(curves.curves(rows, metric, label), options.output / 'curves')


def make_reconstructions(trained: TrainedModel, options: FigureOptions) -> None:
  """Reading beside writing, and the KL of each step."""
  targets, drawing = _reconstruct(trained, options)
  sizes = (trained.model.read_size, trained.model.write_size)
  figure = sequences.reconstructions(
    targets, drawing.images, drawing.kl, drawing.read, drawing.write, sizes
  )
  page.save(figure, options.output / 'reconstructions')
  _save_arrays(options, 'reconstructions', drawing, targets=targets)


def make_interpolation(trained: TrainedModel, options: FigureOptions) -> None:
  """Ways between images through the latents."""
  trained.task.check_draws()
  ends, given = trained.held_out(2 * options.num, options.seed)
  first, last = np.split(ends, 2)
  ways = passes.interpolate(
    trained.model,
    trained.params,
    first,
    last,
    _BETWEEN,
    options.seed,
    binary=options.binary,
    given=given,
  )
  page.save(sequences.interpolation(first, ways, last), options.output / 'interpolation')
  if options.npz:
    save_npz(options.output / 'interpolation.npz', first=first, ways=ways, last=last)


def make_animations(trained: TrainedModel, options: FigureOptions) -> None:
  """The drawing of samples and of reconstructions."""
  drawing = _generate(trained, options)
  frames = animation.drawing_frames(drawing.images, drawing.write, trained.model.write_size)
  save_animation(options.output / 'drawing', frames)
  targets, drawing = _reconstruct(trained, options)
  frames = animation.reconstruction_frames(
    targets,
    drawing.images,
    drawing.read,
    drawing.write,
    (trained.model.read_size, trained.model.write_size),
  )
  save_animation(options.output / 'reconstruction', frames)


def make_player(trained: TrainedModel, options: FigureOptions) -> None:
  """The web page; without reconstructions where the data are not at hand."""
  drawing = _generate(trained, options)
  size = trained.model.write_size
  parts = [player.Section('Drawn from the prior', drawing.images, drawing.write, size)]
  try:
    targets, drawing = _reconstruct(trained, options)
    parts.append(
      player.Section(
        'Reconstructions: read in green, written in red, KL of each step',
        drawing.images,
        drawing.write,
        size,
        drawing.read,
        trained.model.read_size,
        targets,
        drawing.kl,
      )
    )
  except UserError as error:
    print(f'player: without reconstructions. {error}')
  player.save(options.output / 'player.html', f'DRAW: {trained.name}', parts)


def make_glimpses(trained: TrainedModel, options: FigureOptions) -> None:
  """Fig. 5."""
  trained.task.check_looks()
  images = trained.held_out_images(options.num, options.seed)
  looking = passes.look(trained.model, trained.params, images)
  figure = sequences.glimpses(images, looking.window, trained.model.read_size)
  page.save(figure, options.output / 'glimpses')
  if options.npz:
    window = {f'read_{field}': a for field, a in looking.window._asdict().items()}
    save_npz(options.output / 'glimpses.npz', images=images, glimpses=looking.glimpse, **window)


FIGURES: dict[str, Callable[[TrainedModel, FigureOptions], None]] = {
  'sequences': make_sequences,
  'samples': make_samples,
  'filters': make_filters,
  'zooming': make_zooming,
  'glimpses': make_glimpses,
  'curves': make_curves,
  'reconstructions': make_reconstructions,
  'interpolation': make_interpolation,
  'animations': make_animations,
  'player': make_player,
}


# The paper's figures: the shipped model that each is made from, and the figure.
PAPER = {
  1: ('mnist', 'sequences'),
  3: ('mnist', 'filters'),
  4: ('mnist', 'zooming'),
  5: ('cluttered_mnist', 'glimpses'),
  6: ('mnist', 'samples'),
  7: ('mnist_no_attention', 'sequences'),
  8: ('two_digit_mnist', 'samples'),
  9: ('svhn', 'samples'),
  10: ('svhn', 'sequences'),
  11: ('svhn', 'curves'),
  12: ('cifar10', 'samples'),
}


def choose(names: list[str]) -> list[str]:
  """The figures asked for: some by name, or all."""
  if 'all' in names:
    return list(FIGURES)
  for name in names or ['']:
    if name not in FIGURES:
      raise UserError(f'--figure={name} is not known: give all, or some of {", ".join(FIGURES)}.')
  return names


def save_animation(stem: pathlib.Path, frames: np.ndarray) -> None:
  """Writes `stem`.gif and, where an encoder is there, `stem`.mp4 and `stem`.webm."""
  animation.save_gif(stem.with_suffix('.gif'), frames)
  if animation.find_ffmpeg() is None:
    _say_once('films are left out: there is no ffmpeg on the PATH, and no imageio-ffmpeg.')
    return
  for suffix in ('.mp4', '.webm'):
    if reason := animation.save_film(stem.with_suffix(suffix), frames):
      print(reason)


@functools.cache
def _say_once(words: str) -> None:
  print(words)


def save_npz(path: pathlib.Path, **arrays) -> None:
  """Writes arrays by name, compressed; those that are None are left out."""
  with files.writing(path) as temporary:
    np.savez_compressed(temporary, **{k: v for k, v in arrays.items() if v is not None})


def _save_arrays(options: FigureOptions, name: str, drawing: passes.Drawing, **more) -> None:
  if not options.npz:
    return
  for kind in ('write', 'read'):
    if (window := getattr(drawing, kind)) is not None:
      more |= {f'{kind}_{field}': a for field, a in window._asdict().items()}
  save_npz(options.output / f'{name}.npz', images=drawing.images, kl=drawing.kl, **more)


def _generate(trained: TrainedModel, options: FigureOptions) -> passes.Drawing:
  trained.task.check_draws()
  _check_memory(trained, options)
  return passes.generate(
    trained.model,
    trained.params,
    options.num,
    options.seed,
    binary=options.binary,
    given=trained.task.chosen(options.num, None),
  )


def _reconstruct(
  trained: TrainedModel, options: FigureOptions
) -> tuple[np.ndarray, passes.Drawing]:
  trained.task.check_draws()
  _check_memory(trained, options)
  targets, given = trained.held_out(options.num, options.seed)
  drawing = passes.reconstruct(
    trained.model, trained.params, targets, options.seed, binary=options.binary, given=given
  )
  return targets, drawing


def _check_memory(trained: TrainedModel, options: FigureOptions) -> None:
  one = 4 * trained.glimpses * math.prod(trained.image_shape)  # all canvases of a drawing
  memory.check(options.num * one, f'--num={options.num}')


def _image(trained: TrainedModel, options: FigureOptions) -> np.ndarray:
  """The image [H, W, C] on which attention is explained."""
  if options.image is None:
    return trained.held_out_images(1, options.seed)[0]
  try:
    image = own_images.open_image(options.image).convert('RGB')
    # A print of 12 x 12 filters shows more on a small image.
    image.thumbnail((100, 100))
    return np.asarray(image)
  except own_images.UNREADABLE as error:
    raise UserError(f'--image={options.image} cannot be read as an image: {error}') from error


def _unused(name: str, taken) -> str:
  """The name, or with a number where it is taken."""
  number = sum(other == name or other.startswith(f'{name} (') for other in taken)
  return f'{name} ({number + 1})' if number else name
