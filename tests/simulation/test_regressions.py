"""Bugs that the simulation has found, one test each, named after what must hold instead."""

from __future__ import annotations

from collections import Counter

import pytest

from changed import replace
from npa.errors import StorageError
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Journal
from simulation import scenarios as s
from simulation.__main__ import replay
from simulation.choices import Scripted, Told
from simulation.duel import play_two
from simulation.faults import Op
from simulation.invariants import Played, check_all
from simulation.play import Stage, drive_once, drive_to_the_end, play
from simulation.store import SimStorage
from simulation.world import World

NO_RECOVERIES = replace(s.POLICY, recoveries=0)


def payloads(played: Played) -> Counter[str]:
    return Counter(start.path for start in played.world.watch.starts)


def held_with(played: Played, code: str) -> bool:
    return any(text.startswith(code) for text in played.shown)


def test_frames_that_were_read_before_a_look_failed_are_handed_over() -> None:
    world = Stage(s.SINGLE, World(Told({(Op.READ, 3): "unavailable"}))).world
    reader = Journal(SimStorage(world), world.now, readers=1)
    reader.read()
    world.person.cancel("now")
    frames = reader.refresh()
    assert [type(x) for frame in frames for x in frame.entries] == [e.CancelRequested]
    assert reader.head == 2


def test_a_refresh_that_reads_nothing_says_that_it_could_not_look() -> None:
    world = Stage(s.SINGLE, World(Told({(Op.READ, 2): "unavailable"}))).world
    reader = Journal(SimStorage(world), world.now, readers=1)
    reader.read()
    with pytest.raises(StorageError):
        reader.refresh()


def test_an_outage_and_then_one_empty_answer_conclude_nothing() -> None:
    story = {(Op.OBSERVE, n): "unavailable" for n in range(1, 6)}
    played = play(
        s.SINGLE, Told({**story, (Op.LAUNCH, 1): "kill-between", (Op.OBSERVE, 6): "empty"})
    )
    assert played.endings == ["completed"]
    assert payloads(played) == {"a": 1}


def test_a_wall_clock_that_jumps_while_nobody_drives_proves_no_absence() -> None:
    stage = Stage(s.SINGLE, World(Told({(Op.LAUNCH, 1): "late", (Op.OBSERVE, 1): "kill-before"})))
    assert drive_once(stage) is None
    stage.world.wall += 4000.0
    drive_to_the_end(stage)
    check_all(stage.played)
    assert len(stage.world.provider.rows) == 1
    assert payloads(stage.played) == {"a": 1}


def test_what_a_launch_answered_is_written_down_before_its_row_shows() -> None:
    played = play(s.SINGLE, Told({(Op.LAUNCH, 1): "invisible"}))
    attempt = next(iter(played.state.attempts.values()))
    assert (attempt.source, attempt.adopted) == ("launch reply", False)


def test_a_launch_that_its_dead_driver_left_open_costs_no_recovery() -> None:
    played = play(replace(s.SINGLE, policy=NO_RECOVERIES), Told({(Op.LAUNCH, 1): "kill-before"}))
    assert played.state.lifecycle.value == "completed"
    assert payloads(played) == {"a": 1}


def test_a_launch_that_became_late_in_an_outage_is_left_out_and_costs_no_recovery() -> None:
    played = play(replace(s.SINGLE, policy=NO_RECOVERIES), Told({(Op.CREATE, 2): "burst-after"}))
    first, second = played.state.attempts.values()
    assert first.end is not None
    assert first.end.code == "LAUNCH_NOT_MADE"
    assert second.end is not None
    assert payloads(played) == {"a": 1}


def test_a_claim_that_could_not_be_taken_is_tried_again() -> None:
    played = play(s.SINGLE, Told({(Op.LAUNCH, 1): "lost-request", (Op.CREATE, 3): "lost-request"}))
    assert played.endings == ["completed"]


def test_the_launch_of_a_driver_that_stood_still_runs_no_payload() -> None:
    played = play_two(s.SINGLE, Told({(Op.LAUNCH, 1): "switch"}))
    assert len(played.world.provider.rows) == 2
    assert payloads(played) == {"a": 1}
    assert played.state.lifecycle.value == "completed"


def test_a_live_step_is_no_orphan_while_what_came_before_it_cannot_be_seen() -> None:
    played = play(s.CHAIN, Told({(Op.LAUNCH, 2): "kill-between", (Op.LOOK, 2): "outage"}))
    assert played.endings == ["completed"]
    assert payloads(played) == {"a": 1, "b": 1, "c": 1}


def test_a_run_is_cancelled_though_the_outputs_of_earlier_steps_are_gone() -> None:
    stage = Stage(s.CHAIN, World(Told({(Op.LAUNCH, 2): "kill-between"})))
    assert drive_once(stage) is None
    stage.world.provider.artifacts.clear()
    stage.world.person.cancel("enough")
    drive_to_the_end(stage)
    check_all(stage.played)
    assert stage.played.endings == ["cancelled"]


def test_a_cancelled_run_ends_when_its_job_failed_and_nobody_knows_why() -> None:
    played = play(s.SINGLE, Told({(Op.LAUNCH, 1): "mute", (Op.WAIT, 1): "cancel"}))
    assert played.endings == ["cancelled"]


def test_a_word_that_stays_unknown_ends_in_a_hold() -> None:
    assert held_with(play(s.SINGLE, Told({(Op.LAUNCH, 1): "word-forever"})), "UNKNOWN")


def test_an_end_that_is_never_settled_ends_in_a_hold() -> None:
    assert held_with(play(s.SINGLE, Told({(Op.LAUNCH, 1): "never-settles"})), "UNSETTLED")


def test_outputs_that_a_failed_attempt_left_are_no_success_of_a_preempted_one() -> None:
    assert held_with(play(s.LEFTOVERS, Scripted()), "OUTPUT_EVIDENCE")


def test_a_preflight_of_an_earlier_driver_does_not_count() -> None:
    played = play(s.PHANTOM, Told({(Op.LAUNCH, 2): "kill-before"}))
    assert played.world.watch.log.count("preflight") == 2
    assert played.state.lifecycle.value == "completed"


@pytest.mark.parametrize(
    "schedule",
    [
        (
            "window+two:8:switch,11:unavailable,12:empty,26:kill-before,49:kill-before,65:unavailable,"
            "77:invisible,78:kill-after,87:unavailable,105:sleep"
        ),
        (
            "loop+two:5:kill-between,25:kill-after,26:outage,34:kill-before,38:unavailable,39:outage,"
            "100:kill-between,110:kill-before,129:kill-before,132:outage,148:unavailable,164:kill-after,"
            "173:unavailable,188:outage,192:unavailable,217:late,226:sleep,228:empty"
        ),
    ],
    ids=["window", "loop"],
)
def test_a_driver_that_stood_still_has_not_looked_and_gives_up_no_begun_job(schedule: str) -> None:
    assert replay(schedule) == 0
