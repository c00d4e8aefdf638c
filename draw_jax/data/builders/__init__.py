"""Published files to records that are read at random: the only modules that import TFDS."""

import os

# Empty, as where a shell's variable is not set, it would mean the current folder to TFDS.
if not os.environ.get('TFDS_DATA_DIR'):
  os.environ.pop('TFDS_DATA_DIR', None)
