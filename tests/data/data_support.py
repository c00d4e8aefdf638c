"""Helpers that write published files in miniature."""

import dataclasses
import hashlib
import pathlib

import h5py
import numpy as np
import pytest

from draw_jax.data.builders import preparation
from draw_jax.errors import UserError


def sha256(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()


def register(monkeypatch, builder, folder: pathlib.Path, url: str | None = None) -> None:
  """Registers the size and checksum that the files of a builder have in a folder."""
  files = []
  for file in builder.files:
    if (folder / file.name).exists():
      content = (folder / file.name).read_bytes()
      address = file.url if url is None else url + file.name
      files.append(
        dataclasses.replace(file, url=address, size=len(content), sha256=sha256(content))
      )
  monkeypatch.setattr(builder, 'files', tuple(files))


def written_files(folder: pathlib.Path) -> list[pathlib.Path]:
  return [path for path in folder.rglob('*') if path.is_file()]


def refuse(builder, tmp_path, match, manual_dir=None):
  """Checks that preparing stops with a short message and writes nothing."""
  data_dir = tmp_path / 'data'
  with pytest.raises(UserError, match=match) as caught:
    preparation.prepare(builder, str(data_dir), manual_dir and str(manual_dir))
  assert len(str(caught.value).splitlines()) <= 2
  assert not data_dir.exists() or not written_files(data_dir)


def write_struct(path: pathlib.Path, boxes: dict[str, list[dict[str, float] | None]]) -> None:
  """Writes a digitStruct.mat as MATLAB does: structs are arrays of object references."""
  with h5py.File(path, 'w') as file:
    refs, top = file.create_group('#refs#'), file.create_group('digitStruct')
    fields = {
      key: top.create_dataset(key, (len(boxes), 1), dtype=h5py.ref_dtype)
      for key in ('name', 'bbox')
    }
    for i, (name, digits) in enumerate(boxes.items()):
      characters = np.array([[ord(c)] for c in name], np.uint16)
      fields['name'][i, 0] = refs.create_dataset(f'name{i}', data=characters).ref
      if digits is None:
        continue
      group = refs.create_group(f'bbox{i}')
      fields['bbox'][i, 0] = group.ref
      for key in digits[0]:
        values = [float(digit[key]) for digit in digits]
        if len(values) == 1:
          group.create_dataset(key, data=[values])
          continue
        cells = group.create_dataset(key, (len(values), 1), dtype=h5py.ref_dtype)
        for j, value in enumerate(values):
          cells[j, 0] = refs.create_dataset(f'{key}{i}_{j}', data=[[value]]).ref


def digit(left, top, width, height, label=1) -> dict[str, float]:
  return {'label': label, 'left': left, 'top': top, 'width': width, 'height': height}
