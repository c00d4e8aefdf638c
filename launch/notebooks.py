"""Runs the notebooks and keeps what they show, for those who only read them.

    bash launch/notebooks.sh                  # all, a few minutes each
    bash launch/notebooks.sh shipped_model    # by name

The cell that installs on Colab and the link to Colab are made anew from the `url` in setup.cfg.
A cell that fails leaves its notebook as it was. Needs the extra `notebooks`.
"""

import argparse
import base64
import configparser
import hashlib
import io
import pathlib
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / 'experiments' / 'notebooks'
TAG = 'set-up'  # of the two cells that are written here

WORDS = """## Set-up

{link}On Colab the next cell installs the library; if it then asks you to restart the session, do so
and go on. Anywhere else the cell does nothing: install first, by `{command}`{where}."""
CODE = """import importlib.util
import sys

if 'google.colab' in sys.modules and importlib.util.find_spec('draw_jax') is None:
  %pip install --quiet "{package}\""""
# A notebook that is only read has no use for sliders.
BEFORE = "import sys; sys.modules['ipywidgets'] = None"


def address() -> str:
  """Where the repository is, as setup.cfg says; '' while it is published nowhere."""
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg', encoding='utf-8')
  return config.get('metadata', 'url', fallback='').strip().removesuffix('/').removesuffix('.git')


def set_up(name: str, url: str) -> tuple[str, str]:
  """The text and the code of the set-up in the notebook of this name."""
  package = f'draw_jax[digits] @ git+{url}' if url else 'draw_jax[digits]'
  command = f"pip install '{package}'" if url else "pip install -e '.[digits]'"
  host, _, repository = url.partition('github.com/')
  link = ''
  if host and repository:
    colab = f'https://colab.research.google.com/github/{repository}/blob/main'
    link = f'[Open this notebook in Colab]({colab}/experiments/notebooks/{name}.ipynb)\n\n'
  where = '' if url else ' in the\ncheckout'
  return WORDS.format(link=link, command=command, where=where), CODE.format(package=package)


def digest(cells: Iterable[Mapping[str, Any]]) -> str:
  """Of all code, by which outputs are known to be those of the cells above them."""
  code = [''.join(cell['source']) for cell in cells if cell['cell_type'] == 'code']
  return hashlib.sha256('\0'.join(code).encode()).hexdigest()


def refresh(path: pathlib.Path, url: str) -> None:
  """Writes a notebook anew, with the outputs of its cells."""
  import nbclient
  import nbformat

  notebook = nbformat.read(path, as_version=4)
  tagged = [cell for cell in notebook.cells if TAG in cell.metadata.get('tags', ())]
  for cell, source in zip(tagged, set_up(path.stem, url), strict=True):
    cell.source = source
  hidden = nbformat.v4.new_code_cell(BEFORE)
  notebook.cells.insert(0, hidden)
  resources = {'metadata': {'path': str(path.parent)}}
  client = nbclient.NotebookClient(
    notebook,
    kernel_name='python3',
    resources=resources,
    timeout=None,
    startup_timeout=600,
    record_timing=False,
  )
  client.execute()
  notebook.cells.remove(hidden)
  for count, cell in enumerate((c for c in notebook.cells if c.cell_type == 'code'), start=1):
    cell.execution_count = count
    cell.outputs = [_kept(output, count) for output in cell.outputs]
  notebook.metadata = {
    'kernelspec': {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'},
    'language_info': {'name': 'python'},
    'outputs_of': digest(notebook.cells),
  }
  nbformat.validate(notebook)
  nbformat.write(notebook, path)


def _kept(output, count: int):
  """What is kept of an output: nothing of this machine."""
  if output.get('name') == 'stderr':
    raise SystemExit(f'cell {count} says on stderr: {output.text}')
  if output.output_type == 'execute_result':
    output.execution_count = count
  data = output.get('data', {})
  if 'text/plain' in data:
    data['text/plain'] = re.sub(r' at 0x[0-9a-f]+', '', data['text/plain'])
  if 'image/png' in data:
    data['image/png'] = _small(data['image/png'])
    data.pop('image/jpeg', None)  # the same once more, of some versions of Pillow
  return output


def _small(png: str) -> str:
  """The same picture in few colors, if that makes it smaller."""
  before = base64.b64decode(png)
  with Image.open(io.BytesIO(before)) as image:
    # Transparency would be lost; figures and grids of images have none that is seen.
    reduced = image.convert('RGB').quantize(64, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    reduced.save(buffer, format='PNG', optimize=True)
  after = min(before, buffer.getvalue(), key=len)
  return base64.b64encode(after).decode()


def main() -> None:
  names = sorted(path.stem for path in FOLDER.glob('*.ipynb'))
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(names)}; else all')
  chosen = parser.parse_args().names or names
  if unknown := sorted(set(chosen) - set(names)):
    parser.error(f'no notebook {unknown[0]}: there are {", ".join(names)}')
  for name in chosen:
    path, began = FOLDER / f'{name}.ipynb', time.monotonic()
    print(f'{name} ...', flush=True)
    refresh(path, address())
    print(f'  {path.stat().st_size / 1000:.0f} kB after {time.monotonic() - began:.0f} s')


if __name__ == '__main__':
  main()
