"""decide: the table of docs/architecture.md. Pure and total; the first row that matches wins.

Three questions, three functions, all without a clock, a store or an engine:

    decide(situation)      one open attempt: what may be done about it now
    judge(ended)           one ended attempt: a next attempt, or the wave's final word
    may_start(...)         a wave that has no attempt yet

Unavailable and Ambiguous can only become Wait or Hold: no branch that acts reads them.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from msgspec import Struct

from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.engine import Evidence, ExactJob, JobStatus, Phase
from npa.orchestration.evidence import Klass, strongest
from npa.orchestration.state import Stage


class Goal(Enum):
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    GONE = "gone"

    @property
    def ends(self) -> bool:
        return self is not Goal.COMPLETE


class OutputsKind(Enum):
    NOT_LOOKED = "not looked"
    NONE = "none declared"
    VALID = "valid"
    ABSENT = "absent"  # every declared output is proven absent
    MIXED = "mixed"  # some are there, some are proven absent
    INVALID = "invalid"  # one is there whose payload is not what its schema says
    UNSEEN = "unseen"  # at least one could not be looked at


class Fence(Enum):
    """The claim that a launched job must take before its payload; whoever is first has it."""

    OFF = "off"  # there is none: only time and the queue speak
    NOT_TRIED = "not tried"
    SEALED = "sealed"  # ours: no job of this attempt can run a payload any more
    TAKEN = "taken"  # a job has it
    UNSEEN = "unseen"


class Check(Enum):
    """The real preflight, as far as it is known."""

    STALE = "stale"
    PASSED = "passed"
    FAILED = "failed"


class Situation(Struct, frozen=True):
    """All that is known of one open attempt at this moment.

    Times are seconds. `since_intent` is the age of the launch intent, by the journal's wall clock
    for an earlier driver's: deadlines are measured with it (0: none). `since_odd` is for how long
    this very driver, on its own monotonic clock, has had a view that cannot last: an absent job, a
    word that is not known, an end without its clean-up. Nothing else shows that nothing comes any
    more: wall clocks jump, and who could not look has not seen that it is not there.
    `outputs_own`: no earlier attempt can have written what is there.
    """

    goal: Goal
    superseded: bool
    seal_equal: bool
    stage: Stage
    observation: Observation[JobStatus]
    outputs: OutputsKind
    since_intent: float
    window: float
    skew: float
    deadline: float
    native_id: str
    cancel_why: str  # "" until a cancel intent exists
    cancels: int
    since_cancel: float
    cancel_patience: float
    cancel_repeat: float
    recoveries_left: int
    check: Check
    since_odd: float = 0.0
    odd_patience: float = 600.0
    outputs_own: bool = True
    fence: Fence = Fence.OFF


# -- steps -------------------------------------------------------------------------------------


class Launch(Struct, frozen=True):
    """The attempt is reserved and may be launched: intent first, then act once."""


class Adopt(Struct, frozen=True):
    """An open intent found its job: append the outcome."""

    native_id: str
    source: str


class Cancel(Struct, frozen=True):
    """Cancel one exact job. `why` is user, deadline, configuration:CODE or transient:CODE."""

    exact: ExactJob
    why: str


class LookAtOutputs(Struct, frozen=True):
    """The next decision needs the declared outputs."""


class Seal(Struct, frozen=True):
    """Take the attempt's claim, so that a job of it that still comes runs no payload."""


class RunPreflight(Struct, frozen=True):
    """A recovery needs the real preflight, fresh."""


class Succeed(Struct, frozen=True):
    """Provider success (or a reuse of valid outputs after a transient), outputs validated."""

    reused: bool = False


class Fail(Struct, frozen=True):
    klass: Klass
    code: str
    evidence: Evidence | None = None


class EndCancelled(Struct, frozen=True):
    """Seen terminal after our cancel, or never launched."""

    launched: bool


class EndRefused(Struct, frozen=True):
    """Verified absent: the launch never happened and no longer can."""

    code: str


class Wait(Struct, frozen=True):
    """Nothing to do but look again. `seconds` is how long a look may be put off."""

    reason: str
    seconds: float
    capacity: bool = False


