"""The fold: what a journal says, as one value. Pure; the same entries give the same state.

`RunState.apply` takes frames in order. An entry that does not fit what came before it means that
the chain was not written by this protocol: JournalCorrupt, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from msgspec import Struct, field
from msgspec.structs import replace

from npa.errors import JournalCorrupt
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.frame import Frame
from npa.workflow.asks import is_question


class Header(Struct, frozen=True):
    """What a frame says of itself: its number, its wall-clock time, the epoch of its writer."""

    n: int
    at: float
    epoch: int


class Stage(Enum):
    """Where an attempt is, as far as the journal knows."""

    RESERVED = "reserved"
    INTENDED = "intended"
    LAUNCHED = "launched"
    ENDED = "ended"


class Lifecycle(Enum):
    NEW = "new"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self in (Lifecycle.COMPLETED, Lifecycle.FAILED, Lifecycle.CANCELLED)


class Attempt(Struct):
    """One try at a wave. `members` are the step paths that this try launches."""

    wave: str
    label: str
    number: int
    key: str
    name: str
    cause: e.Cause
    digests: Mapping[str, str]
    states: tuple[str, ...]
    parent: str
    reserved_n: int
    reserved_at: float
    stage: Stage = Stage.RESERVED
    intended_at: float = 0.0
    intended_epoch: int = 0  # the driver that meant to launch it
    window_seconds: float = 0.0
    native_id: str = ""
    source: str = ""
    adopted: bool = False
    phase: str = ""
    reason: str = ""
    member_phases: dict[str, str] = field(default_factory=dict)
    cancel_why: str = ""
    cancels: int = 0
    cancel_at: float = 0.0
    cancel_unverified: bool = False
    vouched_by: str = ""  # the person who stated that nothing of it runs
    end: e.Ended | None = None
    ended_at: float = 0.0
    ended_n: int = 0

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self.digests)

    def state_of(self, path: str) -> str:
        """Name of the state that the member `path` comes from."""
        return dict(zip(self.digests, self.states, strict=False)).get(path, "")

    @property
    def open(self) -> bool:
        """Live or unknown: it may still cost something."""
        return self.stage is not Stage.ENDED


class Wave(Struct):
    key: str
    attempts: list[Attempt] = field(default_factory=list)
    budget_from: int = 0  # attempts before this index are no longer charged (reopened)

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]


class DriverView(Struct, frozen=True):
    epoch: int
    host: str
    boot: str
    pid: int
    start_ticks: int
    goal: str
    at: float
    released: bool = False  # it left in order, or the run ended under it


class RunState(Struct):
    """What the journal says. Read it freely; only `apply` changes it."""

    n: int = 0
    at: float = 0.0
    genesis: e.Genesis | None = None
    seal: str = ""
    parts: Mapping[str, object] = field(default_factory=dict)
    request: Mapping[str, object] = field(default_factory=dict)
    created_at: float = 0.0
    driver: DriverView | None = None
    lifecycle: Lifecycle = Lifecycle.NEW
    lifecycle_at: float = 0.0
    terminal: str = ""
    failure: e.RunFailed | None = None
    skipped: tuple[str, ...] = ()  # states that never ran, once the run is over
    cancel: e.CancelRequested | None = None
    held: dict[str, e.Held] = field(default_factory=dict)
    preflight: tuple[bool, float] | None = None
    waves: dict[str, Wave] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    live: dict[str, Attempt] = field(default_factory=dict)
    latest: dict[str, Attempt] = field(default_factory=dict)  # by step path
    decisions: dict[str, e.Decision] = field(default_factory=dict)  # the newest last
    expansions: dict[str, e.Expansion] = field(default_factory=dict)
    triggers: dict[str, e.Triggered] = field(default_factory=dict)
    stale: dict[str, int] = field(default_factory=dict)  # step path -> frame
    reopened: int = 0
    last_wave: str = ""
    entries: int = 0
    _frame: Header = Header(0, 0.0, 0)

    def apply(self, frames: Iterable[Frame]) -> None:
        """Take frames in order. Raises JournalCorrupt for what this protocol never writes."""
        for frame in frames:
            self.begin(Header(frame.n, frame.at, frame.epoch))
            for entry in frame.entries:
                self.take(entry)

    def begin(self, header: Header) -> None:
        """A new frame begins; `take` its entries next."""
        if header.n != self.n + 1:
            raise JournalCorrupt(f"frame {header.n} was applied after frame {self.n}")
        if self.driver is not None and 0 < header.epoch < self.driver.epoch:
            raise JournalCorrupt(
                f"frame {header.n} was written by epoch {header.epoch} after epoch "
                f"{self.driver.epoch} had begun"
            )
        self.n, self.at, self._frame = header.n, header.at, header

    def take(self, entry: e.Entry) -> None:
        """One entry of the frame that was begun last."""
        self.entries += 1
        frame = self._frame
        if self.genesis is None and not isinstance(entry, e.Genesis):
            raise JournalCorrupt("the journal does not begin with a genesis entry")
        match entry:
            case e.Genesis():
                self._genesis(entry, frame)
            case e.DriverEntry():
                self.driver = DriverView(
                    frame.n,
                    entry.host,
                    entry.boot,
                    entry.pid,
                    entry.start_ticks,
                    entry.goal,
                    frame.at,
                )
                self.held.clear()
                if self.lifecycle is Lifecycle.NEW:
                    self._become(Lifecycle.RUNNING, frame)
            case e.Reserved():
                self._reserved(entry, frame)
            case e.Intent():
                self._intent(entry, frame)
            case e.Outcome():
                self._outcome(entry)
            case e.Observed():
                attempt = self._open(entry.key)
                attempt.phase, attempt.reason = entry.phase, entry.reason
                attempt.member_phases = dict(entry.members)
            case e.CancelUnverified():
                self._open(entry.key).cancel_unverified = True
            case e.Vouched():
                self._open(entry.key).vouched_by = entry.by
            case e.Ended():
                self._ended(entry, frame)
            case e.Decision():
                self.decisions.pop(entry.question, None)
                self.decisions[entry.question] = entry
            case e.Expansion():
                self.expansions[entry.question] = entry
            case e.Triggered():
                self.triggers[entry.path] = entry
            case e.Invalidated():
                for path in entry.paths:
                    if is_question(path):
                        self.decisions.pop(path, None)
                        self.expansions.pop(path, None)
                    else:
                        self.stale[path] = frame.n
            case e.CancelRequested():
                self.cancel = self.cancel or entry
            case e.Reopened():
                self._reopened(entry, frame)
            case e.Preflight():
                self.preflight = (entry.passed, frame.at)
            case e.Held():
                self.held[entry.subject] = entry
            case e.Heartbeat():
                pass  # its frame's time is all that it says
            case e.Released():
                self._release()
            case e.Completed():
                self.terminal, self.last_wave = entry.terminal, entry.wave
                self.skipped = entry.skipped
                self._finish(Lifecycle.COMPLETED, frame)
            case e.RunFailed():
                self.failure, self.skipped = entry, entry.skipped
                self._finish(Lifecycle.FAILED, frame)
            case e.RunCancelled():
                self._finish(Lifecycle.CANCELLED, frame)

    # -- one method a kind that does more than note a value ----------------------------------------

    def _genesis(self, entry: e.Genesis, frame: Header) -> None:
        if self.genesis is not None:
            raise JournalCorrupt("the journal has a second genesis")
        self.genesis = entry
        self.seal, self.parts, self.request = entry.seal, entry.parts, entry.request
        self.created_at = self.lifecycle_at = frame.at

    def _reserved(self, entry: e.Reserved, frame: Header) -> None:
        if self.lifecycle.over:
            raise JournalCorrupt(f"attempt {entry.name} was reserved after the run's end")
        wave = self.waves.setdefault(entry.wave, Wave(entry.wave))
        if wave.attempts and wave.last.open:
            raise JournalCorrupt(f"{entry.wave} has two open attempts")
        if entry.number != len(wave.attempts) + 1 or entry.key in self.attempts:
            raise JournalCorrupt(f"attempt {entry.number} of {entry.wave} is out of turn")
        attempt = Attempt(
            wave=entry.wave,
            label=entry.label,
            number=entry.number,
            key=entry.key,
            name=entry.name,
            cause=entry.cause,
            digests=entry.digests,
            states=entry.states,
            parent=entry.parent,
            reserved_n=frame.n,
            reserved_at=frame.at,
        )
        wave.attempts.append(attempt)
        self.attempts[entry.key] = self.live[entry.key] = attempt
        for path in entry.digests:
            self.latest[path] = attempt

    def _intent(self, entry: e.Intent, frame: Header) -> None:
        attempt = self._open(entry.key)
        if entry.verb is e.Verb.LAUNCH:
            if attempt.stage is not Stage.RESERVED:
                raise JournalCorrupt(f"{attempt.name} has a second launch intent")
            attempt.stage = Stage.INTENDED
            attempt.intended_at, attempt.window_seconds = frame.at, entry.window_seconds
            attempt.intended_epoch = frame.epoch
            return
        if attempt.stage is not Stage.LAUNCHED or entry.native_id != attempt.native_id:
            raise JournalCorrupt(f"a cancel of {attempt.name} names an ID that is not its own")
        attempt.cancels += 1
        attempt.cancel_why = attempt.cancel_why or entry.why
        attempt.cancel_at = attempt.cancel_at or frame.at

    def _outcome(self, entry: e.Outcome) -> None:
        attempt = self._open(entry.key)
        if attempt.stage is not Stage.INTENDED:
            raise JournalCorrupt(f"{attempt.name} has an outcome without an open intent")
        attempt.stage = Stage.LAUNCHED
        attempt.native_id, attempt.source = entry.native_id, entry.source
        attempt.adopted = entry.adopted

    def _ended(self, entry: e.Ended, frame: Header) -> None:
        attempt = self._open(entry.key)
        if set(entry.members) != set(attempt.digests):
            raise JournalCorrupt(f"the end of {attempt.name} names other members than its start")
        attempt.stage, attempt.end = Stage.ENDED, entry
        attempt.ended_at, attempt.ended_n = frame.at, frame.n
        del self.live[entry.key]
        self.held.pop(attempt.wave, None)

    def _reopened(self, entry: e.Reopened, frame: Header) -> None:
        if entry.seal:
            self.seal, self.parts, self.request = entry.seal, entry.parts, entry.request
        self.reopened += 1
        self.cancel = self.failure = None
        self.terminal, self.skipped = "", ()
        for wave in self.waves.values():
            wave.budget_from = len(wave.attempts)
        self._become(Lifecycle.RUNNING, frame)

    def _finish(self, lifecycle: Lifecycle, frame: Header) -> None:
        if self.lifecycle.over:
            raise JournalCorrupt(f"the run ended twice (frame {frame.n})")
        self._release()
        self._become(lifecycle, frame)

    def _release(self) -> None:
        if self.driver is not None:
            self.driver = replace(self.driver, released=True)

    def _become(self, lifecycle: Lifecycle, frame: Header) -> None:
        self.lifecycle, self.lifecycle_at = lifecycle, frame.at

    def _open(self, key: str) -> Attempt:
        attempt = self.live.get(key)
        if attempt is None:
            raise JournalCorrupt(f"an entry names attempt {key[:10]} that is not open")
        return attempt

    # -- questions ---------------------------------------------------------------------------------

    def success_of(self, path: str) -> tuple[Attempt, e.MemberEnd] | None:
        """The latest attempt that launched `path`, if that member succeeded in it."""
        attempt = self.latest.get(path)
        if attempt is None or attempt.end is None:
            return None
        member = attempt.end.members[path]
        return (attempt, member) if member.result is e.Result.SUCCEEDED else None

    def charged(self, wave: Wave, klass: str) -> int:
        """How many attempts of `wave` count against the budget of `klass`."""
        return sum(
            1
            for a in wave.attempts[wave.budget_from :]
            if a.end is not None and a.end.klass == klass
        )

    def failures_of(self, wave: Wave, path: str, klass: str) -> int:
        """How many attempts of one member ended in `klass` since the run was last reopened."""
        return sum(
            1
            for a in wave.attempts[wave.budget_from :]
            if a.end is not None and path in a.end.members and a.end.members[path].klass == klass
        )

    def open_attempts(self) -> Iterator[Attempt]:
        return iter(tuple(self.live.values()))


def fold(frames: Iterable[Frame]) -> RunState:
    """The state after all `frames`, from the first on."""
    state = RunState()
    state.apply(frames)
    return state
