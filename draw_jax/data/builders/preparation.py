"""Preparing published files once, and opening what was prepared."""

import contextlib
import os
import pathlib
import re
import sys

import jax
import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from jax.experimental import multihost_utils

from draw_jax import files
from draw_jax.data import sources
from draw_jax.data.builders import intact
from draw_jax.data.builders.published import PublishedBuilder
from draw_jax.errors import UserError


def prepare(
  builder_class: type[PublishedBuilder],
  data_dir: str | None = None,
  manual_dir: str | None = None,
) -> PublishedBuilder:
  """Turns published files into records; does nothing if that was done before.

  TFDS writes to a folder of another name and renames it at the end, so an interrupted
  preparation is never taken for a finished one.

  Args:
    builder_class: of the dataset.
    data_dir: where prepared datasets live; TFDS's own default if None.
    manual_dir: a folder that holds the published files; None to download them.

  Returns:
    The builder, ready to be read.
  """
  folder = data_dir or tfds.core.constants.DATA_DIR
  if folder.startswith('~') and os.path.expanduser(folder) == folder:
    raise UserError('there is no home folder for datasets: give --data_dir, or set TFDS_DATA_DIR.')
  if not sys.stderr.isatty():
    tfds.disable_progress_bar()
  with _errors_only(), files.reaching(folder), _disk_errors(folder):
    builder = _open(builder_class, data_dir, manual_dir)
    if not builder.is_prepared():
      try:
        print(builder.beginning(), file=sys.stderr, flush=True)
        # TFDS says there what it does not know: how much there is to download.
        with open(os.devnull, 'w') as nowhere, contextlib.redirect_stdout(nowhere):
          builder.download_and_prepare()
        intact.seal(builder)
      except FileExistsError:  # Another process was quicker.
        builder = _open(builder_class, data_dir, manual_dir)
        if not builder.is_prepared():
          raise
    elif left_out := builder.left_out():
      raise UserError(
        f'{builder.dataset} was prepared without {left_out}: to have it, remove {builder.data_dir} '
        'and run the same command again.'
      )
    else:
      intact.check(builder)
  return builder


def _open(
  builder_class: type[PublishedBuilder], data_dir: str | None, manual_dir: str | None = None
) -> PublishedBuilder:
  """The builder, which reads what says how it was prepared, if it was."""
  folder = files.place(data_dir or tfds.core.constants.DATA_DIR) / builder_class.name
  with intact.reading(folder):
    return builder_class(data_dir=data_dir, manual_dir=manual_dir)


def load(
  builder_class: type[PublishedBuilder], data_dir: str | None, splits: dict[str, str]
) -> dict[str, sources.Source]:
  """Returns prepared splits, after preparing them if need be.

  Args:
    builder_class: of the dataset.
    data_dir: where prepared datasets live; TFDS's own default if None.
    splits: by name, which records belong to it, in TFDS's notation.
  """
  builder = ensure_prepared(builder_class, data_dir)
  return {
    name: sources.from_records(intact.Records(builder, which)) for name, which in splits.items()
  }


def ensure_prepared(
  builder_class: type[PublishedBuilder], data_dir: str | None
) -> PublishedBuilder:
  """Returns a builder that can be read; process 0 prepares it while the others wait."""
  if jax.process_count() == 1:
    return prepare(builder_class, data_dir)
  error = None
  if jax.process_index() == 0:
    try:
      prepare(builder_class, data_dir)
    except UserError as caught:
      error = caught
  # The others must learn of a failure too, or they would wait for ever.
  failed = multihost_utils.broadcast_one_to_all(np.array(error is not None))
  if error is not None:
    raise error
  if failed:
    raise UserError(f'process 0 could not prepare {builder_class.dataset}: see its message')
  builder = _open(builder_class, data_dir)
  if not builder.is_prepared():
    raise UserError(
      f'{builder.data_dir} is not there for process {jax.process_index()}: give a --data_dir that '
      f'all hosts share, or prepare it on each; {builder.command}'
    )
  intact.check(builder)
  return builder


@contextlib.contextmanager
def _errors_only():
  """Keeps TFDS from warning that what is about to be prepared is not there yet."""
  verbosity = logging.get_verbosity()
  logging.set_verbosity(min(verbosity, logging.ERROR))
  try:
    yield
  finally:
    logging.set_verbosity(verbosity)


@contextlib.contextmanager
def _disk_errors(data_dir: str):
  """Tells the user what the disk refused."""
  try:
    yield
  except OSError as error:
    # TFDS may put words of its own around it.
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if cause.errno is None:
      raise
    if cause.filename is not None and not files.is_remote(data_dir):
      folder, path = (pathlib.Path(p).expanduser().absolute() for p in (data_dir, cause.filename))
      # A published file, say; the parents of a new folder are made with it.
      if not path.is_relative_to(folder) and not folder.is_relative_to(path):
        raise UserError(f'cannot use {path}: {cause.strerror}.') from None
    raise _unwritable(data_dir, cause.strerror) from None
  except RuntimeError as error:
    # The writer of records has no other type for it.
    refused = re.search(r'\bwrite\(\) failed: ([^;]+)', str(error))
    if refused is None:
      raise
    raise _unwritable(data_dir, refused[1]) from None


def _unwritable(data_dir: str, reason: str) -> UserError:
  return UserError(f'cannot write into --data_dir={data_dir}: {reason}. Give another folder.')
