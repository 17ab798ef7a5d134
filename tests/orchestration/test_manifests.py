"""A refused resume names the files that changed, not just that something did."""

from __future__ import annotations

from npa.orchestration import runs
from npa.orchestration.manifests import FOLDER
from runs_harness import Bench

TEXT = "initial: a\nstates: {a: {run: {argv: ['true']}, terminal: true}}\n"


def test_changed_new_and_lost_files_are_named(bench: Bench) -> None:
    bench.write(TEXT)
    project = bench.root / "project"
    (project / "train.py").write_text("1")
    (project / "old.py").write_text("1")
    run = bench.submit(TEXT, source=True)
    assert runs.changes(bench.host, run) == ()
    (project / "train.py").write_text("2")
    (project / "old.py").unlink()
    (project / "new.py").write_text("1")
    assert runs.changes(bench.host, run) == (
        "new.py is new",
        "old.py is gone",
        "train.py changed",
    )


def test_without_the_manifest_the_part_itself_is_named(bench: Bench) -> None:
    bench.write(TEXT)
    run = bench.submit(TEXT, source=True)
    (bench.root / "project" / "new.py").write_text("1")
    run.store.delete(f"{FOLDER}{run.state.parts['source']}.json")
    assert runs.changes(bench.host, run) == ("source",)
