"""What a crash leaves of a launch; doubt reads as the later possibility."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npa.errors import EngineError
from npa.orchestration.skypilot.launches import Launches, Reached

POSTING = {"row": "posting", "at": 1.0}
REQUEST = {"row": "request", "at": 2.0, "request_id": "r"}
RESULT = {"row": "result", "at": 3.0, "job_ids": [7]}


def error(code: str) -> dict[str, Any]:
    return {"row": "error", "at": 4.0, "code": code}


def write(folder: Path, *rows: dict[str, Any], torn: str = "") -> Launches:
    launches = Launches(folder)
    path = launches.prepare("ab", "job", "d", {"task": "path"}, not_after=100.0)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    return launches


@pytest.mark.req("D-06")
@pytest.mark.parametrize(
    ("rows", "reached", "late"),
    [
        ([], Reached.PREPARED, False),
        ([error("invalid")], Reached.PREPARED, False),
        ([POSTING], Reached.POSTING, True),
        ([POSTING, error("unreachable")], Reached.POSTING, True),
        ([POSTING, error("http")], Reached.POSTING, True),
        ([POSTING, REQUEST], Reached.ACCEPTED, True),
        ([POSTING, REQUEST, error("unreachable")], Reached.ACCEPTED, True),
        ([POSTING, REQUEST, error("unknown")], Reached.ACCEPTED, True),
        ([POSTING, REQUEST, error("invalid")], Reached.ENDED, False),
        ([POSTING, REQUEST, RESULT], Reached.ENDED, False),
    ],
)
def test_how_far_it_got(
    tmp_path: Path, rows: list[dict[str, Any]], reached: Reached, late: bool
) -> None:
    trace = write(tmp_path, *rows).trace("ab")
    assert trace.reached is reached
    assert trace.late_possible(now=101.0) is late


def test_a_bridge_without_its_driver_may_still_post_until_its_time_is_over(tmp_path: Path) -> None:
    trace = write(tmp_path).trace("ab")
    assert trace.late_possible(now=99.0)
    assert not trace.late_possible(now=101.0)


def test_a_torn_row_means_that_something_was_beginning(tmp_path: Path) -> None:
    assert write(tmp_path, torn='{"row": "pos').trace("ab").reached is Reached.POSTING
    trace = write(tmp_path, POSTING, REQUEST, torn='{"row": "res').trace("ab")
    assert (trace.reached, trace.request_id) == (Reached.ACCEPTED, "r")


def test_a_launch_of_another_host_is_unknown_and_may_be_late(tmp_path: Path) -> None:
    trace = Launches(tmp_path).trace("ab")
    assert trace.reached is Reached.UNKNOWN
    assert trace.late_possible(now=1e12)


@pytest.mark.req("D-01")
def test_one_launch_of_a_key_at_a_time(tmp_path: Path) -> None:
    launches = Launches(tmp_path)
    with launches.locked("ab"):
        with pytest.raises(EngineError) as caught, launches.locked("ab"):
            pass
        assert caught.value.code == "LAUNCH_LOCKED"
        with launches.locked("cd"):
            pass
    with launches.locked("ab"):
        assert (tmp_path / "ab.lock").stat().st_mode & 0o777 == 0o600


def test_a_lock_is_never_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "ab.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"), Launches(tmp_path).locked("ab"):
        pass


def test_task_names_lead_back_to_step_paths(tmp_path: Path) -> None:
    assert write(tmp_path).paths("ab") == {"task": "path"}
    assert Launches(tmp_path).paths("cd") == {}
