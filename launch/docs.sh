#!/usr/bin/env bash
# Makes the documentation site in site/, to be read from the disk as it is: a warning is an error.
extras=docs
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
rm -rf site
python -m sphinx --fail-on-warning --keep-going --quiet \
  --doctree-dir build/doctrees --conf-dir docs . site
rm -rf jupyter_execute  # copies of the notebooks, which an extension leaves
echo "Open site/index.html."