class Hold(Struct, frozen=True):
    """Cannot go on without a person. `code` is stable; `reason` is for people.

    `remedy` is the command that ends it (filled in by `npa.orchestration.remedies`).
    """

    code: str
    reason: str
    remedy: str = ""


class Superseded(Struct, frozen=True):
    """Another driver is current: stop acting."""


Step = (
    Launch
    | Adopt
    | Cancel
    | LookAtOutputs
    | Seal
    | RunPreflight
    | Succeed
    | Fail
    | EndCancelled
    | EndRefused
    | Wait
    | Hold
    | Superseded
)

NEVER_RAN = "transient:PRE_PAYLOAD_TRANSPORT"  # why a row that does not answer is cancelled
SOON = 1.0  # seconds until a look that is expected to tell something new
LATER = 5.0


def decide(s: Situation) -> Step:
    """One step for one open attempt. The row numbers are those of docs/architecture.md."""
    if s.superseded:  # 1
        return Superseded()
    if not s.seal_equal and s.goal is Goal.COMPLETE:  # 2
        return Hold("IDENTITY", "the sealed inputs of this run have changed")
    if s.stage is Stage.RESERVED:  # 9: no launch intent was made, so nothing can be out there
        return EndCancelled(launched=False) if s.goal.ends else Launch()
    match s.observation:
        case Unavailable(cause=cause):  # 3
            return Wait(f"cannot see the job ({cause}); nothing is concluded from that", LATER)
        case Ambiguous(candidates=found):  # 4
            return Hold("AMBIGUOUS", f"{len(found)} jobs answer to one name: {', '.join(found)}")
        case Absent(proof=proof, late_possible=late):
            return _absent(s, proof, late)
        case Found(value=status, source=source):
            return _found(s, status, source)
        case _:
            assert_never(s.observation)


def _absent(s: Situation, proof: str, late: bool) -> Step:
    if s.stage is Stage.INTENDED:
        if late and s.since_odd <= s.window + s.skew:  # 7
            return Wait("the launch may still arrive", min(SOON, s.window + s.skew))
        return _never_came(s)
    if late and s.since_odd <= s.window + s.skew:  # one look may be stale, or too early
        return Wait("the job is not in the queue", SOON)
    # A job that was seen and is gone: only its outputs can tell (rows 21 and 22).
    match s.outputs:
        case OutputsKind.NOT_LOOKED:
            return LookAtOutputs()
        case OutputsKind.VALID if s.outputs_own:
            return Succeed(reused=True)
        case OutputsKind.UNSEEN:
            return Wait("the job is gone and its outputs cannot be seen", LATER)
        case (
            OutputsKind.NONE
            | OutputsKind.ABSENT
            | OutputsKind.MIXED
            | OutputsKind.INVALID
            | OutputsKind.VALID
        ):
            return Hold("VANISHED", f"the job was there and is gone ({proof})")
        case _:
            assert_never(s.outputs)


def _never_came(s: Situation) -> Step:
    """8: nothing came; the claim is taken first, so that what still comes runs no payload."""
    match s.fence:
        case Fence.NOT_TRIED:
            return Seal()
        case Fence.UNSEEN:
            return Wait("the attempt's claim cannot be taken now", LATER)
        case Fence.TAKEN:
            if s.since_odd <= s.odd_patience:
                return Wait(
                    "a job of this attempt has begun; the queue does not show it yet", LATER
                )
            return Hold("CLAIMED", "a job of this attempt has begun, and no queue shows it")
        case Fence.OFF | Fence.SEALED:
            return EndRefused("LAUNCH_VERIFIED_ABSENT")
        case _:
            assert_never(s.fence)


def _found(s: Situation, status: JobStatus, source: str) -> Step:
    if s.native_id and status.exact.native_id != s.native_id:  # 4
        return Hold("AMBIGUOUS", f"the name belongs to job {status.exact.native_id} now")
    if s.stage is Stage.INTENDED:
        return Adopt(status.exact.native_id, source)  # 5, and 6 begins here too
    if status.phase is Phase.UNKNOWN:  # 26
        if s.since_odd > s.odd_patience:
            return Hold("UNKNOWN", "the provider goes on saying a word that is not known")
        return Wait("the provider says a word that is not known", LATER)
    if status.phase.terminal and status.settled:
        return _terminal(s, status)
    return _live(s, status)


