"""What a STEP on the command line names."""

from __future__ import annotations

import pytest

from npa.cli.stage_names import belongs

DEEP = "outer/refine[2]/grade"


@pytest.mark.parametrize(
    "stage",
    [DEEP, "grade", "refine", "outer", "outer/refine", "outer/refine[2]", "outer/refine/grade"],
)
def test_a_step_is_named_by_itself_its_state_and_each_group_around_it(stage: str) -> None:
    assert belongs(DEEP, "grade", stage)


@pytest.mark.parametrize("stage", ["out", "refine[1]", "outer/refine[1]", "grad", "refine[", "2"])
def test_part_of_a_name_or_another_iteration_names_nothing(stage: str) -> None:
    assert not belongs(DEEP, "grade", stage)


def test_an_item_is_named_by_its_state_and_by_itself() -> None:
    assert belongs("train[0.1]", "train", "train")
    assert belongs("train[0.1]", "train", "train[0.1]")
    assert not belongs("train[0.1]", "train", "train[0.01]")
