"""Rows of the managed-jobs queue, and what they mean. Pure.

One row is one task of a job; the schedule state belongs to the job. A status may be terminal while
SkyPilot still cleans up: only the schedule state DONE settles it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from npa.orchestration.engine import Evidence, ExactJob, JobStatus, MemberStatus, Phase

SOURCE = "skypilot-queue"
# A job whose submission failed inside SkyPilot keeps a row that is PENDING and INACTIVE for ever
# (0.12.2 drops the exit code of that submission). A good one leaves that state within seconds.
PHANTOM_SECONDS = 120.0

PHASES: Mapping[str, Phase] = {
    "PENDING": Phase.PENDING,
    "STARTING": Phase.STARTING,
    "RUNNING": Phase.RUNNING,
    "WINDING_DOWN": Phase.RUNNING,
    "RECOVERING": Phase.STARTING,
    "CANCELLING": Phase.CANCELLING,
    "SUCCEEDED": Phase.SUCCEEDED,
    "CANCELLED": Phase.CANCELLED,
    "FAILED": Phase.FAILED,
    "FAILED_SETUP": Phase.FAILED,
    "FAILED_PRECHECKS": Phase.FAILED,
    "FAILED_NO_RESOURCE": Phase.FAILED,
    "FAILED_CONTROLLER": Phase.FAILED,
}
# Rows of npa.orchestration.evidence. SkyPilot's record has no exit code of the user's program.
CODES: Mapping[str, str] = {
    "FAILED": "PAYLOAD_EXIT_NONZERO",
    "FAILED_SETUP": "SETUP_FAILED",
    "FAILED_PRECHECKS": "PRECHECKS_FAILED",
    "FAILED_NO_RESOURCE": "CAPACITY_OR_QUOTA",
    "FAILED_CONTROLLER": "CONTROLLER_UNAVAILABLE",
    "CANCELLED": "CANCELLED_BY_PROVIDER",
}
SCHEDULE_STATES = (
    "INACTIVE",
    "WAITING",
    "LAUNCHING",
    "ALIVE",
    "ALIVE_WAITING",
    "ALIVE_BACKOFF",
    "DONE",
)


class SchemaError(ValueError):
    """The queue's answer has a shape that we do not know: nothing is concluded from it."""


class Row(Struct, frozen=True):
    """One task of one managed job, as SkyPilot tells it. Times are epoch seconds, 0 for none."""

    job_id: int
    task_id: int
    job_name: str
    task_name: str
    status: str
    schedule_state: str
    recovery_count: int
    details: str
    failure_reason: str
    submitted_at: float
    start_at: float
    end_at: float
    cluster: str


class Snapshot(Struct, frozen=True):
    """The whole queue at one look. `as_of` is the time before it was asked."""

    rows: tuple[Row, ...]
    total: int
    as_of: float

    def of_id(self, job_id: int) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.job_id == job_id)

    def ids_of(self, name: str) -> tuple[int, ...]:
        """IDs of the jobs with exactly this name, oldest first."""
        return tuple(sorted({row.job_id for row in self.rows if row.job_name == name}))


def parse(value: Mapping[str, Any], as_of: float) -> Snapshot:
    """A complete, known shape, or SchemaError."""
    try:
        total = value["total"]
        rows = tuple(sorted((_row(r) for r in value["rows"]), key=lambda r: (r.job_id, r.task_id)))
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"{type(error).__name__}: {error}") from error
    keys = [(row.job_id, row.task_id) for row in rows]
    if len(set(keys)) != len(keys):
        raise SchemaError("one task has two rows")
    if not isinstance(total, int) or len({row.job_id for row in rows}) > total:
        raise SchemaError(f"{len(rows)} rows where the queue counts {total!r}")
    return Snapshot(rows, total, as_of)


