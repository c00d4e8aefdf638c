"""A workdir of a tiny run on color images that are not square; a browser."""

import browser_support
import numpy as np
import pytest

from draw_jax import config as config_lib
from draw_jax.training import loop


@pytest.fixture(scope='session')
def workdir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs')
  images = np.random.default_rng(0).integers(0, 256, (40, 10, 14, 3), np.uint8)
  np.save(folder / 'images.npy', images)
  config = config_lib.default()
  config.data.name, config.data.path = 'images', str(folder / 'images.npy')
  config.model.update(glimpses=3, hidden=8, latent=4, write_size=3)
  config.train.update(batch_size=8, num_steps=2)
  config.eval.update(batch_size=8, images=2)
  config.log.every_steps = 1
  loop.train(config.lock(), str(folder / 'run'))
  return folder / 'run'


@pytest.fixture(scope='session')
def chromium(tmp_path_factory):
  if browser_support.PROGRAM is None:
    pytest.skip('there is no Chromium on the PATH')
  with browser_support.Browser(tmp_path_factory.mktemp('profile')) as running:
    yield running


@pytest.fixture
def browser(chromium):
  """The one browser of all tests, which has no complaints yet."""
  chromium.problems.clear()
  chromium.requests.clear()
  return chromium
