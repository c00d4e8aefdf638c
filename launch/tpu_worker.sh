#!/usr/bin/env bash
# What tpu_vm.sh does on each worker, in the copy of this checkout that is there:
#
#   install | start BUCKET COMMAND ... | log | stop
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "error: $1" >&2
  exit 2
}

running() { [ -e run.pid ] && kill -0 "$(cat run.pid)" 2>/dev/null; }

case $1 in
  install)
    # The machines' own Python is older than 3.11.
    [ -x ~/.local/bin/uv ] || curl -fsSL https://astral.sh/uv/install.sh | sh
    ~/.local/bin/uv venv --quiet --allow-existing --python 3.11 .venv
    ~/.local/bin/uv pip install --quiet --python .venv --constraint launch/constraints.txt \
      --editable '.[digits]' 'jax[tpu]'
    if ! command -v gcsfuse >/dev/null; then
      releases=https://github.com/GoogleCloudPlatform/gcsfuse/releases/download
      # A folder of our own: a name that others can foresee could be theirs.
      folder=$(mktemp --directory)
      curl -fsSL --output "$folder/gcsfuse.deb" "$releases/v3.8.0/gcsfuse_3.8.0_amd64.deb"
      sudo apt-get install --quiet --yes "$folder/gcsfuse.deb"
      rm --recursive "$folder"
    fi
    ;;
  start)
    bucket=$2
    shift 2
    ! running || fail 'a command is running: wait for it with log, or end it with stop.'
    mkdir -p runs
    # Workers must see at once what others wrote, so nothing is remembered.
    mountpoint --quiet runs || gcsfuse --implicit-dirs --rename-dir-limit=100000 \
      --metadata-cache-ttl-secs=0 --metadata-cache-negative-ttl-secs=0 \
      --enable-streaming-writes=false "$bucket" runs
    export PATH="$PWD/.venv/bin:$PATH"
    rm -f run.code
    # It goes on without the connection that started it.
    (
      trap '' HUP
      code=0
      "$@" || code=$?
      echo "$code" >run.code
    ) >run.log 2>&1 </dev/null &
    echo $! >run.pid
    ;;
  log)
    [ -e run.pid ] || fail 'nothing was run here yet.'
    tail --pid="$(cat run.pid)" --lines=+1 --follow run.log
    exit "$(cat run.code 2>/dev/null || echo 1)"
    ;;
  stop)
    running || exit 0
    pkill -TERM --parent "$(cat run.pid)"
    tail --pid="$(cat run.pid)" --follow /dev/null
    ;;
esac
