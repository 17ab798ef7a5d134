"""The canonical bdd100k pipeline runs for real on this machine, and measures what it should."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import snippets
from npa.observation import Found, Observation
from s3server import S3

FOLDER = snippets.ROOT / "workflows" / "testing"
RUN_SECONDS_MAX = 900  # a quiet machine with two cores needs about one minute
MODES = ("rider", "nighttime_person", "distant_person")
STEPS = [
    *("ingest", "backfill-cpu", "backfill-embedding", "curate-views"),
    *(f"train-models/train-{name}" for name in ("rider", "nighttime", "distant")),
    *(f"evaluate-models/eval-{name}" for name in ("rider", "nighttime", "distant")),
    "review",
]
pytestmark = pytest.mark.e2e


def submit(home: Path, *options: str, environ: Mapping[str, str]) -> Any:
    """Run the pipeline to its end and return the document that the command printed."""
    command = ["npa", "workbench", "workflow", "submit", str(FOLDER / "bdd100k-pipeline.yaml")]
    catalog = ["--catalog", str(FOLDER / "bdd100k-catalog.yaml")]
    done = subprocess.run(
        [*command, *catalog, "--engine", "local", "--run-id", "bdd100k", "--json", *options],
        env={**snippets.with_our_python(os.environ), "NPA_CONFIG_DIR": str(home), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a run that succeeded."""
    pytest.importorskip("lancedb", reason="the `bdd100k` extra is not installed")
    home = tmp_path_factory.mktemp("npa-home")
    document = submit(home, environ={})
    assert (document["status"], document["terminal"]) == ("succeeded", "review")
    assert [step["path"] for step in document["steps"]] == STEPS
    return home / "runs" / "bdd100k"


def read(root: Path, name: str) -> Any:
    return json.loads((root / name).read_text())


@pytest.mark.req("G-02")
@pytest.mark.parametrize("mode", MODES)
def test_a_detector_is_measured_on_scenes_that_it_has_not_seen(root: Path, mode: str) -> None:
    metrics = read(root, f"eval/{mode}/metrics.json")
    training = read(root, f"training/{mode}/training.json")
    hits = read(root, f"eval/{mode}/hits.json")
    assert metrics["targets"] >= 30
    assert len(hits) == metrics["scenes"] >= 20
    assert not set(hits) & set(training["scenes"])
    assert metrics["average_precision"] > 0.75
    assert metrics["average_precision_untrained"] < 0.1
    assert metrics["precision"] > 0.6
    assert metrics["recall"] > 0.6


@pytest.mark.parametrize("mode", MODES)
def test_the_average_precision_is_the_area_under_the_curve(root: Path, mode: str) -> None:
    """Computed once more from the curve alone, by another way."""
    metrics = read(root, f"eval/{mode}/metrics.json")
    points = [(recall, precision) for _, precision, recall in metrics["curve"]]
    area, before = 0.0, 0.0
    for number, (recall, _) in enumerate(points):
        area += (recall - before) * max(precision for _, precision in points[number:])
        before = recall
    assert metrics["average_precision"] == pytest.approx(area, abs=2e-3)


def test_the_table_has_its_columns_and_materialized_views(root: Path) -> None:
    code = """
import json, sys, lancedb
database = lancedb.connect(sys.argv[1])
table = database.open_table("bdd100k")
print(json.dumps({
    "columns": table.schema.names,
    "rows": table.count_rows(),
    "views": {v: database.open_table(v).count_rows() for v in database.list_materialized_views()},
}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(root / "lancedb")],
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert seen["rows"] == read(root, "reports/facts.json")["rows"]
    assert {"brightness", "riders", "duplicate_of", "embedding"} <= set(seen["columns"])
    views = read(root, "reports/views.json")["views"].values()
    assert seen["views"] == {view["view"]: view["rows"] for view in views}


def test_the_review_page_needs_nothing_from_outside(root: Path) -> None:
    page = (root / "review" / "review.html").read_text()
    assert "://" not in page
    assert not re.search(r"<(script|link|iframe)\b", page)
    assert page.count("data:image/png;base64,") >= 3 * 4
    summary = read(root, "review/summary.json")
    for mode in MODES:
        measured = summary["modes"][mode]["average_precision"]
        assert measured == read(root, f"eval/{mode}/metrics.json")["average_precision"]
        assert f"<b>{measured:.2f}</b>" in page


def test_repeated_scenes_are_in_no_view(root: Path) -> None:
    backfill = read(root, "reports/backfill.json")
    assert backfill["duplicates"] > 0
    assert backfill["train_scenes_that_repeat_held_out_ones"] > 0


def test_the_same_file_runs_with_everything_in_a_bucket(s3: S3, tmp_path: Path) -> None:
    """Table, views, models and page on S3; few scenes, because only the way there is new."""
    pytest.importorskip("lancedb", reason="the `bdd100k` extra is not installed")
    document = submit(
        tmp_path,
        *("--store", f"{s3.uri}runs/", "--var", "scenes=60", "--var", "train_epochs=2"),
        environ=s3.environment,
    )
    assert (document["status"], document["terminal"]) == ("succeeded", "review")
    store = s3.store("runs/bdd100k/")
    keys = [info.key for info in found(store.list(""))]
    assert "review/review.html" in keys
    assert any(key.startswith("lancedb/bdd100k.lance/") for key in keys)
    assert not list((tmp_path / "runs").glob("*/*.lance"))
    summary = json.loads(found(store.get("review/summary.json")).data)
    assert summary["table"]["rows"] == 60


def found(answer: Observation[Any]) -> Any:
    assert isinstance(answer, Found)
    return answer.value
