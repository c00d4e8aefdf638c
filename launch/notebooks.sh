#!/usr/bin/env bash
# Runs the notebooks in experiments/notebooks/ and keeps what they show: after a change of theirs or of
# the url in setup.cfg.
#   bash launch/notebooks.sh [NAME ...]
extras=digits,notebooks
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
python launch/notebooks.py "$@"
