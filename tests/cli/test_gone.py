"""`--gone`: a person vouches for a job that holds a run, and the run goes on or ends."""

from __future__ import annotations

import pytest

from npa.errors import RunError, UsageError
from npa.orchestration import runs
from npa.orchestration.decide import Goal
from npa.orchestration.driver import Ending
from npa.orchestration.journal import entries as e
from npa.orchestration.state import Lifecycle
from runs_harness import Bench

ONE = "initial: a\nstates:\n  a: {run: {shell: 'true'}, terminal: true}\n"


def held_run(bench: Bench) -> runs.OpenRun:
    """A run whose only job was launched, vanished, and holds it."""
    run = bench.submit(ONE)
    journal, key = run.journal, "k" * 64
    journal.append([e.DriverEntry("host", "boot", 1, 1, "complete")], epoch=2)
    journal.append(
        [
            e.Reserved("a", "a", 1, key, "r1-a-kkkkkkkkkk", e.Cause.FIRST, {"a": "d"}, ("a",)),
            e.Intent(key, e.Verb.LAUNCH),
            e.Outcome(key, "7", "launch reply"),
            e.Held("VANISHED", "the job was there and is gone", "", "a"),
            e.Released("held"),
        ],
        epoch=2,
    )
    return runs.open_run(bench.host, "r1")


def test_a_job_that_is_declared_gone_ends_and_its_step_runs_again(bench: Bench) -> None:
    run = held_run(bench)
    assert runs.declare_gone(run, "r1-a-kkkkkkkkkk", reason="removed", by="me@here")
    assert not run.state.live
    runs.reopen(bench.host, run, reason="resume", from_states=("a",))
    outcome, state = bench.drive()
    assert outcome.ending is Ending.COMPLETED
    first, second = state.attempts.values()
    assert first.end is not None
    assert (first.end.code, first.vouched_by) == ("DECLARED_GONE", "me@here")
    assert second.cause is e.Cause.OPERATOR


def test_a_cancelled_run_ends_once_its_job_is_declared_gone(bench: Bench) -> None:
    run = held_run(bench)
    runs.request_cancel(run, "enough", "me")
    runs.declare_gone(run, "r1-a-kkkkkkkkkk", reason="", by="me@here")
    _, state = bench.drive(goal=Goal.CANCELLED)
    assert state.lifecycle is Lifecycle.CANCELLED


def test_it_may_be_said_twice(bench: Bench) -> None:
    run = held_run(bench)
    assert runs.declare_gone(run, "r1-a-kkkkkkkkkk", reason="", by="me")
    assert not runs.declare_gone(run, "r1-a-kkkkkkkkkk", reason="", by="me")


def test_only_a_job_that_holds_the_run_can_be_declared_gone(bench: Bench) -> None:
    run = held_run(bench)
    run.state.held.clear()
    with pytest.raises(RunError) as caught:
        runs.declare_gone(run, "r1-a-kkkkkkkkkk", reason="", by="me")
    assert caught.value.code == "JOB_NOT_HELD"
    with pytest.raises(UsageError):
        runs.declare_gone(run, "nobody", reason="", by="me")
