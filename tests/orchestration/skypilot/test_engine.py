"""A launch happens once, whatever gets lost; what is not seen is never absent."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from npa.errors import EngineError
from npa.observation import Absent, Ambiguous, Found, Unavailable
from npa.orchestration.engine import (
    CancelRequested,
    CancelUnknown,
    Evidence,
    ExactJob,
    JobRef,
    Launched,
    LaunchRefused,
    LaunchUnknown,
    Phase,
)
from npa.orchestration.evidence import Klass, klass_of
from npa.orchestration.skypilot.client import BridgeClient
from npa.orchestration.skypilot.launch_refused import REFUSED
from npa.orchestration.skypilot.launches import Reached
from npa.orchestration.skypilot.refusals import Refusal
from npa.target.secret import Secret
from orchestration.skypilot.engine_world import KEY, World, job


@pytest.mark.req("D-02")
def test_a_launch_is_seen_in_the_queue_before_control_returns(world: World) -> None:
    assert world.engine.launch(job()) == Launched("1", "reconciled")
    seen = world.look()
    assert isinstance(seen, Found)
    assert seen.value.phase is Phase.PENDING
    assert [member.path for member in seen.value.members] == ["a"]


@pytest.mark.req("D-01")
@pytest.mark.parametrize("fault", ["lost_reply", "die_after_post"])
def test_a_reply_that_is_lost_after_the_post_makes_no_second_job(world: World, fault: str) -> None:
    """swiss-ai/model-launch 211: the submission had started, and a blind retry started another."""
    world.fault(**{fault: True})
    reply = world.engine.launch(job())
    assert reply == Launched("1", "found")
    assert world.engine.launch(job()) == Launched("1", "adopted")
    assert world.posts == 1


@pytest.mark.req("D-06")
def test_a_bridge_that_dies_before_the_post_launched_nothing(world: World) -> None:
    world.fault(die_before_post=True)
    reply = world.engine.launch(job())
    assert isinstance(reply, LaunchRefused)
    assert klass_of(reply.evidence.code) is Klass.TRANSIENT
    assert world.posts == 0


@pytest.mark.parametrize(("code", "told"), sorted(REFUSED.items()))
def test_a_refusal_before_the_post_is_typed(world: World, code: str, told: str) -> None:
    world.fault(refuse=code)
    reply = world.engine.launch(job())
    assert isinstance(reply, LaunchRefused)
    assert reply.evidence.code == told
    assert klass_of(told) is not Klass.UNKNOWN
    assert world.posts == 0


def test_an_unknown_refusal_stays_unknown(world: World) -> None:
    """dstack 2442: an unexpected exception was retried for ever."""
    world.fault(refuse="unknown")
    reply = world.engine.launch(job())
    assert isinstance(reply, LaunchRefused)
    assert klass_of(reply.evidence.code) is Klass.UNKNOWN


@pytest.mark.req("D-06")
def test_a_failed_answer_never_means_that_nothing_was_launched(world: World) -> None:
    """SkyPilot 656: the launch raised "capacity" after it had created the job's row."""
    world.fault(error_after_row="no_resources")
    assert world.engine.launch(job()) == Launched("1", "found")


def test_a_request_that_failed_and_left_no_row_was_refused(world: World) -> None:
    world.fault(no_row="invalid")
    reply = world.engine.launch(job())
    assert isinstance(reply, LaunchRefused)
    assert reply.evidence.code == "INVALID_ARGUMENT"


@pytest.mark.req("D-04")
def test_an_unreadable_queue_blocks_the_launch(world: World) -> None:
    world.change(jobs=[{"job_id": "x"}])
    reply = world.engine.launch(job())
    assert isinstance(reply, LaunchUnknown)
    assert world.posts == 0


@pytest.mark.req("D-04")
def test_two_jobs_of_one_name_block_launch_and_are_listed(world: World) -> None:
    """SkyPilot 4274: two rows of one name."""
    world.engine.launch(job())
    (row,) = world.read()["jobs"]
    world.change(jobs=[row, row | {"job_id": 2}])
    world.time.sleep(5.0)
    assert isinstance(world.engine.launch(job()), LaunchUnknown)
    seen = world.look()
    assert isinstance(seen, Ambiguous)
    assert seen.candidates == ("1", "2")
    assert world.posts == 1


