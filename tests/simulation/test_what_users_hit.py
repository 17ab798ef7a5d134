"""What users of such engines have hit, one test a behaviour.

The trouble is told, the truth is checked. `told` also checks all invariants at the end of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from changed import replace
from npa.errors import DrivenElsewhere, RunError, StoreUnfit
from npa.orchestration.driver import Ending
from npa.orchestration.engine import Job, LaunchReply
from npa.orchestration.state import Lifecycle
from npa.storage import probe_conditional_create
from simulation import scenarios as s
from simulation.choices import Scripted, Told
from simulation.engine import QueueEngine
from simulation.faults import Op
from simulation.invariants import Played, check_all
from simulation.play import Stage, drive_once, drive_to_the_end, play
from simulation.scenarios import Scenario
from simulation.store import SimStorage
from simulation.world import World

Story = Mapping[tuple[Op, int], str]


def told(scenario: Scenario, story: Story) -> Played:
    return play(scenario, Told(story))


def launches(played: Played) -> int:
    return len(played.world.watch.launches)


def payloads(played: Played) -> Counter[str]:
    return Counter(start.path for start in played.world.watch.starts)


def rows(played: Played) -> int:
    return len(played.world.provider.rows)


# -- launch exactly once, adopt rather than relaunch -------------------------------------------


@pytest.mark.req("D-01", "D-02", "D-06")
def test_a_launch_whose_reply_is_lost_is_found_and_adopted() -> None:
    played = told(s.SINGLE, {(Op.LAUNCH, 1): "lost-reply"})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    assert (launches(played), rows(played)) == (1, 1)
    assert next(iter(played.state.attempts.values())).adopted


@pytest.mark.req("D-06")
def test_a_launch_that_lands_after_the_client_gave_up_is_adopted() -> None:
    played = told(s.SINGLE, {(Op.LAUNCH, 1): "late"})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    assert rows(played) == 1


@pytest.mark.req("D-04")
def test_two_rows_of_one_name_are_ambiguous_and_neither_is_cancelled_or_launched_again() -> None:
    played = told(s.SINGLE, {(Op.LAUNCH, 1): "duplicate-lost"})
    assert "held" in played.endings
    assert any(text.startswith("AMBIGUOUS") for text in played.shown)
    assert launches(played) == 1
    assert not played.world.watch.cancels
    assert payloads(played)["a"] <= 1


@pytest.mark.req("D-02")
def test_stale_pages_after_a_launch_cause_no_second_one() -> None:
    played = told(s.SINGLE, {(Op.LAUNCH, 1): "lost-reply", (Op.OBSERVE, 1): "empty"})
    assert (launches(played), rows(played)) == (1, 1)
    hidden = told(s.SINGLE, {(Op.LAUNCH, 1): "invisible"})
    assert (launches(hidden), rows(hidden)) == (1, 1)


def test_a_finished_run_that_is_resumed_does_nothing() -> None:
    stage = Stage(s.SINGLE, World(Scripted()))
    drive_to_the_end(stage)
    before = dict(stage.world.store)
    outcome = drive_once(stage)
    assert outcome is not None
    assert outcome.ending is Ending.COMPLETED
    assert stage.world.store == before


@pytest.mark.req("D-02")
def test_a_driver_killed_while_its_job_is_pending_adopts_it_on_resume() -> None:
    played = told(s.SINGLE, {(Op.OBSERVE, 1): "kill-before"})
    assert (launches(played), payloads(played)) == (1, {"a": 1})
    assert played.state.lifecycle is Lifecycle.COMPLETED


@pytest.mark.req("E-05")
def test_a_job_that_ended_well_while_nobody_drove_is_not_run_again() -> None:
    stage = Stage(s.SINGLE, World(Told({(Op.OBSERVE, 1): "kill-before"})))
    assert drive_once(stage) is None
    stage.world.advance(60.0)
    drive_to_the_end(stage)
    check_all(stage.played)
    assert payloads(stage.played) == {"a": 1}
    assert stage.played.state.lifecycle is Lifecycle.COMPLETED


def test_two_drivers_resuming_at_once_let_one_win_and_the_other_leaves_with_a_clear_answer() -> (
    None
):
    stage = Stage(s.CHAIN, World(Told({(Op.WAIT, 2): "kill-before"})))
    assert drive_once(stage) is None
    first, second = stage.world.start_process(), stage.world.start_process()
    stage.world.process = first
    slow = stage.driver(first)
    stage.world.process = second
    fast = stage.driver(second)
    slow._rebuild()  # both are past the read
    assert fast.run().ending is Ending.COMPLETED
    second.alive = False
    stage.world.process = first
    assert slow._take_the_lease(take_over=False) is not None
    check_all(stage.played)


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written() -> None:
    stage = Stage(s.SINGLE, World(Scripted()))
    blind = SimStorage(stage.world, faulty=False, ignores_conditions=True)
    with pytest.raises(StoreUnfit):
        probe_conditional_create(blind)  # type: ignore[arg-type]


@pytest.mark.req("D-04", "E-01")
def test_thirty_failed_looks_at_a_healthy_job_cause_nothing() -> None:
    slow = replace(s.SINGLE, natures=("forever",))
    story = {(Op.OBSERVE, n): "unavailable" for n in range(2, 32)}
    played = told(slow, {**story, (Op.OBSERVE, 35): "cancel"})
    assert launches(played) == 1
    assert len(played.world.watch.cancels) == 1  # the person's, at the end
    assert played.state.lifecycle is Lifecycle.CANCELLED


@pytest.mark.req("E-05")
def test_a_job_that_vanished_after_it_wrote_its_outputs_has_succeeded() -> None:
    played = told(s.SINGLE, {(Op.LAUNCH, 1): "vanished-late"})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    assert launches(played) == 1


# -- cancellation that is true -----------------------------------------------------------------


@pytest.mark.req("F-03", "E-04")
@pytest.mark.parametrize("how", ["late", "lost-reply", "invisible"])
def test_a_cancel_while_the_launch_is_in_flight_ends_the_job_by_its_exact_id(how: str) -> None:
    played = told(s.SINGLE, {(Op.LAUNCH, 1): how, (Op.WAIT, 1): "cancel"})
    assert played.state.lifecycle is Lifecycle.CANCELLED
    assert len(played.world.watch.cancels) == 1
    assert all(not row.live for row in played.world.provider.rows)


def test_a_cancel_between_reservation_and_launch_seals_it_and_resume_launches_nothing() -> None:
    stage = Stage(s.SINGLE, World(Told({(Op.LAUNCH, 1): "kill-before"})))
    assert drive_once(stage) is None
    stage.world.person.cancel("changed my mind")
    drive_to_the_end(stage)
    check_all(stage.played)
    assert stage.played.state.lifecycle is Lifecycle.CANCELLED
    assert rows(stage.played) == 0
    key = next(iter(stage.world.watch.tries))
    assert b"driver" in stage.world.store[f"npa-workflow/attempts/{key}/claim"]


def test_a_clean_up_failure_over_a_success_does_not_change_the_run() -> None:
    played = told(s.SINGLE, {(Op.LAUNCH, 1): "controller"})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    assert launches(played) == 1
    end = next(iter(played.state.attempts.values())).end
    assert end is not None
    assert end.provider == "failed"  # the provider's own last word is kept beside it


def test_cancelling_words_on_the_way_to_success_are_not_believed() -> None:
    played = told(s.SINGLE, {(Op.LAUNCH, 1): "cancel-words"})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    assert payloads(played) == {"a": 1}


@pytest.mark.req("E-04", "F-03")
def test_a_provider_that_never_confirms_a_cancel_ends_in_a_named_hold_not_in_cancelled() -> None:
    ignored = {(Op.CANCEL, 0): "ignored", (Op.WAIT, 2): "cancel"}
    stage = Stage(replace(s.SINGLE, natures=("forever",)), World(Told(ignored)))
    outcome = drive_once(stage)
    assert outcome is not None
    assert outcome.ending is Ending.HELD
    hold = outcome.holds["a"]
    assert hold.code == "CANCELLATION_UNVERIFIED"
    assert "npa workflow cancel r --gone r-a-" in hold.remedy
    assert stage.world.watch.shadow.lifecycle is Lifecycle.RUNNING


@pytest.mark.req("F-03")
def test_ctrl_c_and_cancel_in_the_same_poll_are_one_decision() -> None:
    played = told(s.SINGLE, {(Op.WAIT, 2): "cancel+ctrl-c"})
    assert played.state.lifecycle is Lifecycle.CANCELLED
    assert len(played.world.watch.cancels) == 1
    assert played.state.cancel is not None
    assert played.state.cancel.reason in ("a person asked", "interrupted by Ctrl-C")


@pytest.mark.req("F-03")
def test_a_cancel_may_be_repeated() -> None:
    played = told(s.SINGLE, {(Op.WAIT, 2): "cancel", (Op.WAIT, 3): "cancel"})
    assert played.state.lifecycle is Lifecycle.CANCELLED
    assert len(played.world.watch.cancels) == 1


@pytest.mark.req("F-03")
def test_the_reason_of_a_cancel_is_kept() -> None:
    stage = Stage(s.SINGLE, World(Told({(Op.WAIT, 2): "kill-before"})))
    drive_once(stage)
    stage.world.person.cancel("budget")
    drive_to_the_end(stage)
    assert stage.world.watch.shadow.cancel is not None
    assert stage.world.watch.shadow.cancel.reason == "budget"


# -- recovery, retries, classes of failure -----------------------------------------------------


def test_members_that_had_not_started_run_after_a_crash_and_the_join_sees_all() -> None:
    played = told(s.WINDOW, {(Op.LAUNCH, 2): "kill-between"})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    assert payloads(played) == {"all/m1": 1, "all/m2": 1, "all/m3": 1, "join": 1}


def test_resume_runs_steps_in_their_order() -> None:
    played = told(s.CHAIN, {(Op.LAUNCH, 2): "kill-between"})
    assert [start.path for start in played.world.watch.starts] == ["a", "b", "c"]


def test_one_failed_member_of_a_group_costs_one_extra_run() -> None:
    group = replace(s.GROUP, policy=replace(s.POLICY, retries=1))
    played = told(group, {(Op.LAUNCH, 1): "exit"})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    assert payloads(played) == {"all/m1": 2, "all/m2": 1, "all/m3": 1, "join": 1}


@pytest.mark.parametrize("point", ["kill-before", "kill-between", "kill-after"])
def test_a_crash_between_step_done_and_next_step_reserved_moves_on(point: str) -> None:
    calm = play(s.CHAIN, Scripted()).world.trace
    creates = calm.count(Op.CREATE)
    for number in range(1, creates + 1):
        played = told(s.CHAIN, {(Op.CREATE, number): point})
        assert payloads(played) == {"a": 1, "b": 1, "c": 1}


def test_a_restart_with_fifty_live_waves_adopts_fifty() -> None:
    names = [f"m{i}" for i in range(50)]
    wide = Scenario(
        "wide",
        "initial: all\nstates:\n"
        f"  all: {{parallel: [{', '.join(names)}], parallelMode: window, next: end}}\n"
        + "".join(s.step(name, "") for name in names)
        + s.step("end", ", terminal: true"),
        (*(f"all/{name}" for name in names), "end"),
    )
    played = told(wide, {(Op.OBSERVE, 1): "kill-before"})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    assert launches(played) == rows(played) == 51


def test_another_host_goes_on_with_nothing_but_the_store_once_it_takes_over() -> None:
    stage = Stage(s.CHAIN, World(Told({(Op.WAIT, 3): "kill-before"})))
    assert drive_once(stage) is None
    stage.sees_processes = False  # of the first host
    process = stage.world.start_process()
    with pytest.raises(DrivenElsewhere):
        stage.driver(process).run()
    outcome = stage.driver(process).run(take_over=True)
    assert outcome.ending is Ending.COMPLETED
    assert payloads(stage.played) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.req("E-02", "E-03")
def test_an_evicted_pod_is_infrastructure_and_not_the_payloads_fault() -> None:
    evicted = replace(s.SINGLE, natures=("evicted",))
    played = told(evicted, {})
    assert played.state.lifecycle is Lifecycle.COMPLETED
    first, second = played.state.attempts.values()
    assert first.end is not None
    assert (first.end.klass, first.end.code) == ("transient", "EVICTED")
    assert second.cause.value == "recovery"


@pytest.mark.req("D-04")
def test_one_empty_answer_about_a_running_job_kills_and_holds_nothing() -> None:
    for number in (2, 3):
        played = told(s.SINGLE, {(Op.OBSERVE, number): "empty"})
        assert played.endings == ["completed"]
        assert payloads(played) == {"a": 1}


@pytest.mark.req("E-05")
def test_a_step_that_succeeded_on_its_retry_is_not_run_again_on_resume() -> None:
    retried = replace(s.RETRY, natures=("exit",))
    played = told(retried, {(Op.LAUNCH, 3): "kill-between"})
    assert payloads(played) == {"a": 2, "b": 1}


class BrokenEngine(QueueEngine):
    """The client of the provider raises what nobody expects, once the job is there."""

    def launch(self, job: Job) -> LaunchReply:
        super().launch(job)
        if len(self._world.provider.rows) == 1:
            raise TypeError("unexpected keyword argument 'infra'")
        raise AssertionError("launched again")


def test_an_unexpected_exception_of_a_client_stops_and_does_not_loop() -> None:
    stage = Stage(replace(s.SINGLE, engine=BrokenEngine), World(Scripted()))
    process = stage.world.start_process()
    with pytest.raises(TypeError):
        stage.driver(process).run()
    process.alive = False
    drive_to_the_end(stage)
    check_all(stage.played)
    assert payloads(stage.played) == {"a": 1}


@pytest.mark.req("E-02")
def test_a_failure_that_nobody_explains_holds_and_is_never_retried() -> None:
    played = told(s.RETRY, {(Op.LAUNCH, 1): "mute"})
    assert any(text.startswith("UNKNOWN") for text in played.shown)
    assert launches(played) == 1


# -- a person goes on with a run ---------------------------------------------------------------


def finished(scenario: Scenario, natures: tuple[str, ...] = ()) -> Stage:
    stage = Stage(scenario, World(Scripted()))
    drive_to_the_end(stage)
    stage.world.natures = list(natures)
    return stage


def test_resume_from_a_state_runs_it_and_what_depends_on_it_and_nothing_else() -> None:
    stage = finished(s.CHAIN)
    assert stage.world.person.reopen("b")
    drive_to_the_end(stage)
    check_all(stage.played)
    assert payloads(stage.played) == {"a": 1, "b": 2, "c": 2}
    assert stage.played.state.lifecycle is Lifecycle.COMPLETED


def test_what_an_earlier_success_left_is_no_success_of_a_rerun_that_was_preempted() -> None:
    stage = finished(s.CHAIN, natures=("preempted",))
    stage.world.person.reopen("c")
    drive_to_the_end(stage)
    check_all(stage.played)
    assert any(text.startswith("OUTPUT_EVIDENCE") for text in stage.played.shown)
    assert payloads(stage.played)["c"] == 3


def test_resume_while_a_driver_lives_is_refused_and_changes_nothing() -> None:
    stage = Stage(s.CHAIN, World(Told({(Op.WAIT, 2): "kill-before"})))
    drive_once(stage)
    stage.world.processes[1].alive = True
    before = dict(stage.world.store)
    process = stage.world.start_process()
    with pytest.raises(DrivenElsewhere):
        stage.driver(process).run()
    assert stage.world.store == before


def test_a_run_with_live_jobs_is_not_reopened() -> None:
    stage = Stage(s.CHAIN, World(Told({(Op.WAIT, 2): "kill-before"})))
    drive_once(stage)
    with pytest.raises(RunError):
        stage.world.person.reopen("a")
