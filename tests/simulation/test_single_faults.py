"""All single faults: every kind at every external call of every scenario."""

from __future__ import annotations

import pytest

from simulation import explore, scenarios
from simulation.scenarios import Scenario

LARGE = (
    scenarios.GROUP,
    scenarios.WINDOW,
    scenarios.LOOP,
    scenarios.RETRY,
    scenarios.LEFTOVERS,
    scenarios.LOCAL_WINDOW,
)
PARAMETERS = [
    pytest.param(s, id=s.name, marks=[pytest.mark.exhaustive] if s in LARGE else [])
    for s in scenarios.ALL
]


@pytest.mark.req("D-01", "D-04", "D-05", "D-06", "E-01", "E-02", "E-03", "E-04", "E-05")
@pytest.mark.parametrize("scenario", PARAMETERS)
def test_no_single_fault_breaks_an_invariant(scenario: Scenario) -> None:
    tally = explore.all_schedules(scenario, 1)
    assert not tally.failures, "\n".join(map(str, tally.failures))
    assert tally.schedules > 200