@pytest.mark.req("D-04")
def test_an_earlier_post_without_an_answer_is_not_repeated(world: World) -> None:
    rows = world.engine.launches.prepare(KEY, "job", "d", {}, 0.0)
    rows.write_text('{"row": "posting", "at": 1.0}\n')
    assert isinstance(world.engine.launch(job()), LaunchUnknown)
    assert world.posts == 0


def test_a_session_that_is_not_ours_launches_nothing_and_says_why(world: World) -> None:
    world.session.fault = Refusal.UNPROVEN
    with pytest.raises(EngineError) as caught:
        world.engine.launch(job())
    assert caught.value.hint
    assert world.posts == 0
    seen = world.look()
    assert isinstance(seen, Unavailable)
    assert seen.cause == "SESSION_UNPROVEN"
    (finding,) = world.engine.preflight(())
    assert finding.blocking
    assert finding.remedy


@pytest.mark.req("A-11")
def test_secrets_travel_to_the_bridge_and_into_no_file(world: World, tmp_path: Path) -> None:
    world.secrets = ("TOKEN",)
    assert isinstance(world.engine.launch(job()), LaunchRefused)
    canary = "canary-55aa"
    assert isinstance(world.engine.launch(job(secrets={"TOKEN": Secret(canary)})), Launched)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert canary.encode() not in path.read_bytes(), path


def test_a_controller_that_cannot_be_made_yet_refuses_before_the_post(world: World) -> None:
    world.engine.before_controller = lambda: Evidence("KUBERNETES_TRANSPORT", "readyz")
    assert isinstance(world.engine.launch(job()), LaunchRefused)
    assert world.posts == 0


@pytest.mark.req("D-03")
def test_an_absent_controller_is_no_obstacle_to_a_first_launch(world: World) -> None:
    world.fault(queue_error="controller_not_up")
    assert isinstance(world.engine.launch(job()), Launched)


# -- looking -----------------------------------------------------------------------------------


def test_one_call_serves_all_jobs_and_not_more_often_than_every_three_seconds(
    world: World,
) -> None:
    calls: list[str] = []
    ask = world.engine.bridge.call

    class Counting(BridgeClient):
        def call(self, op: str, seconds: float, **fields: Any) -> Any:
            calls.append(op)
            return ask(op, seconds, **fields)

    world.engine.bridge = Counting((), dict, Path(), Path())
    refs = [JobRef(f"job-{i}", f"{i:02d}") for i in range(50)]
    began = world.time.at
    for _ in range(10):
        world.engine.observe(refs)
        world.engine.wait(1.0)
    assert calls.count("queue") <= (world.time.at - began) / 3.0 + 1


def test_a_queue_in_which_nothing_moves_is_asked_less_and_less_often(world: World) -> None:
    launched = world.engine.launch(job())
    assert isinstance(launched, Launched)
    asked: list[float] = []
    ask = world.engine.bridge.call

    class Noting(BridgeClient):
        def call(self, op: str, seconds: float, **fields: Any) -> Any:
            asked.append(world.time.at)
            return ask(op, seconds, **fields)

    world.engine.bridge = Noting((), dict, Path(), Path())
    ref = JobRef(job().name, job().key, launched.native_id)
    for _ in range(240):
        assert isinstance(world.engine.observe([ref])[ref.name], Found)
        world.engine.wait(0.5)
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert gaps == sorted(gaps)
    assert gaps[0] <= 4.5
    assert set(gaps[-5:]) == {12.0}


@pytest.mark.req("D-04")
@pytest.mark.parametrize("fault", ["garbage", "empty_queue"])
def test_one_bad_answer_is_unavailable_and_the_next_look_sees_again(
    world: World, fault: str
) -> None:
    """Argo 14833: a stale page without our row must not count as absence."""
    world.engine.launch(job())
    world.fault(**{fault: True})
    assert isinstance(world.look(native="1"), Unavailable)
    assert isinstance(world.look(native="1"), Found)


def test_absence_needs_two_complete_looks(world: World) -> None:
    world.engine.launches.prepare(KEY, "job", "d", {}, not_after=0.0)
    first = world.look()
    assert isinstance(first, Unavailable)
    assert first.cause == "absent_once"
    second = world.look()
    assert isinstance(second, Absent)
    assert not second.late_possible


