#!/usr/bin/env bash
# Cloud TPU virtual machines, one worker or many: makes them, trains on all, fetches results.
#
#   bash launch/tpu_vm.sh create [--spot ...]   further flags go to gcloud
#   bash launch/tpu_vm.sh install               this checkout and what it needs; again after edits
#   bash launch/tpu_vm.sh run python -m draw_jax.train \
#       --config=mnist --workdir=runs/mnist \
#       --config.train.batch_size=64 --config.eval.batch_size=320   multiples of the devices
#   bash launch/tpu_vm.sh log                   follows worker 0 again, if the connection broke
#   bash launch/tpu_vm.sh stop                  saves and ends; the same run goes on later
#   bash launch/tpu_vm.sh fetch runs/mnist      from the bucket to here
#   bash launch/tpu_vm.sh delete                the machines; the bucket stays
#
# With --dry_run in front it prints the commands that it would run, and runs none.
#
# The workers share a bucket, mounted at runs/, so that runs outlive the machines; metrics
# reach it when a run ends or is stopped. Data are read from each worker's own disk:
#
#   bash launch/tpu_vm.sh run python -m draw_jax.prepare --dataset=binarized_mnist
#
# Edit the first three, or set them in the environment. The bucket must exist:
#   gcloud storage buckets create gs://NAME --location=REGION \
#       --uniform-bucket-level-access --enable-hierarchical-namespace
set -euo pipefail
TPU_PROJECT=${TPU_PROJECT:-EDIT_ME}
TPU_ZONE=${TPU_ZONE:-EDIT_ME}
TPU_BUCKET=${TPU_BUCKET:-EDIT_ME}
TPU_NAME=${TPU_NAME:-draw}
TPU_TYPE=${TPU_TYPE:-v5litepod-16}
TPU_VERSION=${TPU_VERSION:-v2-alpha-tpuv5-lite}

fail() {
  echo "error: $1" >&2
  exit 2
}

quoted() {
  local text
  printf -v text '%q ' "$@"
  echo "${text% }"
}

do_or_show() {
  if [ "$dry_run" = yes ]; then
    quoted "$@"
  else
    "$@"
  fi
}

tpu() {
  local verb=$1
  shift
  do_or_show gcloud compute tpus tpu-vm "$verb" "$@" \
    --project="$TPU_PROJECT" --zone="$TPU_ZONE"
}

# Runs a command on one worker, by number, or on all.
on_worker() {
  local worker=$1
  shift
  tpu ssh "$TPU_NAME" --worker="$worker" --command="$(quoted "$@")"
}

install() {
  local root folder archive
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  # A folder of our own: a name that others can foresee could be theirs.
  folder=$(mktemp --directory --dry-run)
  do_or_show mkdir --mode=700 "$folder"
  archive=$folder/draw_jax.tar.gz
  do_or_show tar --create --gzip --file="$archive" --directory="$root" \
    --exclude=.git --exclude=.venv --exclude=./runs --exclude=__pycache__ .
  tpu scp "$archive" "$TPU_NAME:draw_jax.tar.gz" --worker=all
  do_or_show rm --recursive "$folder"
  on_worker all mkdir -p draw_jax
  on_worker all tar --extract --file=draw_jax.tar.gz --directory=draw_jax
  on_worker all bash draw_jax/launch/tpu_worker.sh install
}

main() {
  dry_run=no
  if [ "${1:-}" = --dry_run ]; then
    dry_run=yes
    shift
  fi
  local verb=${1:-} setting
  case $verb in
    create | install | run | log | stop | fetch | delete) shift ;;
    *) fail "'$verb' is not create, install, run, log, stop, fetch or delete." ;;
  esac
  for setting in TPU_PROJECT TPU_ZONE TPU_BUCKET; do
    [ "${!setting}" != EDIT_ME ] ||
      fail "set $setting, at the top of launch/tpu_vm.sh or before it."
  done
  [ "$dry_run" = yes ] || command -v gcloud >/dev/null ||
    fail 'gcloud is not on PATH: install the Google Cloud CLI.'

  case $verb in
    create)
      tpu create "$TPU_NAME" --accelerator-type="$TPU_TYPE" --version="$TPU_VERSION" "$@"
      ;;
    install) install ;;
    run)
      [ $# -gt 0 ] || fail 'no command: run python -m draw_jax.train ...'
      on_worker all bash draw_jax/launch/tpu_worker.sh start "${TPU_BUCKET#gs://}" "$@"
      on_worker 0 bash draw_jax/launch/tpu_worker.sh log
      ;;
    log) on_worker 0 bash draw_jax/launch/tpu_worker.sh log ;;
    stop) on_worker all bash draw_jax/launch/tpu_worker.sh stop ;;
    fetch)
      [[ ${1:-} == runs/?* ]] || fail "'${1:-}' is not a folder of runs/: fetch runs/mnist."
      do_or_show mkdir -p "$1"
      do_or_show gcloud storage rsync --recursive "gs://${TPU_BUCKET#gs://}/${1#runs/}" "$1"
      ;;
    delete) tpu delete "$TPU_NAME" ;;
  esac
}

main "$@"
