"""Each check of the chaos harness finds what it is for: a whole run, then harmed by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import checks, synthetic
from chaos.world import World, until
from npa.orchestration.journal.chain import key_of
from npa.storage import uri_to_path


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("quiet")
    world = World(root / "world", synthetic.write(root / "project"), f"quiet-{os.getpid()}")
    driver = world.submit()
    assert driver.end() == 0, driver.said
    return world


@pytest.fixture
def world(quiet: World) -> Iterator[World]:
    """The finished run; what a test does to trace and journal is undone afterwards."""
    trace = quiet.trace.read_bytes()
    journal = uri_to_path(quiet.run_uri) / "npa-workflow"
    kept = quiet.root / "kept"
    shutil.copytree(journal, kept)
    yield quiet
    quiet.trace.write_bytes(trace)
    shutil.rmtree(journal)
    kept.rename(journal)


def complaints(world: World) -> list[str]:
    return [text for check in checks.AT_THE_END for text in check(world)]


def add(world: World, line: str) -> None:
    with world.trace.open("a") as file:
        file.write(line + "\n")


def test_a_whole_run_passes_and_ran_each_step_once(world: World) -> None:
    assert complaints(world) == []
    counted = checks.executed(world)
    assert sum(counted.values()) == synthetic.EXECUTIONS
    assert {path for path, n in counted.items() if n != 1} == {"pair"}


def test_an_attempt_that_ran_twice_is_found(world: World) -> None:
    add(world, " ".join(world.lines()[0]))
    assert "ran 2 times" in checks.nothing_ran_twice(world)[0]


def test_an_attempt_that_nobody_wrote_down_is_found(world: World) -> None:
    add(world, f"begin ingest {'0' * 64} 0")
    assert "not in the journal" in checks.nothing_ran_twice(world)[0]


def test_an_earlier_attempt_that_still_writes_is_found(world: World) -> None:
    add(world, "begin ingest another 0")
    assert checks.attempts_do_not_overlap(world) == []
    add(world, " ".join(world.lines()[0]))
    assert "after its successor" in checks.attempts_do_not_overlap(world)[0]


def test_a_launch_without_an_intent_is_found(world: World) -> None:
    (world.jobs / "uninvited").mkdir()
    try:
        assert "without an intent" in checks.launches_were_written_down(world)[0]
    finally:
        (world.jobs / "uninvited").rmdir()


def test_a_damaged_journal_is_found(world: World) -> None:
    frame = uri_to_path(world.run_uri) / key_of(3)
    frame.write_bytes(frame.read_bytes().replace(b'"at":', b'"at": '))
    assert "corrupt" in checks.journal_is_legal(world)[0]


def test_a_run_that_has_not_ended_is_found(world: World) -> None:
    frames = sorted((uri_to_path(world.run_uri) / "npa-workflow/journal").iterdir())
    frames[-1].unlink()
    assert "running" in checks.ended_well(world)[0]


def test_a_process_of_a_task_that_lives_on_is_found(world: World) -> None:
    env = {"NPA_WORKFLOW_RUN_ID": world.run_id}
    with subprocess.Popen(["/bin/sleep", "300"], env=env) as process:
        try:
            assert until(lambda: bool(world.tasks()))
            assert f"process {process.pid} of a task lives" in checks.no_process_is_left(world)[0]
        finally:
            process.kill()


def test_an_untyped_error_of_a_driver_is_found(world: World) -> None:
    log = world.root / "drivers" / "999.log"
    log.write_text("error: unexpected KeyError (UNEXPECTED)\n")
    try:
        assert "unexpected" in checks.drivers_were_calm(world)[0]
    finally:
        log.unlink()


def test_another_result_is_found() -> None:
    assert checks.same_result({"a": 1}, {"a": 1}) == []
    assert checks.same_result({"a": 1}, {"a": 2}) != []
    assert checks.same_result({}, {"a": 2}) != []


def test_the_result_is_read_from_the_store(world: World) -> None:
    from npa.orchestration.state import fold

    found = synthetic.essence(checks.artifacts(world, fold(world.frames())))
    assert found["out/gate-2.json"] == {"decision": "promote_checkpoint"}
    assert len(found) == synthetic.EXECUTIONS - 1  # the gang's two ranks write one output
    missing: Path = uri_to_path(world.run_uri) / "out/report.json"
    kept = missing.read_bytes()
    missing.unlink()
    try:
        assert "not readable" in str(checks.artifacts(world, fold(world.frames())))
    finally:
        missing.write_bytes(kept)
