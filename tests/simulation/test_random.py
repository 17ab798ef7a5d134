"""Long drawn schedules: many faults in one run."""

from __future__ import annotations

import pytest

from simulation import explore, scenarios
from simulation.scenarios import Scenario

SEEDS = 50
FAULTS_MAX = 200


@pytest.mark.parametrize("scenario", scenarios.ALL, ids=lambda s: s.name)
def test_no_drawn_schedule_breaks_an_invariant(scenario: Scenario) -> None:
    tally = explore.drawn(scenario, range(SEEDS), budget=FAULTS_MAX, rate=0.15)
    assert not tally.failures, "\n".join(map(str, tally.failures))
