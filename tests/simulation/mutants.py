"""Deliberate bugs in the runtime, at least one for each invariant: a checker that cannot fail
proves nothing.

Each patches production code for the time of a test. The invariant that it breaks must find it among
the single faults of a scenario, or where two drivers meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from changed import replace
from npa.cli.exit_codes import ExitCode
from npa.observation import Absent, Observation, Unavailable
from npa.orchestration import decide as d
from npa.orchestration import supervise
from npa.orchestration.driver import Driver, Ending, Outcome
from npa.orchestration.effects import Effects
from npa.orchestration.engine import JobStatus
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Journal, key_of
from npa.orchestration.outputs import OutputsSeen
from npa.orchestration.schedule import Scheduler, Standing
from npa.orchestration.state import RunState, Stage
from npa.orchestration.supervise import Supervisor
from npa.orchestration.tick import CancelEffect, LaunchEffect, Tick
from npa.storage import Blob
from simulation import play as player
from simulation import scenarios as s
from simulation.invariants import CANARY
from simulation.scenarios import Scenario

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """`number` is the invariant that must see it, in `scenario`; `two` with two drivers."""

    name: str
    number: int
    patch: Patch
    scenario: Scenario
    two: bool = False


def _launch_twice(patch: pytest.MonkeyPatch) -> None:
    carry_out = Effects.carry_out

    def twice(self: Effects, effects: Any, *args: Any, **options: Any) -> None:
        again = [x for x in effects if isinstance(x, LaunchEffect)]
        carry_out(self, [*effects, *again], *args, **options)

    patch.setattr(Effects, "carry_out", twice)


def _free_recoveries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunState, "charged", lambda _self, _wave, _klass: 0)


def _absent_at_once(patch: pytest.MonkeyPatch) -> None:
    absent = d._absent

    def at_once(x: d.Situation, proof: str, late: bool) -> d.Step:
        if x.stage is Stage.INTENDED:
            return d.EndRefused("LAUNCH_VERIFIED_ABSENT")
        return absent(x, proof, late)

    patch.setattr(d, "_absent", at_once)


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Supervisor, "_fence", lambda _self, _attempt: d.Fence.OFF)


def _act_first(patch: pytest.MonkeyPatch) -> None:
    commit = Driver._commit

    def early(self: Driver, tick: Tick) -> Outcome | None:
        self._carry_out(tick, tick.mono)
        self._supervisor.acted(tick.effects, tick.mono)
        tick.effects.clear()
        return commit(self, tick)

    patch.setattr(Driver, "_commit", early)


def _outage_is_absence(patch: pytest.MonkeyPatch) -> None:
    decide = d.decide

    def blind(x: d.Situation) -> d.Step:
        if isinstance(x.observation, Unavailable):
            x = replace(x, observation=Absent("no answer", "mutant", 0.0), outputs=x.outputs)
        return decide(x)

    patch.setattr(d, "decide", blind)


def _cancel_by_guess(patch: pytest.MonkeyPatch) -> None:
    carry_out = Effects.carry_out

    def first_id(self: Effects, effects: Any, *args: Any, **options: Any) -> None:
        wrong = [
            replace(x, exact=replace(x.exact, native_id="1")) if isinstance(x, CancelEffect) else x
            for x in effects
        ]
        carry_out(self, wrong, *args, **options)

    patch.setattr(Effects, "carry_out", first_id)


def _trust_the_word(patch: pytest.MonkeyPatch) -> None:
    def all_valid(outputs: Any, _artifacts: Any) -> OutputsSeen:
        return OutputsSeen(d.OutputsKind.VALID if outputs else d.OutputsKind.NONE)

    patch.setattr(supervise, "look_at_outputs", all_valid)


def _take_leftovers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(supervise, "_outputs_own", lambda _attempt, _wave: True)


def _write_after_the_end(patch: pytest.MonkeyPatch) -> None:
    emit = Tick.emit

    def more(self: Tick, entry: e.Entry) -> None:
        emit(self, entry)
        if isinstance(entry, e.Ended):
            emit(self, e.Observed(entry.key, "running"))

    patch.setattr(Tick, "emit", more)
    patch.setattr(RunState, "_open", lambda self, key: self.attempts[key])


def _asked_is_cancelled(patch: pytest.MonkeyPatch) -> None:
    cancel = d._cancel

    def done(x: d.Situation, status: JobStatus, why: str) -> d.Step:
        return d.EndCancelled(launched=True) if x.cancels else cancel(x, status, why)

    patch.setattr(d, "_cancel", done)


def _do_not_wait(patch: pytest.MonkeyPatch) -> None:
    standing = Scheduler._standing

    def eager(self: Scheduler, step: Any, tick: Tick) -> tuple[Standing, e.Cause]:
        found, cause = standing(self, step, tick)
        return (Standing.DONE, cause) if found is Standing.OPEN else (found, cause)

    patch.setattr(Scheduler, "_standing", eager)


def _two_successors(patch: pytest.MonkeyPatch) -> None:
    reserve = Scheduler.reserve

    def orphaned(self: Scheduler, *args: Any) -> str:
        wave, label, steps, cause, parent, tick = args
        first = next(iter(tick.state.attempts), "")
        return reserve(self, wave, label, steps, cause, first if parent else "", tick)

    patch.setattr(Scheduler, "reserve", orphaned)


def _old_preflight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Supervisor, "_check", lambda _self, _tick: d.Check.PASSED)


def _drop_frames(patch: pytest.MonkeyPatch) -> None:
    def refresh(self: Journal) -> tuple[Any, ...]:
        from npa.errors import StorageError
        from npa.observation import Found

        found: list[Any] = []
        while True:
            answer: Observation[Blob] = self.storage.get(key_of(self.head + 1))
            if isinstance(answer, Found):
                found.extend(self._accept([answer.value.data]))
            elif isinstance(answer, Absent):
                return tuple(found)
            else:
                raise StorageError("the journal cannot be read")

    patch.setattr(Journal, "refresh", refresh)


def _echo_the_environment(patch: pytest.MonkeyPatch) -> None:
    def echo(self: Supervisor, attempt: Any, status: Any, _reason: str, tick: Tick) -> None:
        if status is not None:
            tick.emit(e.Observed(attempt.key, status.phase.value, f"TOKEN={CANARY}"))

    patch.setattr(Supervisor, "_observed", echo)


def _leave_them_running(patch: pytest.MonkeyPatch) -> None:
    finish = Driver._finish_if_over

    def early(self: Driver, tick: Tick) -> Outcome | None:
        if self._scheduler.failure is not None and self.state.live:
            tick.emit(e.RunFailed("EARLY", "one failed"))
            return Outcome(Ending.FAILED)
        return finish(self, tick)

    patch.setattr(Driver, "_finish_if_over", early)


def _wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    decide = d.decide

    def patient(x: d.Situation) -> d.Step:
        step = decide(x)
        return d.Wait(step.reason, d.LATER) if isinstance(step, d.Hold) else step

    patch.setattr(d, "decide", patient)


def _one_empty_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Supervisor, "_since_odd", lambda *_args: 1e9)


def _always_try_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(player, "exit_code_of_ending", lambda *_a, **_k: ExitCode.NO_ROOM)


ALL: tuple[Mutant, ...] = (
    Mutant("an effect is carried out twice", 1, _launch_twice, s.SINGLE),
    Mutant("recoveries cost nothing", 1, _free_recoveries, s.UNLUCKY),
    Mutant("one look at the queue proves absence", 2, _absent_at_once, s.SINGLE),
    Mutant("no claim is taken before a launch is given up", 2, _no_fence, s.SINGLE, two=True),
    Mutant("effects come before their frame", 3, _act_first, s.SINGLE),
    Mutant("an outage is read as absence", 4, _outage_is_absence, s.SINGLE),
    Mutant("a cancel takes the first ID", 5, _cancel_by_guess, s.WINDOW),
    Mutant("the provider's word is success", 6, _trust_the_word, s.SINGLE),
    Mutant("outputs of an earlier attempt count", 6, _take_leftovers, s.LEFTOVERS),
    Mutant("entries follow an attempt's end", 7, _write_after_the_end, s.SINGLE),
    Mutant("asked to stop is cancelled", 8, _asked_is_cancelled, s.CANCELLED),
    Mutant("what was launched counts as done", 9, _do_not_wait, s.CHAIN),
    Mutant("a successor has the wrong parent", 10, _two_successors, s.RETRY),
    Mutant("recoveries cost nothing to the budget", 10, _free_recoveries, s.UNLUCKY),
    Mutant("an old preflight counts", 10, _old_preflight, s.SINGLE),
    Mutant("frames are dropped when a later look fails", 11, _drop_frames, s.CANCELLED),
    Mutant("a provider's echo is written down", 12, _echo_the_environment, s.SINGLE),
    Mutant("the run ends before its jobs", 13, _leave_them_running, s.WINDOW),
    Mutant("holds are waits", 14, _wait_for_ever, s.SINGLE),
    Mutant("one empty queue answer holds the run", 14, _one_empty_answer, s.SINGLE),
    Mutant("try later is always said", 15, _always_try_later, s.SINGLE),
)