def _row(raw: Mapping[str, Any]) -> Row:
    job_id, task_id = raw["job_id"], raw["task_id"]
    if not isinstance(job_id, int) or not isinstance(task_id, int):
        raise SchemaError("a row without integer IDs")
    status, schedule = raw["status"], raw["schedule_state"]
    if not isinstance(status, str) or not isinstance(raw["job_name"], str):
        raise SchemaError(f"the row of job {job_id} has no status or name")
    if schedule not in SCHEDULE_STATES:
        raise SchemaError(f"unknown schedule state {schedule!r}")
    return Row(
        job_id=job_id,
        task_id=task_id,
        job_name=raw["job_name"],
        task_name=str(raw["task_name"] or ""),
        status=status,
        schedule_state=schedule,
        recovery_count=int(raw["recovery_count"] or 0),
        details=str(raw["details"] or ""),
        failure_reason=str(raw["failure_reason"] or ""),
        submitted_at=float(raw["submitted_at"] or 0.0),
        start_at=float(raw["start_at"] or 0.0),
        end_at=float(raw["end_at"] or 0.0),
        cluster=str(raw["cluster_name_on_cloud"] or ""),
    )


def is_phantom(rows: Sequence[Row], now: float) -> bool:
    """A row of a submission that went wrong: reserved, and never taken up by a controller."""
    return all(
        row.status == "PENDING"
        and row.schedule_state == "INACTIVE"
        and now - row.submitted_at > PHANTOM_SECONDS
        for row in rows
    )


def job_status(
    rows: Sequence[Row], paths: Mapping[str, str], bound_to: str, as_of: float, first_seen: float
) -> JobStatus:
    """What all rows of one job mean together. `paths` maps task names to step paths.

    `first_seen` stands in for the time of submission, which SkyPilot gives only later.
    """
    members = tuple(_member(row, paths) for row in rows)
    phase = _together([member.phase for member in members])
    dated = [row if row.submitted_at else _dated(row, first_seen) for row in rows]
    phantom = is_phantom(dated, as_of)
    return JobStatus(
        exact=ExactJob(rows[0].job_name, str(rows[0].job_id), as_of, bound_to),
        phase=phase,
        settled=phase.terminal and all(row.schedule_state == "DONE" for row in rows),
        members=members,
        observable=not phantom,
        reason=_reason(rows, phase, phantom),
        capacity=_waits_for_room(rows),
        evidence=(),
    )


def _dated(row: Row, at: float) -> Row:
    return replace(row, submitted_at=at)


def _member(row: Row, paths: Mapping[str, str]) -> MemberStatus:
    phase = PHASES.get(row.status, Phase.UNKNOWN)
    evidence: tuple[Evidence, ...] = ()
    if row.status in CODES:
        evidence = (Evidence(CODES[row.status], SOURCE, hint=row.failure_reason[:500]),)
    return MemberStatus(
        path=paths.get(row.task_name, row.task_name),
        phase=phase,
        evidence=evidence,
        started_at=row.start_at or None,
        ended_at=(row.end_at or None) if phase.terminal else None,
    )


def _together(phases: Sequence[Phase]) -> Phase:
    """One phase for a job: over only when all are over, and failed as soon as it is over."""
    for phase in (
        Phase.UNKNOWN,
        Phase.CANCELLING,
        Phase.RUNNING,
        Phase.STARTING,
        Phase.PENDING,
        Phase.FAILED,
        Phase.CANCELLED,
    ):
        if phase in phases:
            return phase
    return Phase.SUCCEEDED


def _reason(rows: Sequence[Row], phase: Phase, phantom: bool) -> str:
    if phantom:
        return "the row was reserved and no controller has taken it up"
    if phase.terminal:
        settled = all(row.schedule_state == "DONE" for row in rows)
        return "" if settled else "SkyPilot is cleaning up"
    recovering = [row for row in rows if row.status == "RECOVERING"]
    if recovering:
        return f"recovering, {recovering[0].recovery_count} before"
    for row in rows:
        if row.schedule_state == "ALIVE_BACKOFF":
            return "no room yet: SkyPilot tries again"
        if row.details:
            return row.details[:300]
    return ""


def _waits_for_room(rows: Sequence[Row]) -> bool:
    return any(
        row.schedule_state == "ALIVE_BACKOFF" and row.status in ("PENDING", "STARTING")
        for row in rows
    )
