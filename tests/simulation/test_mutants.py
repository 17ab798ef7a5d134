"""Each deliberate bug must be found by the invariant that it breaks."""

from __future__ import annotations

import pytest

from simulation import explore, invariants, mutants
from simulation.choices import Only, Plan
from simulation.duel import SWITCHES, play_two_for
from simulation.invariants import Played
from simulation.mutants import Mutant
from simulation.play import play_for
from simulation.scenarios import Scenario


@pytest.mark.parametrize("mutant", mutants.ALL, ids=lambda m: m.name.replace(" ", "-"))
def test_a_deliberate_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    invariant = invariants.BY_NUMBER[mutant.number]

    def player(scenario: Scenario, plan: Plan) -> Played:
        if mutant.two:
            return play_two_for(invariant, scenario, Only(plan, SWITCHES))
        return play_for(invariant, scenario, plan)

    mutant.patch(monkeypatch)
    tally = explore.all_schedules(mutant.scenario, 2 if mutant.two else 1, player=player)
    assert tally.failures, f"{tally.schedules} schedules did not find it"
    assert tally.failures[0].number == mutant.number


def test_every_invariant_has_a_deliberate_bug() -> None:
    assert {m.number for m in mutants.ALL} == set(range(1, 16))
