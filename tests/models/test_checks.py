"""Arguments that cannot work get one sentence, and compiled programs do not look at values."""

import functools

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import draw_jax
from draw_jax import attention
from draw_jax.errors import UserError
from draw_jax.models.convnet import Convnet
from draw_jax.models.differentiable_ram import DifferentiableRAM
from draw_jax.models.ram import RAM

SHAPE = (8, 6, 1)
KEY = jax.random.key(0)
X = np.linspace(0, 1, 4 * 48, dtype=np.float32).reshape(4, *SHAPE)
MODEL = draw_jax.DRAW(SHAPE, glimpses=2, hidden=4, latent=3, read_size=2, write_size=3)
SHAPES = jax.eval_shape(MODEL.init, KEY, X, KEY)['params']
PARAMS = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), SHAPES)


@pytest.fixture(autouse=True)
def as_users_have_it():
  """Without the check of annotated shapes, which only the tests turn on."""
  jaxtyping.config.update('jaxtyping_disable', True)
  yield
  jaxtyping.config.update('jaxtyping_disable', False)


def apply(*args, **kwargs):
  """As where it is compiled, but for values: only shapes are computed."""
  return jax.eval_shape(functools.partial(MODEL.apply, {'params': PARAMS}, *args, **kwargs))


def refused(words: str, function, *args, **kwargs):
  with pytest.raises(ValueError) as caught:
    function(*args, **kwargs)
  assert type(caught.value) is UserError
  assert words in str(caught.value) and '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'words,arguments',
  [
    ('image_shape=(28, 28) must be (height, width, channels)', {'image_shape': (28, 28)}),
    ('image_shape=28 must be', {'image_shape': 28}),
    ('image_shape=(8, 0, 1) must be', {'image_shape': (8, 0, 1)}),
    ('image_shape=(8.5, 8, 1) must be', {'image_shape': (8.5, 8, 1)}),
    ('hidden=-1 must be a number at least 1', {'hidden': -1}),
    ('glimpses=0 must be a number at least 1', {'glimpses': 0}),
    ('latent=2.5 must be a whole number', {'latent': 2.5}),
    ('latent=None must be a whole number', {'latent': None}),
    ('read_size=7 is larger than the images, 8 x 6', {'read_size': 7}),
    ("output='bernouli' is not known: did you mean 'bernoulli'?", {'output': 'bernouli'}),
    ("remat='all' is not known", {'remat': 'all'}),
    ("dtype='bfloat' is not known: did you mean 'bfloat16'?", {'dtype': 'bfloat'}),
    (
      'initialization.read_sigma=0 must be a number above 0',
      {'initialization': draw_jax.Initialization(read_sigma=0)},
    ),
  ],
)
def test_arguments_of_draw(words, arguments):
  refused(words, draw_jax.DRAW, **{'image_shape': SHAPE, **arguments})


@pytest.mark.parametrize('model', [DifferentiableRAM, RAM, Convnet])
def test_arguments_of_classifiers(model):
  refused('hidden=0 must be', model, (100, 100, 1), hidden=0)
  refused('=10 is larger than' if model is Convnet else '=12 is larger', model, (9, 9, 1))
  shapes = jax.eval_shape(model((100, 100, 1)).init, KEY, np.zeros((1, 100, 100, 1), np.float32))
  for x, words in ((np.ones((100, 100, 1)), 'x[None]'), (np.full((1, 100, 100, 1), 9), '9 to 9')):
    refused(words, jax.eval_shape, functools.partial(model((100, 100, 1)).apply, shapes, x))


def test_numbers_of_numpy_and_lists():
  """Equal networks share their compiled programs, so both have to be what Python has."""
  one = draw_jax.DRAW([8, np.int64(6), 1], hidden=np.int32(4), window_limit=np.float32(1))
  other = draw_jax.DRAW((8, 6, 1), hidden=4, window_limit=1.0)
  assert one == other and hash(one) == hash(other)


@pytest.mark.parametrize(
  'words,x',
  [
    ('x is 8 x 6 x 1, and the network takes a batch of images, N x 8 x 6 x 1', X[0]),
    ('One image alone goes in as x[None].', X[0]),
    ('Those without channels go in as x[..., None].', X[..., 0]),
    ('x is 4 x 6 x 8 x 1', X.swapaxes(1, 2)),
    ('x is a list: it must be an array', [X[0], X[1]]),
    ('x has values from 0 to 255: images are in [0, 1], divide bytes by 255.', 255 * X),
    ('x has values from 0 to 255', (255 * X).astype(np.uint8)),
    ('x has values from 0 to 255', jnp.asarray(255 * X)),
    ('x has values from -1 to 1: images are in [0, 1], scale them.', 2 * X - 1),
    ('x has values from nan to nan', X * np.nan),
  ],
)
def test_images(words, x):
  refused(words, apply, x, KEY)


def test_the_rest():
  refused('glimpses=0 must be', apply, X, KEY, glimpses=0)
  refused('num=-1 must be', apply, -1, KEY, method='generate')
  noise = np.zeros((2, 4, 3), np.float32)
  refused('noise is 2 x 3 x 3: it must be glimpses x 4 x 3', apply, X, noise[:, 1:], method='infer')
  refused('latents is 0 x 4 x 3', apply, noise[:0], method='decode')
  refused('latents is 2 x 4 x 2', apply, noise[..., 1:], method='draw')
  refused('x is 4 x 8 x 6: it must end in 8 x 6 x 1', MODEL.log_prob, X, X[..., 0])
  refused('the image is 4 x 8 x 6 x 1: give one', MODEL.start_canvas_at, PARAMS, X)
  refused('the image has values from 0 to 62.7', MODEL.start_canvas_at, PARAMS, 255 * X[0])


def test_compiled_programs_look_at_shapes_alone():
  """The same program for any values: nothing was added to it, and nothing was refused."""

  def loss(x):
    return MODEL.apply({'params': PARAMS}, x, KEY).loss

  refused('x[None]', jax.eval_shape, loss, X[0])
  text = jax.jit(loss).lower(X).as_text()
  assert jax.jit(loss).lower(255 * X).as_text() == text
  assert 'callback' not in text and not jax.make_jaxpr(loss)(X).effects


def test_attention():
  window = attention.window(np.zeros((3, 5), np.float32), 2, 8, 6)
  refused('a window is five numbers', attention.window, np.zeros((3, 4)), 2, 8, 6)
  refused('for 0, 8 and 6', attention.window, np.zeros(5), 0, 8, 6)
  refused('not [8, 6] and [3]', attention.read, X[0, ..., 0], window, 2)
  refused('images must be [..., H, W, C]', attention.read, X, window, 2)
  refused('a patch is square', attention.write, np.zeros((3, 2, 3, 1)), window, 8, 6)
