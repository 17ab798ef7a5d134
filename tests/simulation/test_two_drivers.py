"""Two drivers of one run, interleaved at every external call."""

from __future__ import annotations

import pytest

from simulation import explore, scenarios
from simulation.duel import duel, play_two
from simulation.scenarios import Scenario

SHARDS = 8
QUICK = (scenarios.SINGLE, scenarios.LOCAL, scenarios.RETRY)


@pytest.mark.req("D-01", "D-05")
@pytest.mark.parametrize("scenario", QUICK, ids=lambda s: s.name)
def test_a_second_driver_at_every_point_and_back(scenario: Scenario) -> None:
    tally = explore.all_schedules(scenario, 1, player=duel)
    assert not tally.failures, "\n".join(map(str, tally.failures))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_interleaving_of_three_switches(shard: int) -> None:
    tally = explore.all_schedules(scenarios.SINGLE, 3, shard=shard, shards=SHARDS, player=duel)
    assert not tally.failures, "\n".join(map(str, tally.failures))
    assert tally.schedules > 1000  # eight shards, uneven: more than 10,000 in all


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "scenario", [scenarios.CHAIN, scenarios.LOCAL, scenarios.CANCELLED], ids=lambda s: s.name
)
def test_every_interleaving_of_two_switches(scenario: Scenario) -> None:
    tally = explore.all_schedules(scenario, 2, player=duel)
    assert not tally.failures, "\n".join(map(str, tally.failures))


def test_two_drivers_under_drawn_faults() -> None:
    for scenario in (scenarios.SINGLE, scenarios.CHAIN):
        tally = explore.drawn(scenario, range(40), budget=8, rate=0.08, player=play_two)
        assert not tally.failures, "\n".join(map(str, tally.failures))
