"""The web page, as text and in a browser."""

import json
import re

import numpy as np
import pytest

from draw_jax.attention import Window
from draw_jax.figures import player

STEPS, NUM, HEIGHT, WIDTH = 4, 2, 10, 14

# Plays the user: moves the slider, switches the windows off, and notes what is to be seen.
DRIVER = """(() => {
  const count = (red, green) => [...document.querySelectorAll('.pair canvas')].map(canvas => {
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let hits = 0;
    for (let i = 0; i < data.length; i += 4)
      if ((data[i] > 200) === red && (data[i + 1] > 150) === green && data[i + 2] < 120) hits++;
    return hits;
  });
  const part = name => document.querySelector(`[data-part=${name}]`);
  const slider = part('glimpse'), box = part('windows');
  const seen = {};
  slider.value = 3;
  slider.dispatchEvent(new Event('input'));
  seen.count = part('count').textContent;
  seen.button = part('play').textContent;
  seen.red = count(true, false);
  seen.green = count(false, true);
  seen.captions = [...document.querySelectorAll('figcaption')].map(c => c.textContent);
  box.click();
  seen.redOff = count(true, false);
  part('play').click();
  seen.buttonAgain = part('play').textContent;
  return seen;
})()"""


def window(seed):
  rng = np.random.default_rng(seed)
  x, y, stride = (rng.uniform(3, 5, (STEPS, NUM)) for _ in range(3))
  return Window(x, y, np.ones((STEPS, NUM)), stride, x)


@pytest.fixture
def page():
  images = np.zeros((STEPS, NUM, HEIGHT, WIDTH, 1))
  kl = np.arange(1.0, 1 + STEPS * NUM).reshape(STEPS, NUM)
  sections = [
    player.Section('Drawn', images, window(0), 3),
    player.Section('Again </script>', images, window(1), 3, window(2), 2, images[0], kl),
  ]
  return player.html('Some <b>digits</b>', sections)


def test_asks_for_nothing_but_itself(page):
  assert not re.search(r'https?:|//[a-z]|url\(|@import|<link|<iframe|fetch\(|src="', page)
  assert "default-src 'none'" in page


def test_a_title_cannot_end_the_data(page):
  assert page.count('</script>') == 3
  assert '<b>' not in page


def test_holds_every_frame_window_and_kl(page):
  data = json.loads(re.search(r'application/json">(.*?)</script>', page, re.S).group(1))
  drawn, again = data['sections']
  assert drawn['steps'] == STEPS and len(drawn['frames']) == NUM
  assert np.shape(drawn['write']['windows']) == (NUM, STEPS, 4) and drawn['read'] is None
  assert np.shape(again['read']['windows']) == (NUM, STEPS, 4) and again['read']['size'] == 2
  assert again['kl'] == [[1, 3, 5, 7], [2, 4, 6, 8]] and again['klMax'] == 8
  assert len(again['targets']) == NUM


def test_saves_the_page(tmp_path, page):
  player.save(tmp_path / 'a.html', 'x', [])
  assert (tmp_path / 'a.html').read_text().startswith('<!DOCTYPE html>')


def test_works_in_a_browser(browser, tmp_path, page):
  (tmp_path / 'page.html').write_text(page)
  browser.open((tmp_path / 'page.html').as_uri(), 'document.body.dataset.ready')
  seen = browser.evaluate(DRIVER)
  assert seen['count'] == 'glimpse 3 of 4'
  assert (seen['button'], seen['buttonAgain']) == ('Play', 'Pause')
  # Canvases: two drawn, then target and drawing twice.
  assert [hits > 0 for hits in seen['red']] == [True, True, False, True, False, True]
  assert [hits > 0 for hits in seen['green']] == [False, False, True, False, True, False]
  assert seen['redOff'] == [0] * 6
  assert seen['captions'] == ['KL 9.0 of 16.0 nats', 'KL 12.0 of 20.0 nats']
  # Reading pixels is the test's doing.
  assert [words for words in browser.problems if 'getImageData' not in words] == []