def test_after_a_post_without_an_answer_a_late_job_stays_possible(world: World) -> None:
    rows = world.engine.launches.prepare(KEY, "job", "d", {}, 0.0)
    rows.write_text('{"row": "posting", "at": 1.0}\n')
    world.look()
    seen = world.look()
    assert isinstance(seen, Absent)
    assert seen.late_possible


def test_a_request_that_a_restarted_server_forgot_cannot_be_late(world: World) -> None:
    rows = world.engine.launches.prepare(KEY, "job", "d", {}, 0.0)
    accepted = '{"row": "posting", "at": 1.0}\n{"row": "request", "at": 2.0, "request_id": "r"}\n'
    rows.write_text(accepted)
    world.look()
    gone = world.look()
    assert isinstance(gone, Absent)
    assert not gone.late_possible
    world.change(requests={"r": "RUNNING"})
    going = world.look()
    assert isinstance(going, Absent)
    assert going.late_possible


@pytest.mark.req("D-05")
def test_an_id_that_belongs_to_another_name_is_ambiguous(world: World) -> None:
    world.engine.launch(job())
    seen = world.look(name="other", native="1")
    assert isinstance(seen, Ambiguous)


def test_a_phantom_row_is_found_and_not_observable(world: World) -> None:
    world.engine.launch(job())
    world.rows(status="PENDING", schedule_state="INACTIVE")
    rows = world.engine.launches._path(KEY, "rows")
    rows.write_text(json.dumps({"row": "posting", "at": world.time.at}) + "\n")
    fresh = world.look()
    assert isinstance(fresh, Found)
    assert fresh.value.observable
    world.time.sleep(200.0)
    stale = world.look()
    assert isinstance(stale, Found)
    assert not stale.value.observable


@pytest.mark.req("A-04")
def test_a_server_that_is_gone_is_started_again(world: World) -> None:
    world.engine.launch(job())
    world.session.gone = True
    assert isinstance(world.look(native="1"), Found)
    assert world.session.boot == 2


def test_a_server_that_keeps_dying_is_not_started_in_a_loop(world: World) -> None:
    world.engine.launch(job())
    starts = world.session.starts
    for _ in range(5):
        world.session.gone = True
        world.engine.observe([JobRef("job", KEY, "1")])
    assert world.session.starts == starts + 1


def test_a_bridge_that_is_killed_is_started_again(world: World) -> None:
    world.engine.launch(job())
    world.engine.bridge.restart()
    assert isinstance(world.look(native="1"), Found)
    assert world.engine.bridge.starts == 2


# -- cancelling --------------------------------------------------------------------------------


def seen_exact(world: World) -> ExactJob:
    seen = world.look(native="1")
    assert isinstance(seen, Found)
    return seen.value.exact


@pytest.mark.req("E-04")
def test_a_cancel_names_one_exact_job(world: World) -> None:
    world.engine.launch(job())
    world.engine.launch(job("other", "00ff"))
    assert world.engine.cancel(seen_exact(world)) == CancelRequested()
    assert world.read()["cancelled"] == [1]


@pytest.mark.req("D-04")
@pytest.mark.parametrize("why", ["old", "server", "name", "queue"])
def test_a_cancel_without_a_valid_proof_asks_for_nothing(world: World, why: str) -> None:
    world.engine.launch(job())
    exact = seen_exact(world)
    if why == "old":
        world.time.sleep(500.0)
    if why == "server":
        world.session.boot += 1
    if why == "name":
        world.rows(job_name="renamed")
        world.time.sleep(5.0)
    if why == "queue":
        world.change(jobs=[{}])
        world.time.sleep(5.0)
    assert isinstance(world.engine.cancel(exact), CancelUnknown)
    assert "cancelled" not in world.read()


def test_preflight_names_a_cloud_that_is_not_enabled(world: World) -> None:
    assert world.engine.preflight(()) == ()
    world.engine.infra = ("k8s/context",)
    (finding,) = world.engine.preflight(())
    assert finding.code == "INFRA_NOT_ENABLED"
    assert "kubernetes" in finding.message


def test_preflight_refuses_another_skypilot(world: World) -> None:
    world.fault(version="0.14.1")
    (finding,) = world.engine.preflight(())
    assert finding.code == "SKYPILOT_VERSION"
    assert finding.blocking


def test_the_trace_of_a_good_launch_ends_with_its_id(world: World) -> None:
    world.engine.launch(job())
    trace = world.engine.launches.trace(KEY)
    assert (trace.reached, trace.job_ids) == (Reached.ENDED, (1,))
