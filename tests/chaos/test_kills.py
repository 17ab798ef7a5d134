"""A taste of chaos for every change: five kills of a quick pipeline. `make chaos` does more."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from chaos.campaign import SCENARIOS, Campaign, shares

KILLS = 5


@pytest.mark.req("D-01", "D-05", "E-01")
def test_killed_drivers_are_resumed_and_nothing_runs_twice(tmp_path: Path) -> None:
    seed = int(os.environ.get("NPA_CHAOS_SEED") or random.SystemRandom().randrange(1 << 31))
    files = SCENARIOS[0]
    assert files.name == "files"
    with Campaign(tmp_path, seed) as campaign:
        tally = campaign.run(files, KILLS, per_run=KILLS)
    assert campaign.wrong == [], campaign.line()
    assert sum(tally.kills.values()) == KILLS


def test_every_scenario_gets_its_part_of_the_kills() -> None:
    for kills in (20, 200, 1000):
        parts = shares(kills, SCENARIOS)
        assert sum(parts) == kills
        assert min(parts) >= 1
