#!/bin/sh
# A real SkyPilot on a real Slurm on this machine: brings the bed up, tests, takes it down again.
# Where that cannot be (no root, no Debian, no network) it says why and passes.
set -eu
cd "$(dirname "$0")/.."
bed() { .venv/bin/python tests/e2e/bed/bed.py "$1"; }

trap 'bed down' EXIT
trap 'exit 130' INT TERM HUP
code=0
bed up || code=$?
if [ "$code" -eq 77 ]; then
    trap - EXIT
    exit 0
fi
[ "$code" -eq 0 ] || exit "$code"
kept=$(mktemp -d)
options="-q --strict-markers --strict-config --import-mode=importlib"  # and a memory of failures
suite() {
    .venv/bin/python -m pytest -o addopts="$options" -o cache_dir="$kept" \
        tests/e2e/skypilot -m e2e "$@"
}
# Two files at a time: a managed job waits for half of the time that it takes. In the order of their
# names, so that the longest, digits, is among the first.
suite -n 2 --dist loadfile --no-loadscope-reorder "$@" || code=$?
[ "$code" -eq 1 ] || exit "$code"
# Two servers on two CPUs can push a step over its deadline. What fails alone, too, has failed.
echo "e2e-skypilot: what failed, once more, one at a time" >&2
suite --last-failed --last-failed-no-failures none "$@"
