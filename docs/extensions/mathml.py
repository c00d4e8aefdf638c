"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network.

The numbers of equations are those of the paper: the label `eq-12` has to be on the twelfth.
"""

import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)

# In a group of its own a letter with an accent has its index beside it; docutils puts it below.
_ACCENT = re.compile(r'\\(?:hat|tilde) *(?:\{[^{}]*\}|[A-Za-z])')
# Which docutils takes for a fraction of the number behind it.
_BARE = re.compile(r'\\frac *[^ {]')


def _mathml(node: nodes.Element, block: bool) -> str:
  tex = _ACCENT.sub(lambda accent: f'{{{accent[0]}{{}}}}', node.astext())
  try:
    if _BARE.search(tex):
      raise MathError('write \\frac with braces')
    return latex2mathml.tex2mathml(tex, as_block=block)
  except MathError as error:
    logger.warning('formula %r: %s', tex, error, location=node)
    return ''


def visit_inline(writer, node: nodes.math) -> None:
  writer.body.append(f'<span class="math">{_mathml(node, block=False)}</span>')
  raise nodes.SkipNode


def visit_block(writer, node: nodes.math_block) -> None:
  number = ''
  if node.get('label'):
    if node['label'] != f'eq-{node["number"]}':
      logger.warning('equation %s has the label %s', node['number'], node['label'], location=node)
    number = f'<span class="eqno">({node["number"]})'
    writer.body.append(writer.starttag(node, 'div', CLASS='math'))
    writer.add_permalink_ref(node, 'Link to this equation')
    # The link stands behind the number.
    number += writer.body.pop() + '</span>'
  else:
    writer.body.append(writer.starttag(node, 'div', CLASS='math'))
  writer.body.append(f'<div class="formula">{_mathml(node, block=True)}</div>{number}</div>\n')
  raise nodes.SkipNode


def setup(app) -> dict:
  app.add_html_math_renderer('mathml', (visit_inline, None), (visit_block, None))
  return {'parallel_read_safe': True, 'parallel_write_safe': True}
