"""What may be written in a journal: about fifteen kinds of entry, all facts, all additive.

Bodies hold plain JSON values only. No secret and no prose of a provider is ever written: a hint
travels as a digest of its text (the text itself stays in a 0600 file on the host).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

Json = Mapping[str, object]


class Verb(StrEnum):
    LAUNCH = "launch"
    CANCEL = "cancel"


class Cause(StrEnum):
    """Why an attempt was reserved."""

    FIRST = "first"
    RETRY = "retry"  # the payload budget pays
    RECOVERY = "recovery"  # the infrastructure budget pays
    RERUN = "rerun"  # an earlier success can no longer be reused
    OPERATOR = "operator"  # a person asked for it


class Result(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"  # nothing was launched, proven


class Genesis(Struct, frozen=True):
    """The seal and what it was made from. `request` is enough to rebuild the run anywhere."""

    seal: str
    parts: Json
    request: Json
    version: int = 1


class DriverEntry(Struct, frozen=True):
    """One driver is current from here on; its epoch is the number of this frame."""

    host: str
    boot: str
    pid: int
    start_ticks: int
    goal: str


class Reserved(Struct, frozen=True):
    """An attempt exists. `digests` maps member path to the hash of what it would run."""

    wave: str
    label: str
    number: int
    key: str
    name: str
    cause: Cause
    digests: Mapping[str, str]
    states: tuple[str, ...] = ()
    parent: str = ""


class Intent(Struct, frozen=True):
    """We are about to act once. `window_seconds`: how long the request may be in flight."""

    key: str
    verb: Verb
    window_seconds: float = 0.0
    native_id: str = ""
    why: str = ""


class Outcome(Struct, frozen=True):
    """What came of a launch intent: the provider's own ID, and who said so."""

    key: str
    native_id: str
    source: str
    adopted: bool = False


class Observed(Struct, frozen=True):
    """A change in what the provider says of an attempt (never a mere repetition)."""

    key: str
    phase: str
    reason: str = ""
    members: Mapping[str, str] = field(default_factory=dict)


class CancelUnverified(Struct, frozen=True):
    """The finite cancellation policy is used up and the job was not seen terminal."""

    key: str
    native_id: str
    asked: int


class Vouched(Struct, frozen=True):
    """A person states that nothing of an attempt's job runs, or can still come to run."""

    key: str
    by: str
    reason: str = ""


class MemberEnd(Struct, frozen=True):
    """How one member of an attempt ended. `outputs`: (uri, size in bytes, etag) as validated.

    `invalid`: which payloads are not what their schema says, and why.
    """

    result: Result
    klass: str = ""
    code: str = ""
    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None
    log_line: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    outputs: tuple[tuple[str, int, str], ...] = ()
    missing: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()


class Ended(Struct, frozen=True):
    """An attempt is over, for good. `first_failed` names the member that failed first."""

    key: str
    result: Result
    klass: str
    code: str
    members: Mapping[str, MemberEnd]
    provider: str = ""  # the provider's own last word, never rewritten
    first_failed: str = ""
    leftovers: tuple[str, ...] = ()


class Decision(Struct, frozen=True):
    """A decision artifact was read. Valid for exactly the attempt that wrote it.

    `asked` is the digest of the gates that were asked, "" where none were.
    """

    question: str
    value: str
    writer_key: str
    uri: str
    digest: str
    seen: str = ""
    assumed: bool = False
    asked: str = ""


class Expansion(Struct, frozen=True):
    """The items of a `foreach`, as read from its manifest."""

    question: str
    items: tuple[str | int | float | bool | None, ...]
    uri: str
    digest: str


class Triggered(Struct, frozen=True):
    """A trigger's condition was seen to hold."""

    path: str
    uri: str
    objects: int
    polls: int


class Invalidated(Struct, frozen=True):
    """Earlier successes of these step paths, and answers to these questions, are not reused."""

    paths: tuple[str, ...]
    cause: str


class CancelRequested(Struct, frozen=True):
    """Somebody wants the run cancelled: the goal is Cancelled from here on."""

    reason: str
    by: str


class Reopened(Struct, frozen=True):
    """A person lets a run go on after its end, or accepts changed inputs (then `seal` is new)."""

    reason: str
    seal: str = ""
    parts: Json = field(default_factory=dict)
    request: Json = field(default_factory=dict)


class Preflight(Struct, frozen=True):
    """The real preflight was run; `passed` and what it found, by code."""

    passed: bool
    findings: tuple[str, ...] = ()


class Held(Struct, frozen=True):
    """The run cannot go on by itself: why, and the command that ends the hold."""

    code: str
    reason: str
    remedy: str
    subject: str = ""


class Heartbeat(Struct, frozen=True):
    """The driver lives (at most one each 15 minutes)."""


class Released(Struct, frozen=True):
    """The driver leaves in order; the run goes on when another takes the lease."""

    why: str


class Completed(Struct, frozen=True):
    """The run is complete. Names the last wave, the terminal state, and states that never ran."""

    wave: str
    terminal: str
    skipped: tuple[str, ...] = ()


class RunFailed(Struct, frozen=True):
    """The run cannot complete. `skipped` are the states that never ran."""

    code: str
    reason: str
    path: str = ""
    skipped: tuple[str, ...] = ()


class RunCancelled(Struct, frozen=True):
    reason: str


Entry = (
    Genesis
    | DriverEntry
    | Reserved
    | Intent
    | Outcome
    | Observed
    | CancelUnverified
    | Vouched
    | Ended
    | Decision
    | Expansion
    | Triggered
    | Invalidated
    | CancelRequested
    | Reopened
    | Preflight
    | Held
    | Heartbeat
    | Released
    | Completed
    | RunFailed
    | RunCancelled
)
