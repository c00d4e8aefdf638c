"""The engine of the web pages in Node, against the equations and against the networks."""

import base64
import json
import pathlib
import shutil
import subprocess

import jax
import numpy as np
import pytest
import reference
from model_support import CASES, D, T, Z, build, compiled, infer, inputs, paper, random_params
from reference import assert_close

from draw_jax import distributions
from draw_jax.errors import UserError
from draw_jax.figures import weights
from draw_jax.models.dependent_latents import DependentLatents

NODE = shutil.which('node')
TOLERANCE = 1e-10  # both sides compute in float64
FROM_ONE = np.array([1, 1, 0, 0, 0])  # the paper counts pixels from 1
HALVES = np.arange(2**16, dtype='<u2').view('<f2')
HALVES = HALVES[np.isfinite(HALVES)]

pytestmark = pytest.mark.skipif(NODE is None, reason='there is no Node on the PATH')


def dependent(case, **more):
  return DependentLatents(glimpses=T, hidden=D, latent=Z, param_dtype='float64', **CASES[case])


def mixture(case):
  return build(case, 'float64', output='discretized_logistic', components=3)


MODELS = {case: lambda case=case: build(case, 'float64') for case in CASES}
MODELS |= {f'{case}, dependent latents': lambda case=case: dependent(case)
           for case in ('oblong', 'whole color')}  # fmt: skip
MODELS['color, 256 values'] = lambda: mixture('color')
# Beside usual ones, filters far outside and so narrow that every weight but one vanishes.
FILTERBANKS = [(2.3, 1.7, 0.8, 3, 7), (-400.0, 5.0, 1e-5, 4, 6), (90.0, 0.0, 1e5, 1, 5)]
NOISE = [(3, 4, 5, 2, 0), (3, 4, 2, 2, 1), (4, 2, 1, 2, 0), (0, 2, 5000, 4, 0)]


def packed(name, params):
  """As in a page; of one case in the type of those that are too large for 16 bits."""
  if name == 'one filter':
    return jax.tree.map(lambda a: np.asarray(a, np.float32), params)
  return weights.rounded(params)


def in_float64(params):
  return jax.tree.map(lambda a: np.asarray(a, np.float64), params)


@pytest.fixture(scope='module')
def engine():
  """What the engine gives, from one start of Node."""
  cases = []
  with jax.enable_x64(True):
    for name, make in MODELS.items():
      model = make()
      x, noise = inputs(model)
      cases.append({
        'network': weights.describe(model, packed(name, random_params(model))),
        'images': x.ravel().tolist(),
        'noise': noise.ravel().tolist(),
        'num': len(x),
      })  # fmt: skip
  folder = pathlib.Path(__file__).parent
  web = pathlib.Path(weights.__file__).parent / 'web'
  done = subprocess.run(
    [NODE, *map(str, (folder / 'run_engine.js', web / 'outputs.js', web / 'engine.js'))],
    input=json.dumps({
      'cases': cases,
      'filterbanks': FILTERBANKS,
      'noise': NOISE,
      'halves': base64.b64encode(HALVES.tobytes()).decode(),
    }),
    capture_output=True, text=True, timeout=60, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  found['cases'] = dict(zip(MODELS, found['cases'], strict=True))
  return found


def expected_of(model, params, x, noise) -> dict:
  if isinstance(model, DependentLatents) or model.output != 'bernoulli':
    with jax.enable_x64(True):
      passed = infer(model, params, x, noise)
      _, trace = compiled(model, 'draw', True)({'params': params}, noise)
      write = trace.write and paper(trace.write)
      return passed | {'drawn': trace.canvas, 'drawn_write': write}
  passed = reference.batch(reference.infer_one, model, params, x, noise)
  drawn = reference.batch(reference.decode_one, model, params, noise)
  return passed | {'drawn': drawn['canvases'], 'drawn_write': drawn.get('write')}


@pytest.mark.parametrize('name', MODELS)
def test_agrees_with_python(engine, name):
  """Every glimpse of a pass and of a drawing, for the very same rounded weights."""
  found = engine['cases'][name]
  with jax.enable_x64(True):
    model = MODELS[name]()
    params = in_float64(packed(name, random_params(model)))
    x, noise = inputs(model)
    expected = expected_of(model, params, x, noise)
  for field in ('canvases', 'kl', 'latents', 'reconstruction', 'drawn'):
    wanted = np.asarray(expected[field])
    assert_close(np.reshape(found[field], wanted.shape), wanted, TOLERANCE)
  with jax.enable_x64(True):
    means = np.asarray(model.mean(expected['canvases']))
  assert_close(np.reshape(found['means'], means.shape), means, TOLERANCE)
  for field in ('read', 'write', 'drawn_write'):
    if not model.attention:
      assert found[field] is None
      continue
    windows = np.reshape(found[field], (T, -1, 5)) + FROM_ONE
    assert_close(windows, expected[field], TOLERANCE)


def test_all_numbers_of_16_bits(engine):
  np.testing.assert_array_equal(engine['halves'], HALVES.astype(float))


def test_filterbanks_at_extremes(engine):
  for (center, stride, variance, size, length), bank in zip(
    FILTERBANKS, engine['filterbanks'], strict=True
  ):
    expected = reference.exact_filterbank(
      *map(reference.decimal.Decimal, (center + 1, stride, variance)), size, length
    )
    assert_close(np.reshape(bank, (size, length)), expected, TOLERANCE)


def test_noise_is_normal_and_of_each_example(engine):
  first, again, other, many = (
    np.reshape(noise, shape[1:4]) for noise, shape in zip(engine['noise'], NOISE, strict=True)
  )
  np.testing.assert_array_equal(first[:, 1:3], again)
  assert not np.isin(other, first).any()
  count = many.size
  assert abs(many.mean()) < 4 / count**0.5 and abs(many.var() - 1) < 4 * (2 / count) ** 0.5
  assert abs((many**4).mean() - 3) < 4 * (96 / count) ** 0.5
  # The first numbers of neighboring streams are the least mixed.
  pairs = (many[1:] * many[:-1], many[:, 1:] * many[:, :-1], many[..., 1:] * many[..., :-1])
  for products in pairs:
    assert abs(products.mean()) < 4 / products.size**0.5


def test_numbers_too_large_for_16_bits_are_kept():
  small, large = {'a': np.float32([1 / 3])}, {'a': np.float32([1e6])}
  assert weights.rounded(small)['a'].dtype == np.float16
  assert weights.rounded(large)['a'] == 1e6


def test_a_network_that_the_engine_does_not_know_is_one_message(monkeypatch):
  model = build()
  params = random_params(model)
  with pytest.raises(UserError, match='not known to the web page: prior'):
    weights.check(model, {**params, 'prior': params['write']})
  monkeypatch.setitem(distributions.OUTPUTS, 'gaussian', distributions.OUTPUTS['bernoulli'])
  with pytest.raises(UserError, match='output=gaussian is not known to the web page'):
    weights.check(build(output='gaussian'), params)
