"""Replays of a real SkyPilot 0.12.2: what it said while jobs of every kind ran, in our words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from npa.orchestration.engine import JobStatus, Phase
from npa.orchestration.skypilot.rows import Snapshot, job_status, parse

RECORDING = Path(__file__).parent / "recordings" / "bed.jsonl"
ORDER = (Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.CANCELLING)


def snapshots() -> Iterator[Snapshot]:
    for line in RECORDING.read_text().splitlines():
        entry = json.loads(line)
        if entry["op"] == "queue":
            yield parse(entry["value"], as_of=entry["t"])


def history(name: str) -> list[JobStatus]:
    """How one job looked at each answer that showed it."""
    found = []
    for snapshot in snapshots():
        for job_id in snapshot.ids_of(name):
            rows = snapshot.of_id(job_id)
            found.append(job_status(rows, {}, "here", snapshot.as_of, snapshot.as_of))
    return found


NAMES = ("good", "bad", "pair", "slow", "orphan", "survivor")


@pytest.mark.parametrize("name", NAMES)
def test_each_job_has_one_row_set_and_goes_one_way(name: str) -> None:
    seen = history(name)
    assert len({status.exact.native_id for status in seen}) == 1
    live = [ORDER.index(s.phase) for s in seen if not s.phase.terminal]
    assert live == sorted(live)
    ends = [s.phase for s in seen if s.phase.terminal]
    assert len(set(ends)) == 1
    assert [s.settled for s in seen] == sorted(s.settled for s in seen)
    assert seen[-1].settled


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("good", Phase.SUCCEEDED),
        ("bad", Phase.FAILED),
        ("pair", Phase.FAILED),
        ("slow", Phase.CANCELLED),
        ("orphan", Phase.SUCCEEDED),
        ("survivor", Phase.SUCCEEDED),
    ],
)
def test_each_job_ends_as_it_did(name: str, phase: Phase) -> None:
    assert history(name)[-1].phase is phase


@pytest.mark.req("E-04")
def test_skypilot_says_a_terminal_word_before_its_clean_up_is_over() -> None:
    early = [s for s in history("good") if s.phase.terminal and not s.settled]
    assert early


def test_a_member_of_a_group_fails_while_the_group_is_still_launching() -> None:
    """The schedule state of a job group stays LAUNCHING for all its life."""
    between = [s for s in history("pair") if s.phase is Phase.FAILED and not s.settled]
    assert between
    (first, second) = between[0].members
    assert (first.phase, second.phase) == (Phase.SUCCEEDED, Phase.FAILED)
    assert second.evidence[0].code == "PAYLOAD_EXIT_NONZERO"
    assert first.ended_at is not None


def test_the_task_of_a_job_of_one_task_has_the_name_of_the_job() -> None:
    for snapshot in snapshots():
        for row in snapshot.rows:
            assert row.job_name == "pair" or row.task_name == row.job_name


def test_a_job_that_was_not_taken_up_yet_has_no_time_of_submission() -> None:
    waiting = [row for s in snapshots() for row in s.rows if row.status == "PENDING"]
    assert waiting
    assert not any(row.submitted_at for row in waiting)
