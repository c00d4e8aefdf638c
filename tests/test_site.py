"""The documentation site: made without a warning, whole, and readable offline."""

import ast
import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
import urllib.parse
from html import parser

import pytest
from test_package import ROOT

from draw_jax import config as config_lib
from draw_jax.data import registry as datasets
from draw_jax.tasks import registry as models
from draw_jax.training import optimizer

PAGES = sorted((ROOT / 'docs').rglob('*.md'))
# Tries the flags of commands, each in a copy of itself, as importing takes longest.
TRY = """
import json, os, runpy, sys
from draw_jax.figures import gallery
from draw_jax.training import loop

for module, *flags in json.loads(sys.argv[1]):
  if os.fork() == 0:
    sys.argv = [module, *flags, '--only_check_args']
    runpy.run_module(module, run_name='__main__', alter_sys=True)
    os._exit(0)
  if os.wait()[1]:
    sys.exit(f'{module} {flags} failed')
"""


class Links(parser.HTMLParser):
  """What a page names: its anchors, its links, and what it loads by itself."""

  def __init__(self, text: str):
    super().__init__()
    self.anchors, self.links, self.loads = set(), [], []
    self.feed(text)

  def handle_starttag(self, tag, attributes):
    given = dict(attributes)
    if 'id' in given:
      self.anchors.add(given['id'])
    if tag == 'a' and 'href' in given:
      self.links.append(given['href'])
    elif tag == 'link' and given.get('rel') not in ('index', 'search', 'next', 'prev'):
      self.loads.append(given['href'])
    for name in ('src', 'data', 'poster', 'action'):
      if name in given:
        self.loads.append(given[name])
    if 'srcset' in given:
      self.loads += [part.split()[0] for part in given['srcset'].split(',')]
    # The page of a player, in its frame.
    if 'srcdoc' in given:
      self.loads += Links(given['srcdoc']).loads


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """The folder of the site, as launch/docs.sh makes it."""
  for name in ('sphinx', 'furo', 'myst_nb'):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install -e '.[docs]'")
  folder = tmp_path_factory.mktemp('site')
  script = (ROOT / 'launch' / 'docs.sh').read_text().replace('\\\n', '')
  places = r'--doctree-dir \S+ --conf-dir docs \. site'
  (flags,) = re.findall(rf'^python -m sphinx (.*){places}$', script, re.M)
  assert '--fail-on-warning' in flags
  command = [sys.executable, '-m', 'sphinx', *flags.split(), '--doctree-dir', folder / 'doctrees']
  done = subprocess.run(
    [*command, '--conf-dir', 'docs', '.', folder / 'site'],
    cwd=ROOT, env={**os.environ, 'PYTHONPATH': str(ROOT)}, capture_output=True, text=True,
    check=False, timeout=600,
  )  # fmt: skip
  assert (done.returncode, done.stderr) == (0, '')
  return folder / 'site'


@pytest.fixture(scope='module')
def pages(site):
  return {path: Links(path.read_text('utf-8')) for path in site.rglob('*.html')}


def test_links_lead_somewhere(site, pages):
  assert (site / 'index.html') in pages and len(pages) > 20
  broken, seen = [], 0
  for path, page in pages.items():
    for link in page.links:
      address = urllib.parse.urlsplit(link)
      if address.scheme or address.netloc:
        continue
      target = path
      if address.path:
        target = (path.parent / urllib.parse.unquote(address.path)).resolve()
      fragment = urllib.parse.unquote(address.fragment)
      found = target.is_file() and (not fragment or fragment in pages[target].anchors)
      seen += 1
      if not found:
        broken.append((str(path.relative_to(site)), link))
  assert not broken
  assert seen > 1000


def test_nothing_is_loaded_from_another_host(site, pages):
  for path, page in pages.items():
    for address in page.loads:
      parts = urllib.parse.urlsplit(address)
      assert parts.scheme in ('', 'data') and not parts.netloc, (path, address)
      if parts.path and not parts.scheme:
        assert (path.parent / urllib.parse.unquote(parts.path)).is_file(), (path, address)
  for path in (*site.rglob('*.css'), *pages):
    assert not re.search(r'(url\(|@import)\s*["\']?(https?:)?//', path.read_text('utf-8')), path
  assert any(page.loads for page in pages.values())


