"""One name is one job: whatever is launched twice, late or half, its payload runs at most once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from npa.observation import Absent
from npa.orchestration.engine import (
    Job,
    JobRef,
    Launched,
    LaunchRefused,
    LaunchUnknown,
    Phase,
)
from npa.orchestration.local import engine as engine_module
from npa.orchestration.local.engine import LocalEngine
from orchestration.local.conftest import MakeEngine
from orchestration.local.kit import (
    counted,
    lines,
    ref,
    settled,
)


@pytest.mark.req("D-01")
def test_two_engines_that_launch_one_name_run_one_payload(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engines = [make_engine() for _ in range(4)]
    for number in range(10):
        same = counted(f"job-{number}", tmp_path)
        start = threading.Barrier(len(engines))
        replies: list[object] = []

        def go(engine: LocalEngine, same: Job = same, start: threading.Barrier = start) -> None:
            start.wait()
            replies.append(engine.launch(same))  # noqa: B023

        threads = [threading.Thread(target=go, args=[engine]) for engine in engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(replies)) == 1
        assert isinstance(replies[0], Launched)
        assert settled(engines[0], same).phase is Phase.SUCCEEDED
    assert sorted(lines(tmp_path / "runs")) == sorted(f"job-{number}" for number in range(10))


@pytest.mark.req("D-01")
def test_a_name_is_never_started_again(engine: LocalEngine, tmp_path: Path) -> None:
    one = counted("a", tmp_path)
    first = engine.launch(one)
    settled(engine, one)
    assert engine.launch(one) == first
    assert lines(tmp_path / "runs") == ["a"]


def test_a_folder_without_claim_is_sealed_by_the_look_and_then_refused(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a driver leaves that dies between making the folder and sending the job."""
    one = counted("a", tmp_path)
    (tmp_path / "jobs/a").mkdir()
    monkeypatch.setattr(engine_module, "CLAIM_SECONDS_MAX", 0.01)
    assert isinstance(engine.launch(one), LaunchUnknown)
    for _ in range(2):
        seen = engine.observe([ref(one)])["a"]
        assert isinstance(seen, Absent)
        assert not seen.late_possible
    assert isinstance(engine.launch(one), LaunchRefused)
    assert lines(tmp_path / "runs") == []


def test_a_job_that_never_was_is_absent(engine: LocalEngine) -> None:
    assert isinstance(engine.observe([JobRef("nobody", "key")])["nobody"], Absent)
