"""The check of annotated shapes at run time, for which an int is a float, too."""

import beartype

check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
