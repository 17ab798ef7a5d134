"""Closest names."""

from __future__ import annotations

import pytest

from npa.workflow.suggest import Suggester


@pytest.mark.parametrize(
    ("word", "names", "closest"),
    [
        ("evalute", ["evaluate", "train"], "evaluate"),
        ("tranisitons", ["transitions"], "transitions"),
        ("tool_ref", ["toolRef", "tool-ref"], "tool-ref"),
        ("abc", ["xyz"], ""),
        ("a", ["b"], "b"),
        ("", ["a"], ""),
        ("same", ["same"], ""),
    ],
)
def test_the_closest_name(word: str, names: list[str], closest: str) -> None:
    assert Suggester().closest(word, names) == closest


def test_the_search_stops_when_its_budget_is_used_up() -> None:
    suggester = Suggester(work_max=100)  # two words of this length
    assert suggester.closest("evalute", ["evaluace", "xxxxxxx", "evaluate"]) == "evaluace"
    assert suggester.did_you_mean("evalute", ["evaluate"]) == ""
