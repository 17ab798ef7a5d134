"""All ordered pairs of distinct faults, for the three smallest scenarios."""

from __future__ import annotations

import pytest

from simulation import explore, scenarios
from simulation.scenarios import Scenario

SHARDS = 8


@pytest.mark.exhaustive
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("scenario", scenarios.SMALLEST, ids=lambda s: s.name)
def test_no_pair_of_faults_breaks_an_invariant(scenario: Scenario, shard: int) -> None:
    tally = explore.all_schedules(
        scenario, 2, shard=shard, shards=SHARDS, player=explore.distinct_only
    )
    assert not tally.failures, "\n".join(map(str, tally.failures))
    assert tally.schedules > 1000  # eight shards of three scenarios: more than 24,000
