"""What autodoc makes of this package's docstrings, comments and types.

The fields of a class are explained by comments, above or behind them; here those become their
documentation, and what a field of a config accepts is added to it. The types of arrays are shown as
they are written, with shapes and without what `Array` stands for.
"""

import ast
import dataclasses
import importlib
import re

from sphinx.pycode import ModuleAnalyzer

MODULES = (
  'draw_jax.attention',
  'draw_jax.completion',
  'draw_jax.config',
  'draw_jax.data.images',
  'draw_jax.data.registry',
  'draw_jax.discretized_logistic',
  'draw_jax.distributions',
  'draw_jax.methods',
  'draw_jax.models.class_conditional',
  'draw_jax.models.convnet',
  'draw_jax.models.convolutional_draw',
  'draw_jax.models.dependent_latents',
  'draw_jax.models.differentiable_ram',
  'draw_jax.models.draw',
  'draw_jax.models.initialization',
  'draw_jax.models.ram',
  'draw_jax.tasks.base',
  'draw_jax.training.optimizer',
  'draw_jax.trained',
)

# A field of a class with the lines of comment above it.
_FIELD = re.compile(r'^((?:  # .*\n)*)(  [a-z]\w*: .*\n)', re.M)
_BACKTICKS = re.compile(r'(?<!`)`([^`\n]+)`(?!`)')


class Shown:
  """A type that is shown as these words."""

  def __init__(self, words: str):
    self.words = words

  def __call__(self) -> None:
    """For typing.get_type_hints, which takes only what can be called for a type."""

  def __repr__(self) -> str:
    return self.words


def analyze(app, env, names) -> None:
  """Before pages are read: all modules of the package as autodoc is to see them."""
  del app, env, names
  for name in MODULES:
    module = importlib.import_module(name)
    with open(module.__file__, encoding='utf-8') as file:
      source = file.read()
    ModuleAnalyzer.cache['module', name] = ModuleAnalyzer.for_string(with_fields(source), name)
    tree = ast.parse(source)
    show_types_as_written(module, _Aliases(tree).visit(tree))


def with_fields(source: str) -> str:
  """Source in which the comments of the fields of classes are those that Sphinx reads."""

  def document(match: re.Match) -> str:
    above, field = match.groups()
    return above.replace('  # ', '  #: ') + field.replace('  # ', '  #: ')

  return _FIELD.sub(document, source)


class _Aliases(ast.NodeTransformer):
  """Puts what the names of types in a module stand for in their place, but for `Array` itself."""

  def __init__(self, module: ast.Module):
    self.found = {
      node.targets[0].id: node.value
      for node in module.body
      if isinstance(node, ast.Assign)
      and isinstance(node.targets[0], ast.Name)
      and node.targets[0].id != 'Array'
      and _is_array(node.value)
      and isinstance(node.value, ast.Subscript)
    }

  def visit_Name(self, node: ast.Name) -> ast.expr:
    return self.visit(self.found[node.id]) if node.id in self.found else node


def show_types_as_written(owner, tree: ast.Module | ast.ClassDef) -> None:
  """Replaces the annotations of arrays in a module or class, and in the classes in it."""
  for node in tree.body:
    if isinstance(node, ast.ClassDef):
      show_types_as_written(getattr(owner, node.name), node)
    elif isinstance(node, ast.AnnAssign) and _is_array(node.annotation):
      owner.__annotations__[node.target.id] = Shown(ast.unparse(node.annotation))
    elif isinstance(node, ast.FunctionDef):
      function = owner.__dict__[node.name]
      function = getattr(function, 'fget', None) or getattr(function, 'func', None) or function
      arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
      found = {one.arg: one.annotation for one in arguments} | {'return': node.returns}
      for name, annotation in found.items():
        if annotation is not None and _is_array(annotation):
          function.__annotations__[name] = Shown(ast.unparse(annotation))


def _is_array(annotation: ast.expr) -> bool:
  return any(isinstance(node, ast.Name) and node.id == 'Array' for node in ast.walk(annotation))


def leave_out_fields(app, what, name, obj, options, signature, returned):
  """The signature of a class is left out where all of it is told again, field by field."""
  del app, name, options, returned
  fields = dataclasses.is_dataclass(obj) or hasattr(obj, '_fields')
  return ('', '') if what == 'class' and fields else None


def as_restructured_text(app, what, name, obj, options, lines) -> None:
  """An indented block is shown as it is, and so is code that is no name."""
  del app, name, obj, options
  if what in ('attribute', 'property'):
    # Napoleon, which comes next, would take what is before a colon for a type.
    _comments[:] = lines
    lines[:] = []
    return
  changed, in_section = [], False
  for i, line in enumerate(lines):
    before = next((one for one in reversed(lines[:i]) if one.strip()), '')
    in_section = in_section or bool(re.match(r'(Args|Returns|Attributes):$', line))
    first = line.startswith('    ') and not lines[i - 1].strip() and not before.startswith('  ')
    if first and not in_section:
      changed += ['::', '']
    changed.append(_literal(line))
  lines[:] = changed


def _literal(line: str) -> str:
  """What is in single backticks and is no name becomes code; names may become links."""

  def code(match: re.Match) -> str:
    return match[0] if re.fullmatch(r'[A-Za-z_][\w.]*', match[1]) else f'``{match[1]}``'

  return _BACKTICKS.sub(code, line)


_comments: list[str] = []


def finish_attribute(app, what, name, obj, options, lines) -> None:
  """The comment of a field, and what it accepts."""
  del app, obj, options
  if what not in ('attribute', 'property'):
    return
  # A letter and a period would begin a list.
  lines[:] = [re.sub(r'^([A-Z])\. ', r'\\\1. ', _literal(line)) for line in _comments]
  path, _, field = name.rpartition('.')
  module, _, owner = path.rpartition('.')
  declared = getattr(importlib.import_module(module), owner, None)
  if dataclasses.is_dataclass(declared):
    lines += ['', *accepted(declared, field), '']


def accepted(declared: type, name: str) -> list[str]:
  """Lines on what a field of a config is, as a flag says it, and on what it accepts."""
  metadata = {one.name: one.metadata for one in dataclasses.fields(declared)}.get(name, {})
  bounds, choices, _ = metadata.get('checks', ({}, None, None))
  words = [metadata['help']] if metadata.get('help') else []
  if choices is not None:
    words.append('One of ' + ', '.join(f'``{choice}``' for choice in choices) + '.')
  if bounds:
    limits = ' and '.join(f'{word} {bound:,}' for word, bound in bounds.items())
    words.append(limits.capitalize() + '.')
  return words


def setup(app) -> dict:
  app.connect('env-before-read-docs', analyze)
  app.connect('autodoc-process-signature', leave_out_fields)
  # Napoleon, between them, has 500.
  app.connect('autodoc-process-docstring', as_restructured_text, priority=400)
  app.connect('autodoc-process-docstring', finish_attribute, priority=600)
  return {'parallel_read_safe': True, 'parallel_write_safe': True}
