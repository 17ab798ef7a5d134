"""The schedule: between the walk (what may run next) and the state (what has happened).

Every open question of the walk is answered from the journal if it can be, else from the world, and
each answer is journalled first. A fresh run and a resumed one go through the same code: resuming is
answering from the journal until it has no more answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from npa.errors import JournalCorrupt
from npa.orchestration import outputs as look
from npa.orchestration.decide import Goal, OutputsKind
from npa.orchestration.engine import Room, RoomKind
from npa.orchestration.journal import entries as e
from npa.orchestration.policy import Policy
from npa.orchestration.seal import StepDigests, digest_of, effect_key, job_name
from npa.orchestration.state import RunState
from npa.orchestration.tick import LaunchEffect, Tick
from npa.workflow.asks import hangs_on
from npa.workflow.step import Step, Trigger
from npa.workflow.walk import Ask, AskDecision, AskItems, Batch, Ended, Items
from npa.workflow.waves import Wave, split_for

POLL_SECONDS = 2.0  # between two looks at an artifact that could not be seen


class WalkLike(Protocol):
    """What the schedule asks of a walk (`npa.workflow.walk.Walk`)."""

    @property
    def ended(self) -> Ended | None: ...

    def take_new(self) -> tuple[Ask, ...]: ...

    def skipped(self) -> tuple[str, ...]: ...

    def finished(self, path: str) -> None: ...

    def failed(self, path: str) -> None: ...

    def decided(self, key: str, value: str) -> None: ...

    def expanded(self, key: str, items: Items) -> None: ...


class RoomAsker(Protocol):
    launches_groups: bool

    def room(self, steps: Sequence[Step]) -> Room: ...

    @property
    def launch_window_seconds(self) -> float: ...


class Standing(Enum):
    """How one step of an open batch stands."""

    DONE = "done"
    FAILED = "failed"
    OPEN = "open"
    NEEDED = "needed"
    UNSEEN = "unseen"


class _OpenWave(Struct):
    wave: Wave
    left: dict[str, Step]


class Failure(Struct, frozen=True):
    """Why the run cannot complete."""

    code: str
    reason: str
    path: str = ""


class Scheduler(Struct):
    """Feeds the walk and reserves attempts. One for each driver and walk."""

    walk: WalkLike
    run_id: str
    policy: Policy
    engine: RoomAsker
    artifacts: look.Artifacts
    downstream: Callable[[Iterable[str]], frozenset[str]]
    digests: StepDigests = field(default_factory=StepDigests)
    failure: Failure | None = None
    steps: dict[str, Step] = field(default_factory=dict)
    validated: set[str] = field(default_factory=set)  # attempts whose outputs this driver has seen
    consumed: set[str] = field(default_factory=set)  # paths whose success the walk has been told
    told: set[str] = field(default_factory=set)  # questions whose answer the walk has been told
    _waves: dict[str, _OpenWave] = field(default_factory=dict)
    _questions: dict[str, AskDecision | AskItems] = field(default_factory=dict)
    _polls: dict[str, tuple[int, float]] = field(default_factory=dict)

    # -- the loop ----------------------------------------------------------------------------------

    def advance(self, tick: Tick) -> None:
        """Answer what can be answered and reserve what may start, until nothing moves."""
        moved = True
        while moved:
            moved = False
            for ask in self.walk.take_new():
                self._register(ask)
                moved = True
            for key in tuple(self._questions):
                moved |= self._answer(key, tick)
            for wave in tuple(self._waves.values()):
                moved |= self._settle(wave, tick)

    @property
    def idle(self) -> bool:
        """Nothing is open: the walk is over, or waits for nothing that can come."""
        return not self._waves and not self._questions

    @property
    def stuck(self) -> bool:
        """No step can open any more that is not open now."""
        return self.idle or self.failure is not None

    def _register(self, ask: Ask) -> None:
        match ask:
            case Batch():
                for wave in split_for(ask, self.engine.launches_groups):
                    self._waves[wave.key] = _OpenWave(wave, {s.path: s for s in wave.steps})
                    for step in wave.steps:
                        self.steps[step.path] = step
            case AskDecision() | AskItems():
                self._questions[ask.key] = ask
            case _:
                assert_never(ask)

    # -- waves -------------------------------------------------------------------------------------

    def _settle(self, open_wave: _OpenWave, tick: Tick) -> bool:
        moved = False
        needed: list[tuple[Step, e.Cause]] = []
        busy = False
        for path, step in tuple(open_wave.left.items()):
            standing, cause = self._standing(step, tick)
            match standing:
                case Standing.DONE:
                    self._tell_walk(path, ok=True)
                    self.consumed.add(path)
                    del open_wave.left[path]
                    del self.steps[path]
                    moved = True
                case Standing.FAILED:
                    self._note_failure(path, tick.state)
                    self._tell_walk(path, ok=False)
                    del open_wave.left[path]
                    moved = True
                case Standing.NEEDED:
                    needed.append((step, cause))
                case Standing.OPEN:
                    busy = True
                case Standing.UNSEEN:
                    busy = True
                case _:
                    assert_never(standing)
        if not open_wave.left:
            del self._waves[open_wave.wave.key]
        elif needed and not busy and self.failure is None and tick.goal is Goal.COMPLETE:
            self._reserve(open_wave.wave, needed, tick)
        return moved

    def _tell_walk(self, path: str, *, ok: bool) -> None:
        try:
            (self.walk.finished if ok else self.walk.failed)(path)
        except ValueError as error:
            raise JournalCorrupt(f"the journal does not fit the workflow: {error}") from error

    def _standing(self, step: Step, tick: Tick) -> tuple[Standing, e.Cause]:
        state = tick.state
        attempt = state.latest.get(step.path)
        if attempt is None:
            return Standing.NEEDED, e.Cause.FIRST
        if attempt.end is None:
            return Standing.OPEN, e.Cause.FIRST
        charged = attempt.number > state.waves[attempt.wave].budget_from
        if attempt.end.members[step.path].result is not e.Result.SUCCEEDED:
            return (
                (Standing.FAILED, e.Cause.FIRST) if charged else (Standing.NEEDED, e.Cause.OPERATOR)
            )
        if tick.goal.ends:  # a run that ends reuses nothing, so nothing is looked at
            return Standing.DONE, e.Cause.FIRST
        if state.stale.get(step.path, 0) > attempt.reserved_n:
            return Standing.NEEDED, e.Cause.RERUN
        if attempt.key in self.validated:
            return Standing.DONE, e.Cause.FIRST
        if attempt.digests[step.path] != self.digests.of(step):
            return Standing.NEEDED, e.Cause.RERUN
        return self._still_there(step, tick)

    def _still_there(self, step: Step, tick: Tick) -> tuple[Standing, e.Cause]:
        """E-05: a finished wave is reused only if its declared outputs are valid now."""
        if not self._due(step.path, tick):
            return Standing.UNSEEN, e.Cause.FIRST
        match look.look_at_outputs(step.outputs, self.artifacts).kind:
            case OutputsKind.VALID | OutputsKind.NONE:
                return Standing.DONE, e.Cause.FIRST
            case OutputsKind.ABSENT | OutputsKind.MIXED | OutputsKind.INVALID:
                return Standing.NEEDED, e.Cause.RERUN
            case OutputsKind.UNSEEN | OutputsKind.NOT_LOOKED:
                self._put_off(step.path, "its declared outputs cannot be seen now", tick)
                return Standing.UNSEEN, e.Cause.FIRST

    def _note_failure(self, path: str, state: RunState) -> None:
        if self.failure is not None:
            return
        end = state.latest[path].end
        assert end is not None  # noqa: S101 - a failed standing has an end
        first = end.first_failed if end.first_failed in end.members else path
        member = end.members[first]
        reason = f"`{first}` failed ({member.code})"
        if member.missing:
            reason = f"`{first}` ended without its output {', '.join(member.missing[:3])}"
        self.failure = Failure(member.code or end.code, reason, first)

    # -- reserving ---------------------------------------------------------------------------------

    def _reserve(self, wave: Wave, needed: list[tuple[Step, e.Cause]], tick: Tick) -> None:
        steps = [s for s, _ in needed]
        for step in steps:
            if step.trigger is not None and not self._triggered(step, step.trigger, tick):
                return
        room = self.engine.room([*tick.chosen, *steps])
        if room.kind is RoomKind.BUSY:
            tick.wait_for_room(wave.key, room.reason, POLL_SECONDS)
            return
        cause = needed[0][1]
        if cause in (e.Cause.RERUN, e.Cause.OPERATOR):
            self._invalidate(steps, cause, tick)
        tick.chosen.extend(steps)
        key = self.reserve(wave.key, wave.label, steps, cause, "", tick)
        tick.emit(e.Intent(key, e.Verb.LAUNCH, self.engine.launch_window_seconds))
        tick.effects.append(LaunchEffect(key, tuple(steps)))

    def reserve(
        self, wave: str, label: str, steps: Sequence[Step], cause: e.Cause, parent: str, tick: Tick
    ) -> str:
        """Reserve the next attempt of a wave; the effect key is returned."""
        known = tick.state.waves.get(wave)
        number = len(known.attempts) + 1 if known is not None else 1
        key = effect_key(tick.state.seal, wave, number, e.Verb.LAUNCH.value)
        tick.emit(
            e.Reserved(
                wave=wave,
                label=label,
                number=number,
                key=key,
                name=job_name(self.run_id, label, key),
                cause=cause,
                digests={s.path: self.digests.of(s) for s in steps},
                states=tuple(s.state for s in steps),
                parent=parent,
            )
        )
        return key

    def _invalidate(self, steps: Sequence[Step], cause: e.Cause, tick: Tick) -> None:
        """What ran, or still runs, after an earlier success of these steps is not reused either."""
        reran = {s.state for s in steps if tick.state.success_of(s.path) is not None}
        if not reran:
            return
        after = self.downstream(reran)
        mine = {s.path for s in steps}
        questions = (
            key
            for key in (*tick.state.decisions, *tick.state.expansions)
            if key not in self.told and hangs_on(key, mine, after)
        )
        paths = tuple(
            path
            for path, attempt in tick.state.latest.items()
            if path not in mine
            and path not in self.consumed
            and attempt.state_of(path) in after
            and (attempt.open or tick.state.success_of(path) is not None)
            and tick.state.stale.get(path, 0) <= attempt.reserved_n
        )
        if stale := (*paths, *questions):
            tick.emit(e.Invalidated(stale, cause.value))

    # -- questions ---------------------------------------------------------------------------------

    def _answer(self, key: str, tick: Tick) -> bool:
        ask = self._questions[key]
        if isinstance(ask, AskDecision):
            return self._decide(ask, tick)
        return self._expand(ask, tick)

    def _decide(self, ask: AskDecision, tick: Tick) -> bool:
        writer = tick.state.latest.get(ask.writer)
        writer_key = writer.key if writer is not None else ""
        known = tick.state.decisions.get(ask.key)
        asked = digest_of(ask.gates) if ask.gates else ""
        other = known is not None and known.asked and known.asked != asked
        if known is None or known.writer_key != writer_key or other:
            if (
                self.failure is not None
                or tick.goal is not Goal.COMPLETE
                or not self._due(ask.key, tick)
            ):
                return False
            known = self._read_decision(ask, writer_key, tick)
            if known is None:
                return False
            known = replace(known, asked=asked)
            tick.emit(known)
        value = known.value
        self._tell(ask.key, lambda: self.walk.decided(ask.key, value))
        return True

    def _read_decision(self, ask: AskDecision, writer_key: str, tick: Tick) -> e.Decision | None:
        answer = look.read_decision(ask, self.artifacts)
        match answer:
            case look.Decided(value=value, uri=uri, digest=digest, seen=seen):
                return e.Decision(ask.key, value, writer_key, uri, digest, seen)
            case look.NoDecision(looked_at=uris):
                assumed = self.policy.assume_decision
                if assumed and not ask.gates:
                    return e.Decision(ask.key, assumed, writer_key, "", "", assumed=True)
                where = ", ".join(uris) or "nowhere: no location is declared"
                self._fail("DECISION_MISSING", f"no decision was written ({where})", ask.writer)
            case look.BadArtifact(uri=uri, reason=reason):
                self._fail("DECISION_MALFORMED", f"the decision at {uri}: {reason}", ask.writer)
            case look.CannotSee(uri=uri, cause=cause):
                self._put_off(ask.key, f"cannot see the decision at {uri} ({cause})", tick)
            case _:
                assert_never(answer)
        return None

    def _expand(self, ask: AskItems, tick: Tick) -> bool:
        known = tick.state.expansions.get(ask.key)
        if known is None or known.uri != ask.uri:
            if (
                self.failure is not None
                or tick.goal is not Goal.COMPLETE
                or not self._due(ask.key, tick)
            ):
                return False
            answer = look.read_items(ask, self.artifacts)
            match answer:
                case look.ItemsRead(items=items, uri=uri, digest=digest):
                    known = e.Expansion(ask.key, items, uri, digest)
                    tick.emit(known)
                case look.BadArtifact(uri=uri, reason=reason):
                    self._fail("FOREACH_ITEMS", f"the items at {uri}: {reason}", ask.key)
                    return False
                case look.CannotSee(uri=uri, cause=cause):
                    self._put_off(ask.key, f"cannot see the items at {uri} ({cause})", tick)
                    return False
                case _:
                    assert_never(answer)
        items = known.items
        self._tell(ask.key, lambda: self.walk.expanded(ask.key, items))
        return True

    def _tell(self, key: str, tell: Callable[[], None]) -> None:
        try:
            tell()
        except ValueError as error:
            raise JournalCorrupt(f"the journal does not fit the workflow: {error}") from error
        del self._questions[key]
        self.told.add(key)

    # -- triggers ----------------------------------------------------------------------------------

    def _triggered(self, step: Step, trigger: Trigger, tick: Tick) -> bool:
        if step.path in tick.state.triggers:
            return True
        subject = f"{step.path}?trigger"
        if not self._due(subject, tick):
            return False
        polls = self._polls.get(subject, (0, 0.0))[0] + 1
        count = look.count_objects(trigger, self.artifacts)
        if isinstance(count, look.CannotSee):
            self._put_off(subject, f"cannot see {trigger.uri} ({count.cause})", tick)
            return False
        if count >= trigger.min_objects:
            tick.emit(e.Triggered(step.path, trigger.uri, count, polls))
            return True
        if trigger.max_polls and polls >= trigger.max_polls:
            self._fail(
                "TRIGGER_EXHAUSTED",
                f"{trigger.uri} held {count} of {trigger.min_objects} objects after {polls} looks",
                step.path,
            )
            return False
        self._polls[subject] = (polls, tick.mono + trigger.poll_seconds)
        reason = f"waiting for {trigger.min_objects} objects under {trigger.uri}, {count} so far"
        tick.wait(subject, reason, trigger.poll_seconds)
        return False

    def _due(self, subject: str, tick: Tick) -> bool:
        due = self._polls.get(subject, (0, 0.0))[1]
        if tick.mono >= due:
            return True
        tick.wait(subject, "waiting to look again", due - tick.mono)
        return False

    def _put_off(self, subject: str, reason: str, tick: Tick) -> None:
        polls = self._polls.get(subject, (0, 0.0))[0]
        self._polls[subject] = (polls, tick.mono + POLL_SECONDS)
        tick.wait(subject, reason, POLL_SECONDS)

    def _fail(self, code: str, reason: str, path: str) -> None:
        self.failure = self.failure or Failure(code, reason, path)
