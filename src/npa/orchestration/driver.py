"""The driver: observe, decide, write down, act; until the run is over, held, or not ours any more.

One driver is current at a time (its epoch is the newest `driver` entry). It never acts on anything
that is not durable in the journal, and it may die anywhere: the next one goes on from the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from npa.errors import JournalCorrupt, StorageError
from npa.orchestration import snapshots
from npa.orchestration.decide import Goal, Hold
from npa.orchestration.driven import driven_elsewhere
from npa.orchestration.effects import Effects, JobBuilder
from npa.orchestration.engine import Engine
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Appended, Journal, Lost, Unknown
from npa.orchestration.outputs import Artifacts
from npa.orchestration.policy import Policy
from npa.orchestration.remedies import remedy_of
from npa.orchestration.schedule import Scheduler, WalkLike
from npa.orchestration.state import DriverView, Header, Lifecycle, RunState
from npa.orchestration.supervise import Claims, Supervisor
from npa.orchestration.tick import Tick

APPEND_RETRY_SECONDS = 1.0


class Clock(Protocol):
    """Wall time stamps what people read; monotonic time measures what is waited for."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...


class Identity(Struct, frozen=True):
    """Who drives: host, boot, process and its start ticks."""

    host: str
    boot: str
    pid: int
    start_ticks: int


class Ending(Enum):
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HELD = "held"
    SUPERSEDED = "superseded"
    STOPPED = "stopped"  # told to leave; the run goes on without a driver


class Outcome(Struct, frozen=True):
    """How a drive ended. `holds` by subject when HELD."""

    ending: Ending
    holds: dict[str, Hold] = field(default_factory=dict)


class Snapshot(Struct, frozen=True):
    """What a driver shows of itself after each tick (for progress views)."""

    state: RunState
    waits: dict[str, str]
    holds: dict[str, Hold]


class World(Struct, frozen=True):
    """Everything outside that a driver touches. Simulations replace exactly this."""

    journal: Journal
    engine: Engine
    artifacts: Artifacts
    clock: Clock
    claims: Claims | None = None  # the payload fence; None: tasks hold no storage credentials


class Plan(Struct, frozen=True):
    """What the run means: a new walk on demand, and how a job is built from an attempt."""

    run_id: str
    new_walk: Callable[[], WalkLike]
    downstream: Callable[..., frozenset[str]]
    build_job: JobBuilder


