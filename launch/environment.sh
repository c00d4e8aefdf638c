# Sourced by the scripts beside it: goes to the checkout and makes `python` one that has
# draw_jax and all it needs, in the active virtual environment or else in .venv. `extras` are
# those of setup.cfg that the script needs; the tests need all.
set -euo pipefail
extras=${extras:-digits,test}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
  local name
  for name in python3 python python3.14 python3.13 python3.12 python3.11; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "error: no Python 3.11 or newer on PATH; install one and try again." >&2
  return 2
}

make_environment() {
  local python tools
  python=$(find_python)
  # Some systems ship Python without ensurepip; virtualenv does not need it.
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    tools=$(mktemp -d)
    "$python" -m pip install --quiet --target "$tools" virtualenv || {
      echo "error: $python has neither venv nor pip; Debian and Ubuntu have them in python3-venv." >&2
      return 2
    }
    PYTHONPATH="$tools" "$python" -m virtualenv --quiet .venv
    rm -r "$tools"
  else
    "$python" -m venv .venv
  fi
}

if [ -z "${VIRTUAL_ENV:-}" ]; then
  # One that was moved or copied still speaks of the folder it was made in.
  grep -qsF "$(pwd -P)/.venv" .venv/bin/activate || make_environment
  # shellcheck source=/dev/null
  source .venv/bin/activate
fi

# Installing again is skipped for the extras that this checkout with these requirements has already.
stamp="$VIRTUAL_ENV/draw_jax.installed"
checkout="$PWD $(cat setup.cfg launch/constraints.txt | cksum)"
installed=
if [ "$(sed -n 1p "$stamp" 2>/dev/null)" = "$checkout" ]; then
  installed=$(sed -n 2p "$stamp")
fi
missing=
for extra in ${extras//,/ }; do
  case ",$installed," in
    *",$extra,"*) ;;
    *) missing+=" $extra" ;;
  esac
done
if [ -n "$missing" ]; then
  echo "Installing draw_jax and what it needs into $VIRTUAL_ENV (a minute or two) ..."
  python -m pip install --quiet --disable-pip-version-check \
    --constraint launch/constraints.txt --editable ".[$extras]"
  printf '%s\n' "$checkout" "${installed:+$installed,}$extras" > "$stamp"
fi
