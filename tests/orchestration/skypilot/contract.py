"""What must hold of an engine over a bridge, whichever bridge: the stand-in, or a real SkyPilot.

`tests/orchestration/skypilot/test_contract.py` runs these against the stand-in in a second, and
`tests/e2e/skypilot` against SkyPilot 0.12.2 when the bed is up.
"""

from __future__ import annotations

from collections.abc import Callable

from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.engine import (
    CancelRequested,
    CancelUnknown,
    ExactJob,
    Job,
    JobRef,
    JobStatus,
    Launched,
    Phase,
)
from npa.orchestration.skypilot.engine import SkyPilotEngine

LOOKS_MAX = 200


def look(engine: SkyPilotEngine, ref: JobRef) -> Observation[JobStatus]:
    engine.wait(3.0)
    return engine.observe([ref])[ref.name]


def until(engine: SkyPilotEngine, ref: JobRef, what: Callable[[JobStatus], bool]) -> JobStatus:
    last: object = None
    for _ in range(LOOKS_MAX):
        last = look(engine, ref)
        if isinstance(last, Found) and what(last.value):
            return last.value
    raise AssertionError(last)


def holds_from_launch_to_cancel(engine: SkyPilotEngine, job: Job) -> None:
    """`job` has one task at step path `a` and does not end by itself."""
    reply = engine.launch(job)
    assert isinstance(reply, Launched)
    ref = JobRef(job.name, job.key, reply.native_id)

    # It is seen under its name, its ID and its step path.
    seen = until(engine, ref, lambda _: True)
    assert (seen.exact.name, seen.exact.native_id) == (job.name, reply.native_id)
    assert [member.path for member in seen.members] == ["a"]
    assert seen.observable
    assert not seen.settled

    # The same launch again is the same job.
    assert engine.launch(job) == Launched(reply.native_id, "adopted")

    # Its ID under another name is a contradiction; another name alone is absent after two looks.
    assert isinstance(look(engine, JobRef("other", "00", reply.native_id)), Ambiguous)
    assert isinstance(look(engine, JobRef("nobody", "00")), Unavailable)
    assert isinstance(look(engine, JobRef("nobody", "00")), Absent)

    # A proof of another server, or of another name, cancels nothing.
    exact = until(engine, ref, lambda _: True).exact
    for lie in (
        ExactJob(exact.name, exact.native_id, exact.seen_at, "elsewhere"),
        ExactJob("other", exact.native_id, exact.seen_at, exact.bound_to),
    ):
        assert isinstance(engine.cancel(lie), CancelUnknown)
    assert not until(engine, ref, lambda _: True).phase.terminal

    # The right one does, and is over when the queue says so.
    exact = until(engine, ref, lambda _: True).exact
    assert engine.cancel(exact) == CancelRequested()
    ended = until(engine, ref, lambda status: status.settled)
    assert ended.phase is Phase.CANCELLED
    assert [f.code for m in ended.members for f in m.evidence] == ["CANCELLED_BY_PROVIDER"]

    # What has ended stays as it is, and is not launched again.
    assert engine.launch(job) == Launched(reply.native_id, "adopted")
