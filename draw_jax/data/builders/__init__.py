"""Published files to records that are read at random: the only modules that import TFDS."""
