#!/bin/sh
# Resolves the dependencies and writes requirements{,-demo,-dev,-bdd100k}.lock: exact versions with hashes,
# for every platform and Python from 3.11, without any index host or path.
set -eu
cd "$(dirname "$0")/.."

compile() {
    output=$1
    shift
    .venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
        --no-emit-index-url --custom-compile-command 'make lock' --group build \
        "$@" --output-file "$output" pyproject.toml
}

# The largest set is resolved first and constrains the others: one version of a package everywhere.
compile requirements-bdd100k.lock --all-extras --group dev "$@"
compile requirements-dev.lock --extra demo --group dev --constraint requirements-bdd100k.lock
compile requirements-demo.lock --extra demo --constraint requirements-dev.lock
compile requirements.lock --constraint requirements-dev.lock
