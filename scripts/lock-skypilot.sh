#!/bin/sh
# Resolves SkyPilot's own environment and writes its lock: exact versions with hashes, no index host.
#
# The date is that of the release: with later packages (fastapi 0.137 and up) 0.12.2 does not start.
# The Kubernetes client stays below 36, which renames types that 0.12.2 uses.
set -eu
cd "$(dirname "$0")/.."
printf '%s\n' 'skypilot[kubernetes,nebius,slurm]==0.12.2' 'kubernetes>=20,!=32.0.0,<36' \
    'click>=8.1,<8.2' 'setuptools' |
    .venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
        --exclude-newer 2026-05-16 --no-emit-index-url --no-annotate \
        --custom-compile-command 'scripts/lock-skypilot.sh' "$@" - \
        --output-file src/npa/orchestration/skypilot/requirements-skypilot-0.12.2.txt
