"""How an attempt and its members ended, as the journal says it. Nothing here decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec import Struct

from npa.orchestration.decide import OutputsKind
from npa.orchestration.engine import JobStatus, MemberStatus, Phase
from npa.orchestration.evidence import Klass, strongest
from npa.orchestration.journal import entries as e
from npa.orchestration.outputs import Artifacts, OutputsSeen, look_at_outputs
from npa.workflow.step import Step


class How(Struct, frozen=True):
    """How an attempt ends."""

    result: e.Result
    klass: str = ""
    code: str = ""


def member_end(
    step: Step,
    said: MemberStatus | None,
    how: How,
    seen: OutputsSeen | None,
    artifacts: Artifacts,
) -> e.MemberEnd | None:
    """How one member ended; None when its outputs must be seen first and cannot be now."""
    started = said.started_at if said is not None else None
    ended = said.ended_at if said is not None else None
    succeeded = how.result is e.Result.SUCCEEDED or (
        said is not None and said.phase is Phase.SUCCEEDED
    )
    if succeeded:
        seen = seen or look_at_outputs(step.outputs, artifacts)
        match seen.kind:
            case OutputsKind.VALID | OutputsKind.NONE:
                return e.MemberEnd(
                    e.Result.SUCCEEDED,
                    started_at=started,
                    ended_at=ended,
                    outputs=seen.records,
                )
            case OutputsKind.UNSEEN | OutputsKind.NOT_LOOKED:
                return None
            case OutputsKind.ABSENT | OutputsKind.MIXED:
                return e.MemberEnd(
                    e.Result.FAILED,
                    Klass.PAYLOAD.value,
                    "DECLARED_OUTPUT_MISSING",
                    started_at=started,
                    ended_at=ended,
                    missing=seen.missing,
                )
            case OutputsKind.INVALID:
                return e.MemberEnd(
                    e.Result.FAILED,
                    Klass.PAYLOAD.value,
                    "DECLARED_OUTPUT_INVALID",
                    started_at=started,
                    ended_at=ended,
                    missing=seen.missing,
                    invalid=seen.invalid,
                )
            case _:
                assert_never(seen.kind)
    facts = said.evidence if said is not None else ()
    own, fact = strongest(facts)
    explained = fact is not None and how.result is e.Result.FAILED and not _ours(how.code)
    return e.MemberEnd(
        result=how.result,
        klass=own.value if explained else how.klass,
        code=fact.code if explained and fact is not None else how.code,
        exit_code=fact.exit_code if fact is not None else None,
        signal=fact.signal if fact is not None else None,
        rank=fact.rank if fact is not None else None,
        log_line=fact.log_line if fact is not None else None,
        started_at=started,
        ended_at=ended,
    )


def _ours(code: str) -> bool:
    """Ends that we brought about ourselves keep our reason, whatever the process says."""
    return code.startswith("DECLARED_OUTPUT_") or code in (
        "DEADLINE",
        "INFRASTRUCTURE_RECOVERY_EXHAUSTED",
    )


def first_failed(status: JobStatus | None, ends: Mapping[str, e.MemberEnd]) -> str:
    """The member that failed first and by itself (not the ones that fell with it)."""
    failed = [p for p, m in ends.items() if m.result is e.Result.FAILED]
    if status is None or len(ends) == 1:
        return failed[0] if failed else ""
    when = {m.path: m.ended_at for m in status.members if m.phase is Phase.FAILED}
    own = [p for p in failed if p in when] or failed
    return min(own, key=lambda p: when.get(p) or float("inf"), default="")
