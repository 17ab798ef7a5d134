"""Run the canonical bdd100k pipeline from the worktree that NPA_LIVE_WT names, and wait for it.

    NPA_LIVE_WT=$PWD .venv/bin/python scripts/run_bdd100k_pipeline.py --engine local

`--spec` runs another file with the same flags, such as the one for a GPU cluster.
"""

from __future__ import annotations

import sys

from live_runner import Flag, Runner, main

RUNNER = Runner(
    name="run_bdd100k_pipeline",
    summary="Run the bdd100k pipeline and print one JSON summary.",
    spec="workflows/testing/bdd100k-pipeline.yaml",
    catalog="workflows/testing/bdd100k-catalog.yaml",
    flags=(
        Flag("--bucket", "bucket", "the bucket of the run"),
        Flag("--source-uri", "source_uri", "where the raw images and labels lie"),
        Flag("--bdd100k-limit", "bdd100k_limit", "rows to import at most"),
        Flag("--synthetic-rows", "synthetic_rows", "rows to make instead of importing any"),
        Flag("--lancedb-endpoint", "lancedb_endpoint", "URL of the LanceDB service"),
        Flag("--detection-endpoint", "detection_endpoint", "URL of the training service"),
        Flag("--scenes", "scenes", "scenes to draw, in the canonical file"),
    ),
)

if __name__ == "__main__":
    sys.exit(main(RUNNER))