def _live(s: Situation, status: JobStatus) -> Step:
    why = _reason_to_cancel(s, status)
    if why.startswith("transient") and not s.cancels and not s.goal.ends:
        blocked = _may_replace(s, why)
        if blocked is not None:
            return blocked
    if why:  # 6, 10, 11, 17, 20
        return _cancel(s, status, why)
    if status.phase.terminal:
        if s.since_odd > s.odd_patience:
            return Hold("UNSETTLED", "the job has ended and its provider does not finish with it")
        return Wait(status.reason or "the provider is still cleaning up", SOON)
    if status.capacity:  # 18
        return Wait(status.reason or "waiting for room", LATER, capacity=True)
    return Wait(status.reason or f"the job is {status.phase.value}", LATER)  # 19


def _reason_to_cancel(s: Situation, status: JobStatus) -> str:
    if status.phase.terminal:
        return ""  # it has ended by itself; only its clean-up is missing
    if s.cancel_why:
        return s.cancel_why
    if s.goal.ends:  # 10
        return "user"
    klass, fact = strongest(status.evidence)
    if fact is not None and klass is Klass.CONFIGURATION:  # 11
        return f"configuration:{fact.code}"
    if s.deadline and s.since_intent > s.deadline:  # 17
        return "deadline"
    if fact is not None and klass is Klass.TRANSIENT:  # 20
        return f"transient:{fact.code}"
    if not status.observable:  # 6: a row that does not answer is replaced, never just forgotten
        return NEVER_RAN
    return ""


def _may_replace(s: Situation, why: str) -> Step | None:
    """Rows 6 and 20: outputs are looked at before the cancel, and again after it."""
    match s.outputs:
        case OutputsKind.NOT_LOOKED:
            return LookAtOutputs()
        case OutputsKind.UNSEEN:
            return Wait("a transient failure; its outputs cannot be seen yet", LATER)
        case OutputsKind.MIXED:
            return SOME_EXIST
        case OutputsKind.INVALID:
            return ONE_IS_INVALID
        case OutputsKind.VALID if why == NEVER_RAN or not s.outputs_own:
            return NOT_ITS_OWN
        case OutputsKind.NONE | OutputsKind.ABSENT | OutputsKind.VALID:
            return None
        case _:
            assert_never(s.outputs)


PREFLIGHT_FAILS = Hold("PREFLIGHT", "the preflight does not pass, so nothing is launched again")
SOME_EXIST = Hold("OUTPUT_EVIDENCE", "some declared outputs exist and some do not")
ONE_IS_INVALID = Hold("OUTPUT_EVIDENCE", "a declared output exists and is not what its schema says")
NOT_ITS_OWN = Hold("OUTPUT_EVIDENCE", "declared outputs exist that this attempt may not have made")


def _cancel(s: Situation, status: JobStatus, why: str) -> Step:
    if not s.cancels:
        return Cancel(status.exact, why)
    if s.since_cancel > s.cancel_patience:  # 10: the policy is finite
        return Hold("CANCELLATION_UNVERIFIED", "the job was asked to stop and was not seen to")
    if s.since_cancel > s.cancel_repeat * s.cancels:
        return Cancel(status.exact, why)
    return Wait("cancelling: waiting to see it stopped", SOON)


def _terminal(s: Situation, status: JobStatus) -> Step:
    match status.phase:
        case Phase.SUCCEEDED:
            return _success(s)
        case Phase.FAILED | Phase.CANCELLED:
            return _ended_badly(s, status)
        case _:
            return Hold("UNKNOWN", f"{status.phase.value} is not an end")  # 26


def _success(s: Situation) -> Step:
    match s.outputs:
        case OutputsKind.NOT_LOOKED:
            return LookAtOutputs()
        case OutputsKind.VALID | OutputsKind.NONE:  # 13
            return Succeed()
        case OutputsKind.ABSENT | OutputsKind.MIXED:  # 14
            return Fail(Klass.PAYLOAD, "DECLARED_OUTPUT_MISSING")
        case OutputsKind.INVALID:  # 14
            return Fail(Klass.PAYLOAD, "DECLARED_OUTPUT_INVALID")
        case OutputsKind.UNSEEN:  # 15
            if s.goal.ends:
                return EndCancelled(launched=True)  # it is over, which is all that was asked
            return Wait("it ended well; its outputs cannot be seen yet", LATER)
        case _:
            assert_never(s.outputs)


