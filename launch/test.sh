#!/usr/bin/env bash
# Checks the code's style and runs the tests; further arguments go to pytest:
#   bash launch/test.sh tests/test_attention.py
extras=digits,docs,test
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ruff check .
ruff format --check .
python -m pytest --numprocesses=2 "$@"
