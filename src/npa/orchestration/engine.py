"""What an engine is: preflight, room, launch, observe, cancel, logs, wait.

Nothing above this seam knows which engine it drives. Two implementations ship (`local`,
`skypilot`), and `tests/simulation` drives the same driver against a third.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct, field

from npa.observation import Observation
from npa.target.secret import Secret
from npa.workflow.step import Step


class Phase(Enum):
    """Where a job is, in one provider-neutral word."""

    PENDING = "pending"  # accepted, nothing runs yet
    STARTING = "starting"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # a word that we do not know: never acted upon

    @property
    def terminal(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


class Evidence(Struct, frozen=True):
    """One typed fact about a failure or a wait. `code` is a row of `npa.orchestration.evidence`.

    `exit_code` and `signal` when a process ended; `rank` and `log_line` (1-based) when known.
    `hint` is free text for people: it never changes what is decided.
    """

    code: str
    source: str
    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None
    log_line: int | None = None
    hint: str = ""


class MemberStatus(Struct, frozen=True):
    """One task of a job, by step path."""

    path: str
    phase: Phase
    evidence: tuple[Evidence, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None


class ExactJob(Struct, frozen=True):
    """Proof that one exact job was seen: the argument without which nothing can be cancelled.

    Made by an engine's `observe`, never stored. `native_id` is the provider's own ID (as text).
    """

    name: str
    native_id: str
    seen_at: float
    bound_to: str  # host, boot and session for which the proof holds


class JobStatus(Struct, frozen=True):
    """What a provider says of one job.

    `settled`: the provider's own clean-up is over; a terminal phase counts only then.
    `observable`: the row answers to looks (false for a phantom row of a launch gone wrong).
    `reason`: what the provider says the job waits for, for people.
    `leftovers`: processes or pods that outlived the task and were found (pid or name, what became).
    """

    exact: ExactJob
    phase: Phase
    settled: bool
    members: tuple[MemberStatus, ...]
    observable: bool = True
    reason: str = ""
    capacity: bool = False  # it waits for room, nothing else
    evidence: tuple[Evidence, ...] = ()
    leftovers: tuple[str, ...] = ()


class JobRef(Struct, frozen=True):
    """How to find a job again: its exact name, its key, and the native ID if one was learned."""

    name: str
    key: str
    native_id: str = ""


class Task(Struct, frozen=True):
    """One step, ready to be launched as (a member of) a job.

    `env` is the public environment; `secrets` the values to hand to the child and nobody else.
    """

    step: Step
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)


class Job(Struct, frozen=True):
    """What is launched: one task, or the members of a group. `key` is the effect key (hex)."""

    name: str
    key: str
    tasks: tuple[Task, ...]
    workdir: str = ""  # where commands run: a folder, or the URI of its archive; "": the job's own
    grace_seconds: float = 10.0


class Launched(Struct, frozen=True):
    native_id: str
    source: str


class LaunchRefused(Struct, frozen=True):
    """The engine knows that nothing was or will be launched."""

    evidence: Evidence


class LaunchUnknown(Struct, frozen=True):
    """The launch may or may not have happened: only looking is allowed now."""

    cause: str
    detail: str


LaunchReply = Launched | LaunchRefused | LaunchUnknown


class CancelRequested(Struct, frozen=True):
    """The request was accepted. It proves nothing: the job is cancelled when seen so."""


class CancelUnknown(Struct, frozen=True):
    cause: str
    detail: str


CancelReply = CancelRequested | CancelUnknown


class RoomKind(Enum):
    FITS = "fits"
    BUSY = "busy"  # fits this machine, not now
    NEVER = "never"  # can never fit


class Room(Struct, frozen=True):
    kind: RoomKind
    reason: str = ""


class Finding(Struct, frozen=True):
    """One result of a preflight: `blocking` findings stop a submit, each with its way out."""

    code: str
    path: str  # step path, or "" for the run
    message: str
    remedy: str
    blocking: bool


class Engine(Protocol):
    """The seam between deciding and doing. All times are epoch seconds."""

    name: str
    launches_groups: bool
    """True if the members of a group are launched as one job (JobGroup), False if one by one."""
    launch_window_seconds: float
    """How long a launch may be in flight; after that (plus skew) an absent job stays absent."""
    jobs_end_with_host: bool
    """True if no job outlives a loss of power of the driver's machine: a launch's intent must then
    survive the driver at once, and a loss of power only before anything is decided on it."""

    @property
    def target(self) -> Mapping[str, str]:
        """Identity of what is driven, for the seal (host or project, context…). No secrets."""
        ...

    def preflight(self, steps: Sequence[Step]) -> tuple[Finding, ...]: ...

    def room(self, steps: Sequence[Step]) -> Room:
        """May these steps start now? Engines with a queue of their own always answer FITS."""
        ...

    def launch(self, job: Job) -> LaunchReply: ...

    def observe(self, refs: Sequence[JobRef]) -> Mapping[str, Observation[JobStatus]]:
        """Look at every job once; the answer has one entry for each name asked.

        Only for the run's driver: an engine may act to be sure (seal a name, end what was lost).
        """
        ...

    def glance(self, refs: Sequence[JobRef]) -> Mapping[str, Observation[JobStatus]]:
        """The same look for people. It changes nothing, so it may be made at any time by anybody.

        What only acting could settle stays open: `Absent` with `late_possible`, a status that is
        not settled with its reason.
        """
        ...

    def cancel(self, exact: ExactJob) -> CancelReply: ...

    def wait(self, seconds: float) -> None:
        """Return when a job may have changed, or after `seconds`; never later."""
        ...

    def close(self) -> None:
        """Let go of helpers of this process. Launched jobs live on."""
        ...
