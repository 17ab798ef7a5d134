"""Waves: what is launched together, and keys and labels that last."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npa.workflow.meaning import State
from npa.workflow.step import Command, Step
from npa.workflow.walk import Batch, BatchKind
from npa.workflow.waves import LABEL_CHARS_MAX, split_for
from workflow.hand_made import leaf, walk_of


def batch(*paths: str, kind: BatchKind = BatchKind.GROUP, group: str = "fan") -> Batch:
    steps = tuple(Step(path, path.rpartition("/")[2], Command(argv=("true",))) for path in paths)
    return Batch(kind, group, steps, len(paths))


@pytest.mark.req("B-03")
def test_a_group_batch_is_one_wave_for_an_engine_that_launches_groups() -> None:
    (wave,) = split_for(batch("fan/a", "fan/b"), launches_groups=True)
    assert re.fullmatch(r"fan\{a\.\.b\}#[0-9a-f]{8}", wave.key)
    assert (wave.label, wave.group, len(wave.steps)) == ("fan", "fan", 2)


def test_an_engine_without_groups_gets_one_wave_a_step() -> None:
    waves = split_for(batch("fan/a", "fan/b"), launches_groups=False)
    assert [wave.key for wave in waves] == ["fan/a", "fan/b"]


def test_a_group_batch_of_one_is_keyed_by_its_step() -> None:
    (wave,) = split_for(batch("fan/a"), launches_groups=True)
    assert (wave.key, wave.group) == ("fan/a", "")


def test_a_key_tells_batches_with_equal_ends_apart() -> None:
    (one,) = split_for(batch("fan/a", "fan/b", "fan/d"), launches_groups=True)
    (two,) = split_for(batch("fan/a", "fan/c", "fan/d"), launches_groups=True)
    assert one.key != two.key


def test_a_key_depends_on_member_paths_alone() -> None:
    state = State("fan", parallel=("a", "b"), terminal=True)
    walks = [walk_of(state, leaf("a"), leaf("b", text=text)) for text in ("one", "two")]
    keys = set()
    for walk in walks:
        (ask,) = walk.frontier()
        assert isinstance(ask, Batch)
        keys.update(wave.key for wave in split_for(ask, launches_groups=True))
    assert len(keys) == 1


@given(st.text(min_size=1, max_size=80))
def test_a_label_always_fits_a_job_name(path: str) -> None:
    (wave,) = split_for(batch(path, kind=BatchKind.SERIAL, group=""), launches_groups=True)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", wave.label)
    assert len(wave.label) <= LABEL_CHARS_MAX


def test_the_label_of_a_long_path_keeps_its_end() -> None:
    (wave,) = split_for(batch("refinement-of-everything[12]/grade"), launches_groups=False)
    assert wave.label.endswith("12-grade")