def _ended_badly(s: Situation, status: JobStatus) -> Step:
    klass, fact = strongest(status.evidence + _of_members(status))
    if s.cancel_why == "deadline":
        return Fail(Klass.PAYLOAD, "DEADLINE", fact)
    if s.cancel_why == "user":
        return EndCancelled(launched=True)
    why, _, code = s.cancel_why.partition(":")
    if why == "configuration":
        return Fail(Klass.CONFIGURATION, code, fact)
    if klass is Klass.CONFIGURATION and fact is not None:  # 11
        return Fail(klass, fact.code, fact)
    if klass is Klass.PAYLOAD and fact is not None:  # 12
        return Fail(klass, fact.code, fact)
    if s.goal.ends:
        return EndCancelled(launched=True)  # it is over, which is all that was asked
    if why == "transient":
        return _transient(s, Evidence(code, "journal"))
    if klass is Klass.TRANSIENT and fact is not None:  # 21 to 25
        return _transient(s, fact)
    if status.phase is Phase.CANCELLED:
        return Fail(Klass.CANCELLED, "FOREIGN_CANCELLATION", fact)  # 16
    said = fact.code if fact is not None else "no evidence"
    return Hold("UNKNOWN", f"the job failed and nothing known says why ({said})")  # 26


def _of_members(status: JobStatus) -> tuple[Evidence, ...]:
    return tuple(fact for m in status.members for fact in m.evidence)


def _transient(s: Situation, fact: Evidence) -> Step:
    match s.outputs:
        case OutputsKind.NOT_LOOKED:
            return LookAtOutputs()
        case OutputsKind.VALID:  # 21
            ran = s.cancel_why != NEVER_RAN
            return Succeed(reused=True) if ran and s.outputs_own else NOT_ITS_OWN
        case OutputsKind.MIXED:  # 22
            return SOME_EXIST
        case OutputsKind.INVALID:  # 22
            return ONE_IS_INVALID
        case OutputsKind.UNSEEN:
            return Wait("a transient failure; its outputs cannot be seen yet", LATER)
        case OutputsKind.ABSENT | OutputsKind.NONE:
            pass
        case _:
            assert_never(s.outputs)
    if s.recoveries_left <= 0:  # 23
        return Fail(Klass.TRANSIENT, "INFRASTRUCTURE_RECOVERY_EXHAUSTED", fact)
    match s.check:
        case Check.STALE:  # 24
            return RunPreflight()
        case Check.FAILED:
            return PREFLIGHT_FAILS
        case Check.PASSED:  # 25: ends this attempt; `judge` reserves the successor
            return Fail(Klass.TRANSIENT, fact.code, fact)
        case _:
            assert_never(s.check)


# -- after the end -----------------------------------------------------------------------------


class Verdict(Enum):
    """What follows the end of an attempt."""

    AGAIN_RETRY = "retry"
    AGAIN_RECOVERY = "recovery"
    FINAL = "final"


def judge(
    klass: Klass, *, goal: Goal, retries_left: int, recoveries_left: int, exhausted: bool
) -> Verdict:
    """A next attempt, or the wave's final word, after an attempt that did not succeed.

    `exhausted` is true when the end already says that the recovery budget is used.
    """
    if goal.ends or exhausted:
        return Verdict.FINAL
    match klass:
        case Klass.PAYLOAD:
            return Verdict.AGAIN_RETRY if retries_left > 0 else Verdict.FINAL
        case Klass.TRANSIENT:
            return Verdict.AGAIN_RECOVERY if recoveries_left > 0 else Verdict.FINAL
        case Klass.CONFIGURATION | Klass.CANCELLED | Klass.CAPACITY | Klass.UNKNOWN:
            return Verdict.FINAL
        case _:
            assert_never(klass)
