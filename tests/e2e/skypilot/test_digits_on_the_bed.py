"""The digits example, the very file, on a real SkyPilot."""

from __future__ import annotations

import json
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from e2e.skypilot.bench import Bench, ended

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits" / "pipeline.yaml"
JOBS = [
    ["ingest"],
    ["split"],
    ["train-logistic", "train-svm"],  # a job group of two, then the third member
    ["train-network"],
    ["evaluate"],
    ["refine-train"],  # the gate sends it back once,
    ["refine-gate"],
    ["refine-train"],  # and lets it go before the third time
    ["refine-gate"],
    ["cross-check"],
    ["report-promoted"],
]


@pytest.mark.req("B-01", "B-03", "B-04", "B-09", "B-10", "F-06")
def test_the_digits_pipeline_runs_unchanged_and_promotes_a_model(bench: Bench) -> None:
    code, out, err = ended(bench.submit_file("digits", EXAMPLE), 1200)
    assert code == 0, err
    said = json.loads(out)
    assert (said["status"], said["terminal"]) == ("succeeded", "report-promoted")
    found = json.loads(bench.text("digits", "artifacts/report/summary.json"))
    assert found["outcome"] == "promoted"
    assert found["validation_accuracy"] >= found["accuracy_threshold"] == 0.975
    checked = json.loads(bench.text("digits", "artifacts/cross-check/cross-check.json"))
    assert [shard["rank"] for shard in checked["shards"]] == [0, 1]
    page = bench.text("digits", "artifacts/report/report.html")
    assert page.lstrip().lower().startswith("<!doctype html")

    rows = bench.rows("digits")
    assert {row.status for row in rows} == {"SUCCEEDED"}
    jobs = [list(tasks) for _, tasks in groupby(rows, lambda row: row.job_id)]
    assert len(jobs) == len(JOBS)
    for tasks, states in zip(jobs, JOBS, strict=True):
        assert len(tasks) == len(states)
        for task, state in zip(tasks, states, strict=True):
            assert state in f"{task.task} {task.job}"
    # A barrier after each batch: nothing begins before all of the last job has ended.
    for earlier, later in pairwise(jobs):
        assert max(row.end_at for row in earlier) <= min(row.start_at for row in later)
    bench.assert_nothing_is_left("digits")
