"""Effects: act once, after the intent is durable. The only place that launches or cancels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from npa.orchestration.engine import (
    CancelRequested,
    CancelUnknown,
    Engine,
    Evidence,
    Job,
    Launched,
    LaunchRefused,
    LaunchUnknown,
)
from npa.orchestration.state import Attempt, RunState
from npa.orchestration.tick import CancelEffect, Effect, LaunchEffect
from npa.workflow.step import Step

NOT_MADE = "LAUNCH_NOT_MADE"  # evidence of a launch that its own driver left out

JobBuilder = Callable[[Attempt, Sequence[Step]], Job]


class Effects:
    """Carries out the effects of one committed frame.

    What a launch answered is kept for the next look: `replies` by key (the native ID), `refusals`
    by key (the evidence). A reply that got lost is not missed: the next look finds the job or
    proves that there is none.
    """

    def __init__(self, engine: Engine, build: JobBuilder) -> None:
        self._engine = engine
        self._build = build

    def carry_out(
        self,
        effects: Sequence[Effect],
        state: RunState,
        replies: dict[str, str],
        refusals: dict[str, Evidence],
        *,
        launches: bool = True,
    ) -> None:
        """`launches` false: it is too late for them, and they are known not to have been made."""
        for effect in effects:
            match effect:
                case LaunchEffect(key=key) if not launches:
                    refusals[key] = Evidence(NOT_MADE, "driver")
                case LaunchEffect(key=key, steps=steps):
                    job = self._build(state.attempts[key], steps)
                    reply = self._engine.launch(job)
                    match reply:
                        case Launched(native_id=native_id):
                            replies[key] = native_id
                        case LaunchRefused(evidence=evidence):
                            refusals[key] = evidence
                        case LaunchUnknown():
                            pass  # only looking is allowed now, and that is what comes next
                        case _:
                            assert_never(reply)
                case CancelEffect(exact=exact):
                    answer = self._engine.cancel(exact)
                    match answer:
                        case CancelRequested() | CancelUnknown():
                            pass  # neither proves anything: the job is cancelled when seen so
                        case _:
                            assert_never(answer)
                case _:
                    assert_never(effect)
