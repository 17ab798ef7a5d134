"""Journals of every released layout: the newest code reads, folds and resumes them.

A line is a frame, byte for byte. `<what>.<scenario>.jsonl` names what happened, and to which
workflow of the simulation. They are written once, by scripts/golden_journals.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from changed import replace
from npa.orchestration.journal.chain import key_of
from npa.orchestration.journal.entries import Result
from npa.orchestration.journal.frame import parse
from npa.orchestration.state import Lifecycle, RunState, fold
from simulation import scenarios
from simulation.choices import Scripted
from simulation.play import Stage, drive_to_the_end, play
from simulation.watch import Watch
from simulation.world import World

FILES = sorted(Path(__file__).with_name("golden").glob("*/*.jsonl"))
WORDS = {
    "completed": Lifecycle.COMPLETED,
    "failed": Lifecycle.FAILED,
    "cancelled": Lifecycle.CANCELLED,
    "held": Lifecycle.FAILED,
    "cut": Lifecycle.RUNNING,
}


def frames_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def state_of(path: Path) -> RunState:
    return fold(parse(data) for data in frames_of(path))


@pytest.fixture(params=FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def golden(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_there_are_golden_journals() -> None:
    assert len(FILES) >= 13


def test_every_frame_is_read_and_folds_to_what_its_name_says(golden: Path) -> None:
    state = state_of(golden)
    assert state.lifecycle is WORDS[golden.name.split("-")[0]]
    assert state.n == len(frames_of(golden))


def test_every_prefix_is_a_legal_state(golden: Path) -> None:
    state = RunState()
    for data in frames_of(golden):
        state.apply([parse(data)])
    assert state == state_of(golden)


def test_a_run_of_an_old_layout_goes_on(golden: Path) -> None:
    scenario = scenarios.BY_NAME[golden.name.split(".")[1]]
    before = frames_of(golden)
    stage = Stage(replace(scenario, natures=()), World(Scripted()))
    stage.world.store.clear()
    stage.world.watch = Watch(stage.world, scenario)
    stage.world.provider.born = stage.world.watch.born
    stage.world.provider.started = stage.world.watch.started
    for n, data in enumerate(before, start=1):
        stage.world.store[key_of(n)] = data
        stage.world.watch.wrote(key_of(n), data)
    stage.world.wall = stage.world.watch.shadow.at + 3600.0
    stage.world.start_process().alive = False  # the one that wrote them
    revive(stage)
    drive_to_the_end(stage)
    shadow = stage.world.watch.shadow
    assert shadow.lifecycle.over
    if golden.name.startswith("cut"):
        assert shadow.lifecycle is Lifecycle.COMPLETED
    else:
        assert shadow.n == len(before)  # a finished run stays as it is
    assert [stage.world.store[key_of(n)] for n in range(1, len(before) + 1)] == before


def revive(stage: Stage) -> None:
    """The provider still has the jobs of the journal; what the ended ones wrote is there."""
    declared = play(stage.scenario, Scripted()).world.watch.declared
    stage.world.watch.declared.update(declared)
    stage.world.advance(0.0)
    for attempt in stage.world.watch.shadow.attempts.values():
        if attempt.native_id:
            outputs = {path: declared[path] for path in attempt.members}
            ended = attempt.end.members if attempt.end is not None else {}
            good = {path for path, end in ended.items() if end.result is Result.SUCCEEDED}
            row = stage.world.provider.restore(
                attempt.name, attempt.key, outputs, ended=bool(ended), good=good
            )
            assert str(row.id) == attempt.native_id
