"""One of two processes that open a dataset which is not prepared yet."""

import json
import sys

import jax

from draw_jax.data.builders import binarized_mnist, preparation
from draw_jax.errors import UserError

if __name__ == '__main__':
  address, index, files, data_dir = sys.argv[1:]
  jax.distributed.initialize(address, num_processes=2, process_id=int(index))
  builder = binarized_mnist.DrawBinarizedMnist
  prepare = preparation.prepare
  calls = []

  def refuse(builder_class, data_dir):
    raise UserError('no such file')

  def from_files(builder_class, data_dir):
    calls.append(builder_class)
    return prepare(builder_class, data_dir, files)

  preparation.prepare = refuse
  try:
    preparation.ensure_prepared(builder, data_dir)
  except UserError as error:
    refusal = str(error)
  # The miniature files have other checksums than the published ones.
  binarized_mnist.published.check_file = lambda path, file: None
  preparation.prepare = from_files
  splits = preparation.load(builder, data_dir, {'train': 'train'})
  print(json.dumps([refusal, len(calls), len(splits['train']), 'tensorflow' in sys.modules]))
  jax.distributed.shutdown()
