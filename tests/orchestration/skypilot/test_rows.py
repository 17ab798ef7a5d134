"""What SkyPilot's queue says, in our words; an unknown shape says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from npa.orchestration.engine import Phase
from npa.orchestration.evidence import Klass, klass_of
from npa.orchestration.skypilot.rows import (
    CODES,
    PHANTOM_SECONDS,
    PHASES,
    SchemaError,
    job_status,
    parse,
)

NOW = 1_000_000.0


def row(**more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "job_id": 1,
        "task_id": 0,
        "job_name": "job",
        "task_name": "a",
        "status": "RUNNING",
        "schedule_state": "ALIVE",
        "recovery_count": 0,
        "failure_reason": None,
        "details": None,
        "submitted_at": NOW - 30,
        "start_at": NOW - 10,
        "end_at": None,
        "cluster_name_on_cloud": "c",
    }
    return plain | more


def status_of(*rows: Mapping[str, Any], first_seen: float = NOW) -> Any:
    snapshot = parse({"rows": list(rows), "total": 1}, NOW)
    return job_status(snapshot.rows, {"a": "group/a", "b": "group/b"}, "here", NOW, first_seen)


@pytest.mark.parametrize("word", sorted(PHASES))
@pytest.mark.req("E-02")
def test_every_terminal_word_but_success_has_typed_evidence(word: str) -> None:
    (member,) = status_of(row(status=word)).members
    assert member.phase is PHASES[word]
    if word == "SUCCEEDED" or not member.phase.terminal:
        assert member.evidence == ()
    else:
        (fact,) = member.evidence
        assert klass_of(fact.code) is not Klass.UNKNOWN
    assert set(CODES) <= set(PHASES)


def test_an_unknown_word_is_unknown_and_not_terminal() -> None:
    status = status_of(row(status="PONDERING"))
    assert status.phase is Phase.UNKNOWN
    assert not status.settled


@pytest.mark.req("E-04")
def test_a_terminal_word_settles_only_with_the_schedule_state_done() -> None:
    early = status_of(row(status="SUCCEEDED", schedule_state="ALIVE"))
    assert (early.phase, early.settled) == (Phase.SUCCEEDED, False)
    assert early.reason == "SkyPilot is cleaning up"
    assert status_of(row(status="SUCCEEDED", schedule_state="DONE")).settled


def test_a_group_is_over_when_its_last_member_is() -> None:
    failed = row(status="FAILED", end_at=NOW - 1)
    going = row(task_id=1, task_name="b")
    status = status_of(failed, going)
    assert status.phase is Phase.RUNNING
    assert {m.path: m.phase for m in status.members} == {
        "group/a": Phase.FAILED,
        "group/b": Phase.RUNNING,
    }
    over = status_of(failed, going | {"status": "SUCCEEDED", "end_at": NOW})
    assert over.phase is Phase.FAILED
    assert [m.ended_at for m in over.members] == [NOW - 1, NOW]


def test_a_row_that_no_controller_takes_up_is_not_observable() -> None:
    reserved = row(status="PENDING", schedule_state="INACTIVE", submitted_at=None)
    assert status_of(reserved, first_seen=NOW - PHANTOM_SECONDS + 1).observable
    phantom = status_of(reserved, first_seen=NOW - PHANTOM_SECONDS - 1)
    assert not phantom.observable
    assert phantom.phase is Phase.PENDING
    waiting = row(status="PENDING", schedule_state="WAITING", submitted_at=None)
    assert status_of(waiting, first_seen=0.0).observable


def test_backing_off_is_waiting_for_room_and_no_failure() -> None:
    status = status_of(row(status="PENDING", schedule_state="ALIVE_BACKOFF"))
    assert status.capacity
    assert status.reason == "no room yet: SkyPilot tries again"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"rows": None, "total": 0},
        {"rows": [{}], "total": 1},
        {"rows": [row(job_id="1")], "total": 1},
        {"rows": [row(status=None)], "total": 1},
        {"rows": [row(schedule_state="NAPPING")], "total": 1},
        {"rows": [row(), row()], "total": 1},
        {"rows": [row()], "total": 0},
        {"rows": [row()], "total": "1"},
        [],
    ],
)
def test_an_unknown_shape_is_no_queue(value: Any) -> None:
    with pytest.raises(SchemaError):
        parse(value, NOW)
