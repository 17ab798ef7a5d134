"""Supervision of open attempts: gather what is known of each, ask `decide`, write down the step.

One attempt at a time; nothing here chooses. A look at outputs or a preflight that `decide` asks for
is made at once and the question is put again with the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, assert_never

from msgspec import Struct, field

from npa.observation import Absent, Found, Observation
from npa.orchestration import decide as d
from npa.orchestration.effects import NOT_MADE
from npa.orchestration.ends import How, first_failed, member_end
from npa.orchestration.engine import (
    Engine,
    Evidence,
    JobRef,
    JobStatus,
    Phase,
    RoomKind,
)
from npa.orchestration.evidence import Klass, klass_of
from npa.orchestration.journal import entries as e
from npa.orchestration.outputs import OutputsSeen, look_at_outputs, together
from npa.orchestration.policy import Policy
from npa.orchestration.schedule import Scheduler
from npa.orchestration.state import Attempt, Stage, Wave
from npa.orchestration.tick import CancelEffect, Effect, LaunchEffect, Tick
from npa.workflow.step import Command, Step

GAP_SECONDS_MAX = 2 * d.LATER  # of the time between two looks, how much counts as looking
ROUNDS_MAX = 8  # looks that one decision may ask for in one tick; more would be a loop


class Clocks(Struct):
    """What one driver remembers of an attempt's times, on its own monotonic clock.

    `odd` is what cannot last of the present view, for how long it was looked at so, and when last.
    """

    intent: float | None = None
    odd: tuple[str, float, float] = ("", 0.0, 0.0)
    first_cancel: float | None = None
    cancels: int = 0
    due: float | None = None


class Claims(Protocol):
    """The payload fence, from the driver's side (`npa.orchestration.claims`)."""

    def take(self, key: str) -> d.Fence:
        """Take the claim of one attempt, if nobody has it: SEALED, TAKEN or UNSEEN."""
        ...


