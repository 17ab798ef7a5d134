#!/bin/sh
# A real SkyPilot on a real Slurm on this machine: brings the bed up, tests, takes it down again.
# Where that cannot be (no root, no Debian, no network) it says why and passes.
set -eu
cd "$(dirname "$0")/.."
bed() { .venv/bin/python tests/e2e/bed/bed.py "$1"; }

code=0
bed up || code=$?
if [ "$code" -eq 77 ]; then
    exit 0
fi
trap 'bed down' EXIT
[ "$code" -eq 0 ] || exit "$code"
.venv/bin/python -m pytest tests/e2e/skypilot -m e2e "$@"
