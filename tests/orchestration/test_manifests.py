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


def test_an_ignore_file_that_changes_what_is_staged_is_named(bench: Bench) -> None:
    bench.write(TEXT)
    project = bench.root / "project"
    (project / "train.py").write_text("1")
    (project / "notes").mkdir()
    (project / "notes/today.md").write_text("1")
    (project / ".npaignore").write_text("notes/\n")
    run = bench.submit(TEXT, source=True)
    (project / ".npaignore").write_text("train.py\n")
    assert runs.changes(bench.host, run) == (
        ".npaignore changed",
        "notes/today.md is no longer left out",
        "train.py is left out now",
    )
    (project / ".npaignore").unlink()
    assert runs.changes(bench.host, run) == (
        ".npaignore is gone",
        "notes/today.md is no longer left out",
    )


def test_a_new_file_that_is_ignored_does_not_keep_a_run_from_going_on(bench: Bench) -> None:
    bench.write(TEXT)
    run = bench.submit(TEXT, source=True)
    project = bench.root / "project"
    (project / "scratch.txt").write_text("1")
    assert runs.changes(bench.host, run) == ("scratch.txt is new",)
    (project / ".npaignore").write_text("scratch*\n")
    assert runs.changes(bench.host, run) == ()


def test_without_the_manifest_the_part_itself_is_named(bench: Bench) -> None:
    bench.write(TEXT)
    run = bench.submit(TEXT, source=True)
    (bench.root / "project" / "new.py").write_text("1")
    run.store.delete(f"{FOLDER}{run.state.parts['source']}.json")
    assert runs.changes(bench.host, run) == ("source",)
