"""Fields that older versions called otherwise; what these wrote is read by today's names."""

from collections.abc import Mapping
from typing import Any

# Of configs, 'section.field'.
CONFIG = {
  'model.steps': 'model.glimpses',
  'model.start': 'model.initialization',
  'optimizer.beta1': 'optimizer.arguments.b1',
  'optimizer.beta2': 'optimizer.arguments.b2',
  'optimizer.weight_decay': 'optimizer.arguments.weight_decay',
  'eval.pictures': 'eval.images',
}
# Of checkpoints, model files and rows of metrics.jsonl.
RECORDS = {'steps': 'glimpses', 'trained_steps': 'trained_glimpses'}
# In configs of before they could say so.
_ADDED = {'optimizer.name': 'adamw'}
# That were called otherwise, or written out where None is the default, in configs with older names
# of fields; today's may have both.
_VALUES = {
  'model.dtype': {'float32': None},
  'optimizer.arguments.b1': {0.9: None},
  'optimizer.arguments.b2': {0.999: None},
  'optimizer.arguments.weight_decay': {0.0: None},
}


def config(fields: Mapping[str, Any]) -> dict[str, Any]:
  """A config's fields by today's names; those of today stay as they are."""
  fields, is_older = _copied(fields), False
  for old, new in CONFIG.items():
    *sections, name = old.split('.')
    section = _find(fields, sections)
    if section is not None and name in section:
      _put(fields, new, section.pop(name))
      is_older = True
  for name, value in _ADDED.items():
    if _find(fields, name.split('.')[:-1]) is not None and _find(fields, name.split('.')) is None:
      _put(fields, name, value)
  for name, values in _VALUES.items() if is_older else ():
    if (value := _find(fields, name.split('.'))) in values:
      _put(fields, name, values[value])
  return fields


def record(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Other fields by today's names."""
  return {RECORDS.get(name, name): value for name, value in fields.items()}


def _copied(value: Any) -> Any:
  return {k: _copied(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _find(fields: Any, path: list[str]) -> Any:
  for name in path:
    fields = fields.get(name) if isinstance(fields, dict) else None
  return fields


def _put(fields: dict, path: str, value: Any) -> None:
  *sections, name = path.split('.')
  for section in sections:
    fields = fields.setdefault(section, {})
  fields[name] = value