def test_the_equations_are_those_of_the_paper(site):
  text = (site / 'docs' / 'mathematics.html').read_text('utf-8')
  numbers = [int(number) for number in re.findall(r'class="eqno">\((\d+)\)', text)]
  assert numbers == list(range(1, 30))
  for number in numbers:
    assert f'id="equation-eq-{number}"' in text
  assert text.count('<math') > 60
  # No formula is left as it was typed.
  for path in site.rglob('*.html'):
    assert not re.search(r'\$\$|\\(frac|mathcal|mathrm|tilde|hat)\b', path.read_text('utf-8')), path


def declared() -> list[type]:
  """The dataclasses of all sections of a config."""
  sections = [config_lib.TrainConfig, config_lib.EvalConfig, config_lib.CheckpointConfig]
  sections += [config_lib.LogConfig, config_lib.RunConfig, optimizer.OptimizerConfig]
  return [*sections, datasets.DataConfig, *(entry.config for entry in models.MODELS.values())]


def test_every_field_of_a_config_is_told(site):
  """With what its comment says, and what it accepts."""
  text = (site / 'docs' / 'reference' / 'config.html').read_text('utf-8')
  text = text[text.index('<article') :]
  for section in declared():
    fields = {field.name for field in dataclasses.fields(section)}
    for name in fields & section.__annotations__.keys():  # Inherited ones are told once.
      path = f'{section.__module__}.{section.__qualname__}.{name}'
      found = re.search(rf'<dt [^>]*id="{re.escape(path)}">.*?</dt>\s*<dd>(.*?)</dd>', text, re.S)
      assert found and re.sub('<[^>]+>', '', found[1]).strip(), path
  told = re.search(r'id="draw_jax.models.draw.DrawConfig.remat">.*?<dd>(.*?)</dd>', text, re.S)[1]
  assert 'What the backward pass keeps in memory' in told and 'segments' in told
  names = {one.name for one in dataclasses.fields(datasets.config())}
  assert all(f'.{name}"' in text for name in names & {'path', 'image_size', 'channels'})


def test_the_reference_shows_types_as_they_are_written(site):
  text = (site / 'docs' / 'reference' / 'attention.html').read_text('utf-8')
  text = re.sub('<[^>]+>', '', text[text.index('<article') :])
  assert "window( raw: Float[Array, '*b 5'], size: int" in re.sub(r'\s+', ' ', text)
  assert 'ndarray' not in text


def code(kind: str) -> list[str]:
  """The blocks of a language in the site's own pages."""
  text = '\n'.join(path.read_text('utf-8') for path in PAGES)
  return re.findall(rf'^```{kind}\n(.*?)^```$', text, re.M | re.S)


def test_commands_take_their_flags():
  """Those of the pages; what they do is tried with those of the README."""
  lines = re.sub(r'\\\n\s*', ' ', ''.join(code('sh'))).splitlines()
  commands = [line.split()[2:] for line in lines if line.startswith('python -m draw_jax.')]
  assert len(commands) > 8
  done = subprocess.run(
    [sys.executable, '-c', TRY, json.dumps(commands)],
    cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
  )  # fmt: skip
  assert (done.returncode, done.stderr) == (0, '')


def test_python_in_the_pages_runs():
  blocks = code('python')
  assert len(blocks) >= 2
  for block in blocks:
    names = {}
    exec(compile(ast.parse(block), 'page', 'exec'), names)
    shapes = re.findall(r'^(\w+) = .*# .*?\[(\d[\d, ]+)\]', block, re.M)
    assert shapes
    for name, shape in shapes:
      assert names[name].shape == tuple(map(int, shape.split(',')))


def test_the_modules_of_the_reference_are_all_prepared(monkeypatch):
  """Else the comments of their fields would be left out without a word."""
  pytest.importorskip('sphinx', reason='sphinx is not installed')
  monkeypatch.syspath_prepend(ROOT / 'docs' / 'extensions')
  docstrings = importlib.import_module('docstrings')
  text = '\n'.join(path.read_text('utf-8') for path in PAGES)
  named = set(re.findall(r'automodule:: (\S+)', text))
  named |= {name.rpartition('.')[0] for name in re.findall(r'autoclass:: (\S+)', text)}
  assert named == set(docstrings.MODULES)
