#!/usr/bin/env bash
# Trains a small DRAW on 5,000 digits that come with a pip package, then bounds its
# likelihood, draws, and makes a web page in which it runs. Run again, it goes on where it was, or
# only draws.
#   bash launch/quickstart.sh [--config.train.epochs=80 ...]
extras=digits
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
workdir=runs/quickstart
python -m draw_jax.train --config=quickstart --workdir="$workdir" "$@"
python -m draw_jax.evaluate --workdir="$workdir" --split=valid --output="$workdir/bounds.json"
python -m draw_jax.sample --workdir="$workdir" --output="$workdir/pictures"
python -m draw_jax.page --workdir="$workdir" --output="$workdir/draw.html"
