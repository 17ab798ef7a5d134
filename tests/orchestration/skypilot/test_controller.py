"""A stopped jobs controller is started again, and meanwhile no job of it is absent or ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from npa.observation import Found, Unavailable
from npa.orchestration.engine import CancelUnknown, JobRef, Launched, LaunchUnknown, Phase, RoomKind
from npa.orchestration.skypilot.configs import (
    Controller,
    controller_stops,
    kubernetes_config,
    nebius_config,
    slurm_config,
)
from npa.orchestration.skypilot.connect import connect
from npa.orchestration.skypilot.controller import GAP_SECONDS, START_SECONDS_MAX
from npa.orchestration.skypilot.engine import LAUNCH_WINDOW_SECONDS
from npa.orchestration.skypilot.record import Kind
from npa.orchestration.skypilot.spec import SessionSpec
from orchestration.skypilot.engine_world import KEY, World, job

pytestmark = pytest.mark.req("D-03")

STOPPED = "controller_not_up:stopped"


def wakes(world: World) -> int:
    return int(world.read().get("wakes", 0))


def cause_of(seen: object) -> str:
    assert isinstance(seen, Unavailable), seen
    return seen.cause


def test_a_launch_starts_a_stopped_controller_and_goes_on(world: World) -> None:
    world.change(controller=["stopped", "init", "init", "up"])
    began = world.time.at
    assert world.engine.launch(job()) == Launched("1", "reconciled")
    assert (wakes(world), world.posts) == (1, 1)
    assert world.time.at - began < 60.0


def test_a_job_of_before_is_adopted_and_not_launched_again(world: World) -> None:
    world.engine.launch(job())
    world.time.sleep(20.0)
    world.change(controller=["stopped", "up"])
    assert world.engine.launch(job()) == Launched("1", "adopted")
    assert (wakes(world), world.posts) == (1, 1)


@pytest.mark.req("D-04")
def test_a_controller_that_does_not_start_launches_nothing(world: World) -> None:
    world.change(controller=["stopped"] * 500)
    began = world.time.at
    reply = world.engine.launch(job())
    assert isinstance(reply, LaunchUnknown)
    assert world.posts == 0
    assert START_SECONDS_MAX <= world.time.at - began < START_SECONDS_MAX + 20.0


def test_no_launch_is_begun_while_the_controller_starts(world: World) -> None:
    world.engine.controller_stops = True
    world.change(controller=["stopped", "init", "up"])
    said = []
    for _ in range(4):
        said.append(world.engine.room(job().tasks[:0]).kind)
        world.time.sleep(20.0)
    assert said == [RoomKind.BUSY] * 3 + [RoomKind.FITS]
    assert (wakes(world), world.posts) == (1, 0)
    assert isinstance(world.engine.launch(job()), Launched)


def test_a_controller_that_cannot_stop_is_not_asked_for_room(world: World) -> None:
    world.change(controller=["stopped"] * 5)
    assert world.engine.room(()).kind is RoomKind.FITS
    assert wakes(world) == 0


@pytest.mark.req("D-04")
def test_a_job_of_a_stopped_controller_is_neither_absent_nor_ended(world: World) -> None:
    """The controller proves only that it drives no job now; the driver's look starts it again."""
    assert isinstance(world.engine.launch(job()), Launched)
    world.rows(status="SUCCEEDED", schedule_state="DONE")
    world.change(controller=["stopped"] * 3 + ["init"] * 2 + ["up"])
    seen = [world.look() for _ in range(6)]
    assert [cause_of(one) for one in seen] == [STOPPED] * 4 + ["controller_not_up:init"] * 2
    last = world.look()
    assert isinstance(last, Found)  # what it was is readable again, and was never lost
    assert (last.value.phase, last.value.settled) == (Phase.SUCCEEDED, True)
    assert wakes(world) == 1  # while one start is under way, there is no second


@pytest.mark.req("D-04")
def test_a_job_that_never_was_is_not_absent_before_the_queue_can_be_read(world: World) -> None:
    world.change(controller=["stopped"] * 50)
    assert {cause_of(world.look("nobody", "00")) for _ in range(20)} == {STOPPED}


def test_a_start_that_came_to_nothing_is_tried_again_later(world: World) -> None:
    assert isinstance(world.engine.launch(job()), Launched)
    world.change(controller=["stopped"] * 100, waking="FAILED")
    began, tries = world.time.at, []
    while world.time.at - began < 10 * GAP_SECONDS:
        if wakes(world) > len(tries):
            tries.append(world.time.at)
        world.look()
    assert 5 <= len(tries) <= 11


def test_a_look_for_people_says_so_at_once_and_starts_nothing(world: World) -> None:
    assert isinstance(world.engine.launch(job()), Launched)
    world.time.sleep(20.0)
    world.change(controller=["stopped"])
    began = world.time.at
    seen = world.engine.glance([JobRef("job", KEY)])["job"]
    assert isinstance(seen, Unavailable)
    assert seen.cause == STOPPED
    assert "stopped" in seen.detail
    assert "No in-progress" not in seen.detail  # SkyPilot's word for it, which it cannot know
    assert (world.time.at, wakes(world)) == (began, 0)


@pytest.mark.req("D-04")
def test_a_cancel_waits_for_the_controller(world: World) -> None:
    world.engine.launch(job())
    seen = world.look()
    assert isinstance(seen, Found)
    world.time.sleep(20.0)
    world.change(controller=["stopped", "up"])
    reply = world.engine.cancel(seen.value.exact)
    assert isinstance(reply, CancelUnknown)
    assert reply.cause == "controller"
    assert (wakes(world), world.read().get("cancelled", [])) == (1, [])


def test_a_controller_that_another_is_making_is_left_to_it(world: World) -> None:
    world.change(controller=["init"] * 100)
    assert cause_of(world.look()) == "controller_not_up:init"
    assert isinstance(world.engine.launch(job()), LaunchUnknown)
    assert (wakes(world), world.posts) == (0, 0)


def test_only_a_controller_on_a_virtual_machine_can_stop(tmp_path: Path) -> None:
    configs = {
        "pod": kubernetes_config("ctx"),
        "vm": kubernetes_config("ctx", Controller.VM),
        "beside": kubernetes_config("ctx", Controller.CONSOLIDATED),
        "slurm": slurm_config(),
        "nebius": nebius_config(),
    }
    assert [name for name, config in configs.items() if controller_stops(config)] == ["vm"]
    for name, config in configs.items():
        spec = SessionSpec(tmp_path, Kind.RUN, tmp_path / "python", {}, sky_config=config)
        engine = connect(spec, lambda _job: pytest.fail("nothing is rendered"))
        more = START_SECONDS_MAX if name == "vm" else 0.0
        assert engine.launch_window_seconds == LAUNCH_WINDOW_SECONDS + more