class Driver:
    """Drives one run towards a goal. Not shared between threads; `request_*` only set flags."""

    _walk: WalkLike
    _scheduler: Scheduler
    _supervisor: Supervisor

    def __init__(
        self,
        world: World,
        plan: Plan,
        policy: Policy,
        identity: Identity,
        *,
        goal: Goal = Goal.COMPLETE,
        seal_equal: bool = True,
        is_alive: Callable[[DriverView], bool | None] = lambda _view: None,
        observer: Callable[[Snapshot], None] = lambda _snapshot: None,
    ) -> None:
        self._world = world
        self._plan = plan
        self._policy = policy
        self._identity = identity
        self._goal = goal
        self._seal_equal = seal_equal
        self._is_alive = is_alive
        self._observer = observer
        self._effects = Effects(world.engine, plan.build_job)
        self._epoch = 0
        self._asked_to_cancel = ""
        self._asked_to_stop = False
        self._last_head_poll = float("-inf")
        self._cannot_write = ""
        self._last_snapshot = 0
        self._fresh = True  # the walk was made anew and has not been advanced yet
        self.state = RunState()

    # -- from outside (signal handlers) ------------------------------------------------------------

    def request_cancel(self, reason: str) -> None:
        """Cancel the run at the next tick."""
        self._asked_to_cancel = self._asked_to_cancel or reason

    def request_stop(self) -> None:
        """Leave at the next tick; what runs goes on, and `resume` adopts it."""
        self._asked_to_stop = True

    # -- the loop ----------------------------------------------------------------------------------

    def run(self, *, take_over: bool = False) -> Outcome:
        """Drive to the end.

        Raises DrivenElsewhere (another driver is alive and `take_over` is false), JournalCorrupt,
        StoreFull (nothing lost; resume when there is space) or StorageError (at the start only).
        """
        self._rebuild()
        if self.state.lifecycle.over:
            return Outcome(_ending_of(self.state.lifecycle))
        outcome = self._take_the_lease(take_over)
        while outcome is None:
            outcome = self._once()
        return outcome

    def _once(self) -> Outcome | None:
        if self._asked_to_stop:
            return self._leave("asked to stop", Outcome(Ending.STOPPED))
        lost = self._look_at_head()
        if lost is not None:
            return lost
        tick = self._new_tick()
        if self._asked_to_cancel and self.state.cancel is None:
            tick.emit(e.CancelRequested(self._asked_to_cancel, "driver"))
            tick.goal = Goal.CANCELLED
        if self._fresh:  # a new walk learns its steps first: nothing may look like an orphan
            self._fresh, tick.look_again = False, 0.0
        else:
            self._supervisor.attend(tick)
        self._scheduler.advance(tick)
        outcome = self._finish_if_over(tick)
        self._heartbeat(tick)
        began = self._world.clock.monotonic()
        committed = self._commit(tick)
        if committed is not None:
            return committed if committed.ending is not Ending.STOPPED else None
        self._carry_out(tick, began)
        self._harden()
        self._supervisor.acted(tick.effects, tick.mono)
        self._observer(Snapshot(self.state, tick.waits, tick.holds))
        self._snapshot()
        if outcome is not None:
            return outcome
        self._pause(tick)
        return None

    def _carry_out(self, tick: Tick, began: float) -> None:
        """Act on a durable frame. A launch that has become late is not made: whoever reads its
        intent waits for the window and the skew, and no longer."""
        late = self._world.clock.monotonic() - began > self._policy.skew_seconds
        in_time = not late or not self._world.engine.launch_window_seconds
        self._effects.carry_out(
            tick.effects,
            self.state,
            self._supervisor.replies,
            self._supervisor.refusals,
            launches=in_time,
        )

    def _new_tick(self) -> Tick:
        stamp = self._world.journal.stamp()
        return Tick(
            state=self.state,
            goal=self._goal_now(),
            wall=stamp,
            mono=self._world.clock.monotonic(),
            header=Header(self.state.n + 1, stamp, self._epoch),
        )

    def _goal_now(self) -> Goal:
        if self._goal is Goal.COMPLETE and self.state.cancel is not None:
            return Goal.CANCELLED
        return self._goal

    def _pause(self, tick: Tick) -> None:
        if tick.effects:  # give a short job the chance to end before its launch is written down
            self._world.engine.wait(self._policy.settle_seconds)
            return
        self._world.engine.wait(min(tick.look_again, self._policy.head_poll_seconds))

    # -- the end -----------------------------------------------------------------------------------

    def _finish_if_over(self, tick: Tick) -> Outcome | None:
        state = self.state
        if state.live:
            held = set(tick.holds) == {a.wave for a in state.live.values()}
            stuck = held and not tick.effects and not tick.entries
            return self._hold(tick) if stuck and set(tick.waits) <= tick.for_room else None
        if tick.goal.ends:
            reason = state.cancel.reason if state.cancel is not None else ""
            tick.emit(e.RunCancelled(reason))
            return Outcome(Ending.CANCELLED)
        failure = self._scheduler.failure
        if failure is not None:
            skipped = self._walk.skipped()
            tick.emit(e.RunFailed(failure.code, failure.reason, failure.path, skipped))
            return Outcome(Ending.FAILED)
        ended = self._walk.ended
        if ended is None or not self._scheduler.idle:
            return None
        if ended.terminal and not ended.reason:
            last = next(reversed(state.waves), "")
            tick.emit(e.Completed(last, ended.terminal, self._walk.skipped()))
            return Outcome(Ending.COMPLETED)
        reason = ended.reason or "no terminal state was reached"
        tick.emit(e.RunFailed("NO_TERMINAL_STATE", reason, skipped=self._walk.skipped()))
        return Outcome(Ending.FAILED)

    def _hold(self, tick: Tick) -> Outcome:
        jobs = {a.wave: a.name for a in self.state.live.values()}
        holds = {
            subject: self._with_remedy(hold, jobs[subject]) for subject, hold in tick.holds.items()
        }
        for subject, hold in holds.items():
            known = self.state.held.get(subject)
            if known is None or (known.code, known.reason) != (hold.code, hold.reason):
                tick.emit(e.Held(hold.code, hold.reason, hold.remedy, subject))
        tick.emit(e.Released("held"))
        return Outcome(Ending.HELD, holds)

    def _with_remedy(self, hold: Hold, job: str) -> Hold:
        ends = self._goal_now().ends
        return replace(hold, remedy=remedy_of(hold.code, run=self._plan.run_id, job=job, ends=ends))

    def _leave(self, why: str, outcome: Outcome, *held: e.Held) -> Outcome:
        """Leave in order, if the journal can be written now; else the lease says who it was."""
        tick = self._new_tick()
        for entry in held:
            tick.emit(entry)
        tick.emit(e.Released(why))
        self._world.journal.append(tick.entries, epoch=self._epoch, at=tick.header.at)
        return outcome

    def _heartbeat(self, tick: Tick) -> None:
        quiet = tick.wall - self.state.at
        if not tick.entries and quiet > self._policy.heartbeat_seconds:
            tick.emit(e.Heartbeat())

    # -- the journal -------------------------------------------------------------------------------

    def _commit(self, tick: Tick) -> Outcome | None:
        """Make the tick's frame durable. None: it is, and the effects may be carried out.

        STOPPED means "not this time": the frame was lost to another writer (or stop was asked for
        while the store did not answer); everything that was decided on it is forgotten.
        """
        if not tick.entries:
            return None
        later = self._world.engine.jobs_end_with_host
        result = self._world.journal.append(
            tick.entries, epoch=self._epoch, at=tick.header.at, later=later
        )
        doubted = False
        while True:
            match result:
                case Appended():
                    self._cannot_write = ""
                    # while we could not tell, another driver may have read it and taken over
                    return self._look_at_head(now=True) if doubted else None
                case Lost():
                    self._rebuild()
                    return self._still_ours() or Outcome(Ending.STOPPED)
                case Unknown(cause=cause):
                    doubted = True
                    self._cannot_write = cause.cause
                    waits = {"": f"the journal cannot be written ({cause.cause}); nothing is lost"}
                    self._observer(Snapshot(self.state, waits, {}))
                    if self._asked_to_stop:
                        return Outcome(Ending.STOPPED)
                    self._world.engine.wait(APPEND_RETRY_SECONDS)
                    again = self._world.journal.settle()
                    if again is None:  # the other writer's frame could not be read: look again
                        again = Lost(())
                    result = again
                case _:
                    assert_never(result)

    def _harden(self) -> None:
        """The disk takes its time while the jobs start; nothing goes on before it is done.

        Only where a loss of power that takes the frame takes the jobs, too: at any other end of
        this process both are still there.
        """
        while (cause := self._world.journal.harden()) is not None and not self._asked_to_stop:
            waits = {"": f"the journal cannot be made durable ({cause.cause}); nothing is lost"}
            self._observer(Snapshot(self.state, waits, {}))
            self._world.engine.wait(APPEND_RETRY_SECONDS)

    def _snapshot(self) -> None:
        """After the effects: what was launched runs meanwhile."""
        n, last = self.state.n, self._last_snapshot
        if snapshots.due(n, last, over=self.state.lifecycle.over):
            self._last_snapshot = n
            snapshots.write(self._world.journal.storage, self.state, self._world.journal.digest)

    def _look_at_head(self, *, now: bool = False) -> Outcome | None:
        mono = self._world.clock.monotonic()
        if not now and mono - self._last_head_poll < self._policy.head_poll_seconds:
            return None
        self._last_head_poll = mono
        try:
            frames = self._world.journal.refresh()
        except JournalCorrupt:
            raise
        except StorageError:
            return None  # cannot see: nothing is concluded; an append would notice
        if not frames:
            return None
        self.state.apply(frames)
        if any(isinstance(x, (e.Reopened, e.Invalidated)) for f in frames for x in f.entries):
            self._rebuild()  # what the walk was told before is not so any more
        return self._still_ours()

    def _still_ours(self) -> Outcome | None:
        if self.state.driver is None or self.state.driver.epoch != self._epoch:
            return Outcome(Ending.SUPERSEDED)
        if self.state.lifecycle.over:
            return Outcome(_ending_of(self.state.lifecycle))
        return None

    def _rebuild(self) -> None:
        """Fold the journal from its beginning, with a fresh walk; memory of rhythm is kept."""
        journal = self._world.journal
        while True:
            try:
                state = snapshots.read(journal.storage, journal)
                break
            except JournalCorrupt:
                raise
            except StorageError:
                if self._epoch == 0 or self._asked_to_stop:
                    raise
                self._world.engine.wait(APPEND_RETRY_SECONDS)
        self.state = state
        self._fresh = True
        self._walk = self._plan.new_walk()
        replies, refusals, clocks = {}, {}, {}
        if self._epoch:
            old = self._supervisor
            replies, refusals, clocks = old.replies, old.refusals, old.clocks
        self._scheduler = Scheduler(
            walk=self._walk,
            run_id=self._plan.run_id,
            policy=self._policy,
            engine=self._world.engine,
            artifacts=self._world.artifacts,
            downstream=self._plan.downstream,
        )
        self._supervisor = Supervisor(
            self._world.engine,
            self._policy,
            self._scheduler,
            seal_equal=self._seal_equal,
            replies=replies,
            refusals=refusals,
            clocks=clocks,
            claims=self._world.claims,
        )

    # -- the lease ---------------------------------------------------------------------------------

    def _take_the_lease(self, take_over: bool) -> Outcome | None:
        while True:
            current = self.state.driver
            if current is not None and not current.released and not take_over:
                alive = self._is_alive(current)
                if alive is not False:
                    raise driven_elsewhere(self._plan.run_id, current, alive=alive)
            me = self._identity
            entry = e.DriverEntry(me.host, me.boot, me.pid, me.start_ticks, self._goal.value)
            at = self._world.journal.stamp()
            n = self.state.n + 1
            result = self._world.journal.append([entry], epoch=n, at=at)
            while isinstance(result, Unknown):
                if self._asked_to_stop:
                    return Outcome(Ending.STOPPED)
                self._world.engine.wait(APPEND_RETRY_SECONDS)
                result = self._world.journal.settle() or Lost(())
            if isinstance(result, Appended):
                self._epoch = n
                self.state.begin(Header(n, at, n))
                self.state.take(entry)
                self._last_head_poll = self._world.clock.monotonic()
                return self._identity_hold()
            self._rebuild()
            if self.state.lifecycle.over:
                return Outcome(_ending_of(self.state.lifecycle))

    def _identity_hold(self) -> Outcome | None:
        if self._seal_equal or self._goal_now() is not Goal.COMPLETE:
            return None
        hold = Hold("IDENTITY", "the sealed inputs of this run have changed")
        hold = self._with_remedy(hold, "")
        outcome = Outcome(Ending.HELD, {"": hold})
        return self._leave("held", outcome, e.Held(hold.code, hold.reason, hold.remedy))


def _ending_of(lifecycle: Lifecycle) -> Ending:
    match lifecycle:
        case Lifecycle.COMPLETED:
            return Ending.COMPLETED
        case Lifecycle.FAILED:
            return Ending.FAILED
        case Lifecycle.CANCELLED:
            return Ending.CANCELLED
        case Lifecycle.NEW | Lifecycle.RUNNING:
            raise AssertionError("the run is not over")
        case _:
            assert_never(lifecycle)
