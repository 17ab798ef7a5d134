#!/bin/sh
# Sets up .venv with one locked set of requirements and this project, editable.
#
#   scripts/setup.sh requirements-demo.lock
#
# Needs Python 3.11 or newer with pip, nothing else. Where the `venv` module cannot bring its own
# pip (Debian without python3-venv), the system's pip installs into the environment from outside.
set -eu
cd "$(dirname "$0")/.."
lock=$1
python=${PYTHON:-python3}
venv=.venv

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "error: $python is older than Python 3.11" >&2
    echo "hint: name another one, e.g. \`make PYTHON=python3.12 demo\`" >&2
    exit 1
fi

if ! "$venv/bin/python" -c '' 2>/dev/null; then
    echo "making $venv" >&2
    "$python" -m venv --clear "$venv" >/dev/null 2>&1 ||
        "$python" -m venv --clear --without-pip "$venv"
fi

if "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    pip() { "$venv/bin/python" -m pip "$@"; }
elif "$python" -m pip --version >/dev/null 2>&1; then
    pip() { "$python" -m pip --python "$venv/bin/python" "$@"; }
else
    echo "error: neither the new environment nor $python has pip" >&2
    echo "hint: install it first, on Debian \`apt-get install python3-pip\`" >&2
    exit 1
fi

echo "installing $lock" >&2
pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
# The build backend is in every lock, so the project itself needs no isolated build and no network.
pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
