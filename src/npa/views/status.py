"""Status of a run: job truth (live, exact ID) beside workflow truth (recorded). Pure.

The recorded part carries the time and the source of the entry that says so, never the time of the
look. A look is no heartbeat: whether a driver lives is a fact of its own, and "unknown" is one of
its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.engine import JobStatus, MemberStatus, Phase
from npa.orchestration.journal import entries as e
from npa.orchestration.state import Attempt, Lifecycle, RunState, Stage

if TYPE_CHECKING:
    from npa.views.planned import Planned


class Liveness(Enum):
    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    NONE = "none"  # the run is over, or no driver was ever recorded


class Verification(Enum):
    """What the live look came to, for all open attempts together."""

    VERIFIED = "VERIFIED"
    UNAVAILABLE = "VERIFICATION_UNAVAILABLE"
    CACHED = "CACHED"  # no look was made
    INCONSISTENT = "EVIDENCE_INCONSISTENT"


class StepView(Struct, frozen=True):
    """One step by its latest attempt. Times are epoch seconds, None when not known.

    `recorded` is what the journal says; `live` what was seen just now ("" when not looked at).
    """

    path: str
    state: str
    recorded: str
    attempt: int
    job_name: str
    job_id: str
    live: str = ""
    live_source: str = ""
    reason: str = ""
    code: str = ""
    klass: str = ""
    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None
    log_line: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    outputs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()  # how earlier attempts of this step ended


class RunView(Struct, frozen=True):
    """A run at one moment. `as_of` is when the live look was made; `updated_at` is recorded."""

    run_id: str
    run_uri: str
    workflow: str
    status: str
    verification: Verification
    completion_recorded: bool
    updated_at: float
    source: str
    created_at: float
    as_of: float
    driver: Liveness
    driver_where: str
    steps: tuple[StepView, ...]
    counts: Mapping[str, int]
    decisions: tuple[e.Decision, ...] = ()
    holds: tuple[e.Held, ...] = ()
    terminal: str = ""
    failure_code: str = ""
    failure_reason: str = ""
    failure_path: str = ""
    cancel_reason: str = ""
    cancel_by: str = ""
    retries_used: int = 0
    recoveries_used: int = 0
    problems: tuple[str, ...] = field(default=())
    skipped: tuple[str, ...] = ()  # states that never ran, once the run is over
    planned: Planned | None = None  # what is to come; None when it cannot be told


_WORD = {
    Lifecycle.NEW: "PENDING",
    Lifecycle.RUNNING: "RUNNING",
    Lifecycle.COMPLETED: "SUCCEEDED",
    Lifecycle.FAILED: "FAILED",
    Lifecycle.CANCELLED: "CANCELLED",
}


def view_run(
    *,
    run_id: str,
    run_uri: str,
    workflow: str,
    state: RunState,
    live: Mapping[str, Observation[JobStatus]] | None,
    driver: Liveness,
    as_of: float,
) -> RunView:
    """Project a run. `live` maps job names to fresh looks; None when no look was made."""
    steps = tuple(_step(path, a, state, live) for path, a in state.latest.items())
    problems = _problems(state, live)
    verification = _verification(state, live, problems)
    status = _WORD[state.lifecycle]
    if state.lifecycle is Lifecycle.RUNNING and state.cancel is not None:
        status = "CANCELLING"
    if state.lifecycle is Lifecycle.RUNNING and state.held:
        status = "HELD"
    counts: dict[str, int] = {}
    for step in steps:
        word = step.live or step.recorded
        counts[word] = counts.get(word, 0) + 1
    failure, cancel = state.failure, state.cancel
    return RunView(
        run_id=run_id,
        run_uri=run_uri,
        workflow=workflow,
        status=status,
        verification=verification,
        completion_recorded=state.lifecycle.over,
        updated_at=state.lifecycle_at if state.lifecycle.over else state.at,
        source="journal",
        created_at=state.created_at,
        as_of=as_of,
        driver=Liveness.NONE if state.driver is None or state.driver.released else driver,
        driver_where=f"process {state.driver.pid} on {state.driver.host}" if state.driver else "",
        steps=steps,
        counts=counts,
        decisions=tuple(state.decisions.values()),
        holds=tuple(state.held.values()),
        terminal=state.terminal,
        failure_code=failure.code if failure else "",
        failure_reason=failure.reason if failure else "",
        failure_path=failure.path if failure else "",
        cancel_reason=cancel.reason if cancel else "",
        cancel_by=cancel.by if cancel else "",
        retries_used=_caused(state, e.Cause.RETRY),
        recoveries_used=_caused(state, e.Cause.RECOVERY),
        problems=problems,
        skipped=state.skipped,
    )


def _step(
    path: str,
    attempt: Attempt,
    state: RunState,
    live: Mapping[str, Observation[JobStatus]] | None,
) -> StepView:
    earlier = tuple(
        f"attempt {a.number}: {_end_text(a, path)}"
        for a in state.waves[attempt.wave].attempts
        if a is not attempt and path in a.digests
    )
    seen = live.get(attempt.name) if live is not None and attempt.open else None
    common = {
        "path": path,
        "state": attempt.state_of(path),
        "attempt": attempt.number,
        "job_name": attempt.name,
        "job_id": attempt.native_id,
        "earlier": earlier,
    }
    if attempt.end is not None:
        member = attempt.end.members[path]
        return StepView(
            **common,  # type: ignore[arg-type]
            recorded=member.result.value,
            code=member.code,
            klass=member.klass,
            exit_code=member.exit_code,
            signal=member.signal,
            rank=member.rank,
            log_line=member.log_line,
            started_at=member.started_at,
            ended_at=member.ended_at or attempt.ended_at,
            outputs=tuple(uri for uri, _, _ in member.outputs),
            missing=member.missing,
            reason="; ".join(member.invalid),
            leftovers=attempt.end.leftovers,
        )
    word, source, reason, at_it = _live_of(path, seen)
    started, ended = (at_it.started_at, at_it.ended_at) if at_it is not None else (None, None)
    return StepView(
        **common,  # type: ignore[arg-type]
        recorded=_recorded(attempt, path),
        live=word,
        live_source=source,
        reason=reason or attempt.reason,
        started_at=started or attempt.intended_at or None,
        ended_at=ended,
    )


def _recorded(attempt: Attempt, path: str) -> str:
    if attempt.stage is Stage.RESERVED:
        return "reserved"
    if attempt.stage is Stage.INTENDED:
        return "launching"
    return attempt.member_phases.get(path) or attempt.phase or "launched"


def _live_of(
    path: str, seen: Observation[JobStatus] | None
) -> tuple[str, str, str, MemberStatus | None]:
    """Word, source and reason of a fresh look, and what it says of the step itself."""
    match seen:
        case None:
            return "", "", "", None
        case Found(value=status, source=source):
            member = next((m for m in status.members if m.path == path), None)
            phase = member.phase if member is not None else status.phase
            return phase.value, source, status.reason, member
        case Absent(proof=proof, source=source):
            return "absent", source, proof, None
        case Unavailable(cause=cause, detail=detail, source=source):
            return "unavailable", source, f"{cause}: {detail}", None
        case Ambiguous(candidates=found, source=source):
            return "ambiguous", source, f"candidates: {', '.join(found)}", None


def _end_text(attempt: Attempt, path: str) -> str:
    if attempt.end is None:
        return "open"
    member = attempt.end.members[path]
    return f"{member.result.value} ({member.code})" if member.code else member.result.value


def _problems(
    state: RunState, live: Mapping[str, Observation[JobStatus]] | None
) -> tuple[str, ...]:
    """What the fresh looks could not tell, or tell against the record."""
    if live is None:
        return ()
    found: list[str] = []
    for attempt in state.live.values():
        if attempt.stage is Stage.RESERVED:
            continue
        match live.get(attempt.name):
            case Unavailable(cause=cause):
                found.append(f"{attempt.name}: cannot be seen ({cause})")
            case Ambiguous(candidates=ids):
                found.append(f"{attempt.name}: ambiguous, {len(ids)} jobs: {', '.join(ids)}")
            case Found(value=status) if (
                attempt.native_id and status.exact.native_id != attempt.native_id
            ):
                found.append(
                    f"{attempt.name}: recorded as {attempt.native_id}, "
                    f"but {status.exact.native_id} answers"
                )
            case Absent() if attempt.stage is Stage.LAUNCHED:
                found.append(f"{attempt.name}: recorded as live, but absent")
            case _:
                pass
    return tuple(found)


def _verification(
    state: RunState,
    live: Mapping[str, Observation[JobStatus]] | None,
    problems: Sequence[str],
) -> Verification:
    if live is None:
        return Verification.VERIFIED if state.lifecycle.over else Verification.CACHED
    if any("cannot be seen" in p for p in problems):
        return Verification.UNAVAILABLE
    return Verification.INCONSISTENT if problems else Verification.VERIFIED


def _caused(state: RunState, cause: e.Cause) -> int:
    return sum(1 for a in state.attempts.values() if a.cause is cause)


def terminal_phase(word: str) -> bool:
    """Is `word` the end of a job?"""
    return word in {p.value for p in Phase if p.terminal}


def to_json(view: RunView) -> dict[str, object]:
    """The public JSON of `status --json`: stable keys, one document."""
    return {
        "run_id": view.run_id,
        "run_uri": view.run_uri,
        "workflow": view.workflow,
        "status": view.status,
        "verification": "found"
        if view.verification is Verification.VERIFIED
        else ("cached" if view.verification is Verification.CACHED else "unavailable"),
        "verification_status": view.verification.value,
        "live_verified": view.verification is Verification.VERIFIED,
        "automation_may_trust_state": view.verification is Verification.VERIFIED,
        "as_of": view.as_of,
        "workflow_lifecycle": {
            "recorded": view.status,
            "completion_recorded": view.completion_recorded,
            "driver_liveness": view.driver.value,
            "driver": view.driver_where,
            "source": view.source,
            "updated_at": view.updated_at,
            "created_at": view.created_at,
        },
        "terminal_state": view.terminal,
        "failure": {
            "code": view.failure_code,
            "reason": view.failure_reason,
            "path": view.failure_path,
        },
        "cancellation": {"reason": view.cancel_reason, "by": view.cancel_by},
        "budgets": {"retries_used": view.retries_used, "recoveries_used": view.recoveries_used},
        "counts": dict(view.counts),
        "holds": [
            {"code": h.code, "reason": h.reason, "remedy": h.remedy, "subject": h.subject}
            for h in view.holds
        ],
        "progress": _progress_json(view),
        "problems": list(view.problems),
        "skipped": list(view.skipped),
        "decisions": [
            {
                "question": d.question,
                "value": d.value,
                "uri": d.uri,
                "assumed": d.assumed,
                "seen": d.seen,
            }
            for d in view.decisions
        ],
        "steps": [_step_json(s) for s in view.steps],
    }


def _progress_json(view: RunView) -> dict[str, object]:
    """`steps` counts all of the run, or bounds them unless `exact`; null when not known."""
    ahead = view.planned
    if ahead is None:
        done = sum(step.recorded == "succeeded" for step in view.steps)
        complete = view.status == "SUCCEEDED"
        whole = done if complete else None
        return {
            "done": done,
            "steps": whole,
            "exact": complete,
            "planned": [],
            "too_large": False,
        }
    return {
        "done": ahead.done,
        "steps": ahead.total,
        "exact": ahead.exact,
        "planned": [
            {"path": step.path, "certain": step.certain, "at_most": step.at_most}
            for step in ahead.steps
        ],
        "too_large": ahead.too_large,
    }


def _step_json(step: StepView) -> dict[str, object]:
    return {name: _listed(getattr(step, name)) for name in StepView.__struct_fields__}


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