class Supervisor(Struct):
    """Looks after open attempts. One for each driver; its memory is only rhythm, never truth."""

    engine: Engine
    policy: Policy
    scheduler: Scheduler
    seal_equal: bool = True
    replies: dict[str, str] = field(default_factory=dict)  # launch replies not yet written down
    refusals: dict[str, Evidence] = field(default_factory=dict)
    clocks: dict[str, Clocks] = field(default_factory=dict)
    statuses: dict[str, JobStatus] = field(default_factory=dict)  # for views, by attempt key
    claims: Claims | None = None
    sealed: dict[str, d.Fence] = field(default_factory=dict)  # what came of taking claims
    checked: tuple[bool, float] | None = None  # this driver's own preflight: passed, when (mono)

    def attend(self, tick: Tick) -> None:
        """One pass over all open attempts."""
        attempts = tuple(tick.state.open_attempts())
        refs = [
            JobRef(a.name, a.key, a.native_id or self.replies.get(a.key, ""))
            for a in attempts
            if a.stage is not Stage.RESERVED
        ]
        seen = self.engine.observe(refs) if refs else {}
        for attempt in attempts:
            self._attend(attempt, seen, tick)

    def acted(self, effects: Sequence[Effect], mono: float) -> None:
        """The effects of a committed frame were carried out at `mono`."""
        for effect in effects:
            clocks = self.clocks.setdefault(effect.key, Clocks())
            match effect:
                case LaunchEffect():
                    clocks.intent = mono
                case CancelEffect():
                    clocks.cancels += 1
                    clocks.first_cancel = (
                        mono if clocks.first_cancel is None else clocks.first_cancel
                    )
                case _:
                    assert_never(effect)

    # -- one attempt -------------------------------------------------------------------------------

    def _attend(
        self, attempt: Attempt, seen: Mapping[str, Observation[JobStatus]], tick: Tick
    ) -> None:
        if attempt.stage is Stage.RESERVED:
            observation: Observation[JobStatus] = Absent("not launched", "journal", tick.wall)
        else:
            observation = seen[attempt.name]
        if isinstance(observation, Found):
            self.statuses[attempt.key] = observation.value
        if attempt.stage is Stage.INTENDED:
            refusal = self.refusals.get(attempt.key)
            if refusal is not None:
                self._refused(attempt, refusal, tick)
                return
            if attempt.key in self.replies:  # what the provider said is durable before it is used
                native_id = self.replies[attempt.key]
                tick.emit(e.Outcome(attempt.key, native_id, "launch reply"))
        steps = self._steps(attempt)
        if steps is None and tick.goal.ends:
            steps = _stand_ins(attempt)
        if steps is None:
            self._unplaced(attempt, tick)
            return
        outputs: dict[str, OutputsSeen] = {}
        if self.sealed.get(attempt.key) is d.Fence.UNSEEN:
            del self.sealed[attempt.key]  # tried again at each look
        for _ in range(ROUNDS_MAX):
            step = d.decide(self._situation(attempt, observation, together(outputs), tick))
            match step:
                case d.LookAtOutputs():
                    artifacts = self.scheduler.artifacts
                    outputs = {s.path: look_at_outputs(s.outputs, artifacts) for s in steps}
                case d.Seal():
                    self._seal(attempt)
                case d.RunPreflight():
                    self._preflight(steps, tick)
                case d.Adopt(native_id=native_id, source=source):
                    tick.emit(e.Outcome(attempt.key, native_id, source, adopted=True))
                case _:
                    self._take(step, attempt, steps, observation, outputs, tick)
                    return
        raise AssertionError(f"decide does not settle on a step for {attempt.name}")

    def _unplaced(self, attempt: Attempt, tick: Tick) -> None:
        """No step is known for an attempt: the walk has not come that far, or never will."""
        if self.scheduler.stuck:
            reason = f"`{attempt.name}` belongs to no step of this workflow"
            tick.holds[attempt.wave] = d.Hold("ORPHAN", reason)
        else:
            tick.wait(attempt.wave, "what comes before it is not established yet", d.LATER)

    def _steps(self, attempt: Attempt) -> tuple[Step, ...] | None:
        known = [self.scheduler.steps.get(path) for path in attempt.members]
        steps = tuple(s for s in known if s is not None)
        return steps if len(steps) == len(known) else None

    def _situation(
        self,
        attempt: Attempt,
        observation: Observation[JobStatus],
        outputs: d.OutputsKind,
        tick: Tick,
    ) -> d.Situation:
        clocks = self._clocks(attempt, tick)
        wave = tick.state.waves[attempt.wave]
        since_cancel = tick.mono - clocks.first_cancel if clocks.first_cancel is not None else 0.0
        return d.Situation(
            goal=tick.goal,
            superseded=False,
            seal_equal=self.seal_equal,
            stage=attempt.stage,
            observation=observation,
            outputs=outputs,
            since_intent=tick.mono - clocks.intent if clocks.intent is not None else 0.0,
            window=attempt.window_seconds,
            skew=self.policy.skew_seconds,
            deadline=self._deadline(attempt),
            native_id=attempt.native_id or self.replies.get(attempt.key, ""),
            cancel_why=attempt.cancel_why,
            cancels=clocks.cancels,
            since_cancel=since_cancel,
            cancel_patience=self.policy.cancel_patience_seconds,
            cancel_repeat=self.policy.cancel_repeat_seconds,
            recoveries_left=self.policy.recoveries
            - tick.state.charged(wave, Klass.TRANSIENT.value),
            check=self._check(tick),
            since_odd=self._since_odd(attempt, observation, tick),
            odd_patience=self.policy.odd_patience_seconds,
            outputs_own=_outputs_own(attempt, wave),
            fence=self._fence(attempt),
        )

    def _since_odd(
        self, attempt: Attempt, observation: Observation[JobStatus], tick: Tick
    ) -> float:
        """For how long this view has been looked at as one that cannot last.

        Not seeing changes nothing of it, and a process that stood still has not looked.
        """
        clocks = self.clocks[attempt.key]
        known, lasted, last = clocks.odd
        if isinstance(observation, (Found, Absent)):
            odd = _oddity(attempt, observation)
            lasted = lasted + min(tick.mono - last, GAP_SECONDS_MAX) if odd == known else 0.0
            clocks.odd = (odd, lasted, tick.mono)
        return lasted if clocks.odd[0] else 0.0

    def _fence(self, attempt: Attempt) -> d.Fence:
        if self.claims is None:
            return d.Fence.OFF
        return self.sealed.get(attempt.key, d.Fence.NOT_TRIED)

    def _seal(self, attempt: Attempt) -> None:
        assert self.claims is not None  # noqa: S101 - decide asks for it only then
        self.sealed[attempt.key] = self.claims.take(attempt.key)

    def _clocks(self, attempt: Attempt, tick: Tick) -> Clocks:
        clocks = self.clocks.setdefault(attempt.key, Clocks())
        if clocks.intent is None and attempt.stage is not Stage.RESERVED:
            # an earlier driver's intent: its age by the wall clock, never less than nothing
            clocks.intent = tick.mono - max(0.0, tick.wall - attempt.intended_at)
        return clocks

    def _deadline(self, attempt: Attempt) -> float:
        steps = self._steps(attempt) or ()
        own = [s.timeout_seconds for s in steps if s.timeout_seconds]
        return max(own) if own else self.policy.max_wait_seconds

    def _check(self, tick: Tick) -> d.Check:
        """This driver's own preflight: an earlier driver's says nothing of now."""
        if self.checked is None:
            return d.Check.STALE
        passed, at = self.checked
        if tick.mono - at > self.policy.preflight_fresh_seconds:
            return d.Check.STALE
        return d.Check.PASSED if passed else d.Check.FAILED

    # -- steps -------------------------------------------------------------------------------------

    def _take(
        self,
        step: d.Step,
        attempt: Attempt,
        steps: Sequence[Step],
        observation: Observation[JobStatus],
        outputs: Mapping[str, OutputsSeen],
        tick: Tick,
    ) -> None:
        status = observation.value if isinstance(observation, Found) else None
        match step:
            case d.Launch():
                self._launch(attempt, steps, tick)
            case d.Cancel(exact=exact, why=why):
                tick.emit(e.Intent(attempt.key, e.Verb.CANCEL, native_id=exact.native_id, why=why))
                tick.effects.append(CancelEffect(attempt.key, exact))
            case d.Succeed():
                how = How(e.Result.SUCCEEDED)
                self._end(attempt, steps, status, how, outputs, tick)
            case d.Fail(klass=klass, code=code):
                how = How(e.Result.FAILED, klass.value, code)
                self._end(attempt, steps, status, how, outputs, tick)
            case d.EndCancelled():
                how = How(e.Result.CANCELLED, Klass.CANCELLED.value)
                self._end(attempt, steps, status, how, outputs, tick)
            case d.EndRefused(code=code):
                self._refused(attempt, Evidence(code, "provider"), tick)
            case d.Wait(reason=reason, seconds=seconds):
                self._observed(attempt, status, reason, tick)
                tick.wait(attempt.wave, reason, self._within_deadline(attempt, seconds, tick))
            case d.Hold(code=code):
                if code == "CANCELLATION_UNVERIFIED" and not attempt.cancel_unverified:
                    clocks = self._clocks(attempt, tick)
                    tick.emit(e.CancelUnverified(attempt.key, attempt.native_id, clocks.cancels))
                tick.holds[attempt.wave] = step
            case d.Superseded():
                raise AssertionError("a superseded driver does not attend")
            case d.LookAtOutputs() | d.Seal() | d.RunPreflight() | d.Adopt():
                raise AssertionError("handled in the round")
            case _:
                assert_never(step)

    def _launch(self, attempt: Attempt, steps: Sequence[Step], tick: Tick) -> None:
        clocks = self.clocks.setdefault(attempt.key, Clocks())
        if clocks.due is None:
            passed = max(0.0, tick.wall - attempt.reserved_at)
            clocks.due = tick.mono + max(0.0, self._backoff(attempt, steps) - passed)
        if tick.mono < clocks.due:
            tick.wait(attempt.wave, "pausing before the next attempt", clocks.due - tick.mono)
            return
        if attempt.cause is e.Cause.RECOVERY and not self._still_passes(attempt, steps, tick):
            return
        room = self.engine.room([*tick.chosen, *steps])
        if room.kind is RoomKind.BUSY:
            tick.wait_for_room(attempt.wave, room.reason, d.LATER)
            return
        tick.chosen.extend(steps)
        tick.emit(e.Intent(attempt.key, e.Verb.LAUNCH, self.engine.launch_window_seconds))
        tick.effects.append(LaunchEffect(attempt.key, tuple(steps)))

    def _still_passes(self, attempt: Attempt, steps: Sequence[Step], tick: Tick) -> bool:
        """24 again, just before the launch: the reservation may be another driver's, or old."""
        if self._check(tick) is d.Check.STALE:
            self._preflight(steps, tick)
        if self._check(tick) is d.Check.PASSED:
            return True
        tick.holds[attempt.wave] = d.PREFLIGHT_FAILS
        return False

    def _preflight(self, steps: Sequence[Step], tick: Tick) -> None:
        found = [f for f in self.engine.preflight(steps) if f.blocking]
        self.checked = (not found, tick.mono)
        tick.emit(e.Preflight(not found, tuple(f.code for f in found)))

    def _backoff(self, attempt: Attempt, steps: Sequence[Step]) -> float:
        if attempt.cause is not e.Cause.RETRY and attempt.cause is not e.Cause.RECOVERY:
            return 0.0
        own = [s.retry.backoff_seconds for s in steps if s.retry is not None]
        return max(own) if own else self.policy.backoff_seconds

    def _within_deadline(self, attempt: Attempt, seconds: float, tick: Tick) -> float:
        deadline = self._deadline(attempt)
        clocks = self._clocks(attempt, tick)
        if not deadline or clocks.intent is None:
            return seconds
        return min(seconds, max(0.05, deadline - (tick.mono - clocks.intent)))

    def _observed(
        self, attempt: Attempt, status: JobStatus | None, reason: str, tick: Tick
    ) -> None:
        if status is None:
            return
        members = {m.path: m.phase.value for m in status.members} if len(status.members) > 1 else {}
        if status.phase.value == attempt.phase and members == attempt.member_phases:
            return
        tick.emit(e.Observed(attempt.key, status.phase.value, reason, members))

    # -- ends --------------------------------------------------------------------------------------

    def _refused(self, attempt: Attempt, evidence: Evidence, tick: Tick) -> None:
        """Nothing was launched. What its driver left out, or may have died over, costs nothing:
        the number of such ends is bounded by that of drivers and of outages of the store."""
        klass = klass_of(evidence.code)
        free = evidence.code == NOT_MADE or (
            evidence.code == "LAUNCH_VERIFIED_ABSENT"
            and attempt.intended_epoch != tick.header.epoch
        )
        word = "" if free else klass.value
        members = {p: e.MemberEnd(e.Result.REFUSED, word, evidence.code) for p in attempt.members}
        tick.emit(e.Ended(attempt.key, e.Result.REFUSED, word, evidence.code, members))
        if not free:
            self._after(attempt, klass, exhausted=False, tick=tick)
        elif not tick.goal.ends:
            self._again(attempt, attempt.members, attempt.cause, tick)

    def _end(
        self,
        attempt: Attempt,
        steps: Sequence[Step],
        status: JobStatus | None,
        how: How,
        outputs: Mapping[str, OutputsSeen],
        tick: Tick,
    ) -> None:
        """Write an attempt's end, with the very look at its outputs that was decided on."""
        ends: dict[str, e.MemberEnd] = {}
        said = {m.path: m for m in status.members} if status is not None else {}
        for step in steps:
            end = member_end(
                step,
                said.get(step.path),
                how,
                outputs.get(step.path),
                self.scheduler.artifacts,
            )
            if end is None:
                tick.wait(attempt.wave, "its declared outputs cannot be seen yet", d.LATER)
                return
            ends[step.path] = end
        tick.emit(
            e.Ended(
                key=attempt.key,
                result=how.result,
                klass=how.klass,
                code=how.code,
                members=ends,
                provider=status.phase.value if status is not None else "absent",
                first_failed=first_failed(status, ends),
                leftovers=status.leftovers if status is not None else (),
            )
        )
        self.scheduler.validated.add(attempt.key)
        self.clocks.pop(attempt.key, None)
        self.replies.pop(attempt.key, None)
        self.statuses.pop(attempt.key, None)
        if how.result is e.Result.FAILED:
            exhausted = how.code == "INFRASTRUCTURE_RECOVERY_EXHAUSTED"
            self._after(attempt, Klass(how.klass), exhausted=exhausted, tick=tick)

    def _after(self, attempt: Attempt, klass: Klass, *, exhausted: bool, tick: Tick) -> None:
        """A successor, or nothing: then the wave has its final word."""
        end = attempt.end
        assert end is not None  # noqa: S101 - called right after the end was emitted
        wave = tick.state.waves[attempt.wave]
        again = [p for p, m in end.members.items() if m.result is not e.Result.SUCCEEDED]
        steps = [self.scheduler.steps[p] for p in again]
        failed = [s for s in steps if end.members[s.path].klass == Klass.PAYLOAD.value]
        retries = min(
            (
                self._retries(s) + 1 - tick.state.failures_of(wave, s.path, Klass.PAYLOAD.value)
                for s in failed
            ),
            default=0,
        )
        verdict = d.judge(
            klass,
            goal=tick.goal,
            retries_left=retries,
            recoveries_left=self.policy.recoveries + 1 - tick.state.charged(wave, klass.value),
            exhausted=exhausted,
        )
        match verdict:
            case d.Verdict.FINAL:
                return
            case d.Verdict.AGAIN_RETRY:
                cause = e.Cause.RETRY
            case d.Verdict.AGAIN_RECOVERY:
                cause = e.Cause.RECOVERY
            case _:
                assert_never(verdict)
        self._again(attempt, again, cause, tick)

    def _again(self, attempt: Attempt, paths: Sequence[str], cause: e.Cause, tick: Tick) -> None:
        """Reserve the successor of an attempt that has just ended."""
        steps = [self.scheduler.steps[p] for p in paths]
        self.scheduler.reserve(attempt.wave, attempt.label, steps, cause, attempt.key, tick)
        tick.look_again = 0.0

    def _retries(self, step: Step) -> int:
        return step.retry.payload if step.retry is not None else self.policy.retries


def _stand_ins(attempt: Attempt) -> tuple[Step, ...]:
    """Enough of its steps to end an attempt by its exact ID, when nothing of it will be reused."""
    return tuple(Step(path, attempt.state_of(path), Command()) for path in attempt.members)


def _oddity(attempt: Attempt, observation: Observation[JobStatus]) -> str:
    """Names a view of a job that cannot last; "" for one that can."""
    if attempt.stage is Stage.RESERVED:
        return ""
    if isinstance(observation, Absent):
        return "absent"
    if not isinstance(observation, Found):
        return ""
    status = observation.value
    if status.phase is Phase.UNKNOWN:
        return "unknown"
    return "unsettled" if status.phase.terminal and not status.settled else ""


def _outputs_own(attempt: Attempt, wave: Wave) -> bool:
    """Can what lies at the declared places only be this attempt's own work?

    An earlier attempt that ran and ended otherwise than by a transient (whose outputs were seen to
    be absent after its end) may have left something there.
    """
    mine = set(attempt.members)
    return not any(
        a.end is not None
        and a.end.result is not e.Result.REFUSED
        and a.end.klass != Klass.TRANSIENT.value
        and mine & set(a.members)
        for a in wave.attempts
        if a is not attempt
    )
