"""All single faults: every kind at every external call of every scenario."""

from __future__ import annotations

import pytest

from npa.orchestration import snapshots
from simulation import explore, scenarios
from simulation.choices import Scripted
from simulation.play import play
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


def test_no_single_fault_breaks_a_run_that_is_opened_from_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "FRAMES_MIN", 3)
    monkeypatch.setattr(snapshots, "GROWTH", 1.0)
    tally = explore.all_schedules(scenarios.SINGLE, 1)
    assert not tally.failures, "\n".join(map(str, tally.failures))
    played = play(scenarios.SINGLE, Scripted())
    assert any(key.startswith(snapshots.FOLDER) for key in played.world.store)


@pytest.mark.req("D-01", "D-04", "D-05", "D-06", "E-01", "E-02", "E-03", "E-04", "E-05")
@pytest.mark.parametrize("scenario", PARAMETERS)
def test_no_single_fault_breaks_an_invariant(scenario: Scenario) -> None:
    tally = explore.all_schedules(scenario, 1)
    assert not tally.failures, "\n".join(map(str, tally.failures))
    assert tally.schedules > 200
