"""Config fields, declared once in dataclasses: name, default, comment and check of each.

A dataclass beside the code that it configures is turned into a section of an experiment's
config, the section is checked, and turned into the dataclass again.
"""

import dataclasses
import difflib
import math
import numbers
import operator
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ml_collections import config_dict

from draw_jax.errors import UserError

# Of units and glimpses: far more than any memory holds, and few enough to be counted with.
MOST = 100_000

_CHECKS = 'checks'
_HOLDS = {
  'at least': operator.ge,
  'above': operator.gt,
  'at most': operator.le,
  'below': operator.lt,
}


def field(
  default: Any,
  *,
  at_least: float | None = None,
  above: float | None = None,
  at_most: float | None = None,
  below: float | None = None,
  choices: Collection[str] | None = None,
  check: Callable[[Any], str | None] | None = None,
  help: str = '',
) -> Any:
  """A dataclass field with a default and the values that it accepts.

  None is accepted where it is the default or the annotation has it.

  Args:
    default: also gives the type in a config; for None the annotation does.
    at_least: the smallest number.
    above: what numbers must be greater than.
    at_most: the largest number.
    below: what numbers must be less than.
    choices: the accepted names.
    check: value -> how it must be, or None if it is so.
    help: what a flag of this name says of it.
  """
  bounds = {'at least': at_least, 'above': above, 'at most': at_most, 'below': below}
  bounds = {word: bound for word, bound in bounds.items() if bound is not None}
  metadata = {_CHECKS: (bounds, choices, check), 'help': help}
  if isinstance(default, dict):
    return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
  return dataclasses.field(default=default, metadata=metadata)


def section(declared: type) -> config_dict.ConfigDict:
  """A config section with the fields of a dataclass and their defaults."""
  made, hints = config_dict.ConfigDict(), typing.get_type_hints(declared)
  instance = declared()
  for one in dataclasses.fields(declared):
    value = getattr(instance, one.name)
    if value is None:
      value = config_dict.placeholder(_type_besides_none(hints[one.name]))
    elif dataclasses.is_dataclass(value):
      value = section(type(value))
    elif isinstance(value, dict):
      kind = _type_besides_none(typing.get_args(hints[one.name])[1])
      value = config_dict.ConfigDict(
        {
          key: config_dict.placeholder(kind) if inner is None else inner
          for key, inner in value.items()
        }
      )
    made[one.name] = value
  return made


def build(declared: type, values: Mapping[str, Any]) -> Any:
  """The dataclass of a section; fields that the section lacks have their defaults."""
  found = {}
  for one in dataclasses.fields(declared):
    if one.name in values:
      value = values[one.name]
      inner = type(one.default)
      if dataclasses.is_dataclass(inner):
        value = build(inner, value)
      elif isinstance(value, config_dict.ConfigDict):
        value = value.to_dict()
      found[one.name] = value
  return declared(**found)


def check(declared: type, values: Mapping[str, Any], prefix: str = '') -> None:
  """Raises a `UserError` for the first value of a section that its field does not accept."""
  hints = typing.get_type_hints(declared)
  for one in dataclasses.fields(declared):
    if one.name not in values:
      continue
    name, value = prefix + one.name, values[one.name]
    if value is None:
      if one.default is not None and type(None) not in typing.get_args(hints[one.name]):
        raise UserError(f'{name}=None: give a value, or leave it out.')
    elif dataclasses.is_dataclass(one.default):
      check(type(one.default), value, f'{name}.')
    else:
      _check_value(name, value, *one.metadata.get(_CHECKS, ({}, None, None)))


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
  """Raises a `UserError` with the nearest choice unless the value is one of them."""
  if value not in choices:
    near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.5)
    hint = f'did you mean {near[0]!r}? ' if near else ''
    raise UserError(f'{name}={value!r} is not known: {hint}There are {", ".join(choices)}.')


def check_number(name: str, value: Any, bounds: Mapping[str, float]) -> None:
  """Raises a `UserError` unless the value is a finite number within its bounds.

  Args:
    name: of the field.
    value: of any type.
    bounds: by 'at least', 'above', 'at most' and 'below'.
  """
  number = isinstance(value, numbers.Real) and math.isfinite(value)
  if not number or not all(_HOLDS[word](value, bound) for word, bound in bounds.items()):
    words = ' and '.join(f'{word} {bound}' for word, bound in bounds.items())
    raise UserError(f'{name}={value} must be a number {words}.')


def check_arguments(made: Any, prefix: str = '') -> None:
  """Raises a `UserError` for the first field of a dataclass's instance that it does not accept."""
  for one in dataclasses.fields(made):
    name, value = prefix + one.name, getattr(made, one.name)
    if dataclasses.is_dataclass(one.default) and dataclasses.is_dataclass(value):
      check_arguments(value, f'{name}.')
    elif _CHECKS in one.metadata and not (value is None and one.default is None):
      if type(one.default) is int:
        check_whole(name, value)
      _check_value(name, value, *one.metadata[_CHECKS])


def check_whole(name: str, value: Any) -> None:
  """Raises a `UserError` unless the value is a whole number, of Python or NumPy."""
  if not isinstance(value, numbers.Integral) or isinstance(value, bool):
    raise UserError(f'{name}={value!r} must be a whole number.')


def unknown(declared: type, values: Mapping[str, Any]) -> list[str]:
  """The names in a section, at any depth, that its dataclass does not have."""
  own = {one.name: one.default for one in dataclasses.fields(declared)}
  found = [name for name in values if name not in own]
  for name, default in own.items():
    if dataclasses.is_dataclass(default) and values.get(name) is not None:
      found += [f'{name}.{inner}' for inner in unknown(type(default), values[name])]
  return found


def _check_value(name: str, value: Any, bounds: dict, choices, also) -> None:
  if bounds:
    check_number(name, value, bounds)
  if choices is not None:
    check_choice(name, value, choices)
  if also is not None and (problem := also(value)):
    raise UserError(f'{name}={value} {problem}')


def _type_besides_none(hint: Any) -> type:
  kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
  return next(kind for kind in kinds if kind is not type(None))
