"""Web pages that are one file: a template with the style and the scripts of this folder in it."""

import html
import importlib.resources
import json
import re
from collections.abc import Mapping
from typing import Any


def part(name: str) -> str:
  """The text of a file of this folder."""
  return importlib.resources.files(__name__).joinpath(name).read_text('utf-8')


def data(value: Any) -> str:
  """JSON for a script element, which no '</script>' in a string can end."""
  return json.dumps(value, separators=(',', ':'), allow_nan=False).replace('<', '\\u003c')


def text(words: str) -> str:
  """Words as they are to be read, whatever characters they have."""
  return html.escape(words)


def fill(template: str, parts: Mapping[str, str]) -> str:
  """A template of this folder with parts in place of its marks {{name}}.

  A name with a dot is that of a file of this folder.
  """
  return re.sub(
    r'\{\{([\w.]+)\}\}', lambda mark: part(mark[1]) if '.' in mark[1] else parts[mark[1]],
    part(template),
  )  # fmt: skip
