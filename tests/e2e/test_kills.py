"""The real driver is killed with SIGKILL at random moments and resumed, and nothing is lost.

The seed is printed with a failure; `NPA_CHAOS_SEED` repeats what was drawn.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from chaos.campaign import SCENARIOS, Campaign

pytestmark = pytest.mark.e2e
SEED = int(os.environ.get("NPA_CHAOS_SEED") or random.SystemRandom().randrange(1 << 31))
BY_NAME = {one.name: one for one in SCENARIOS}


def attack(tmp_path: Path, name: str, kills: int, per_run: int) -> None:
    with Campaign(tmp_path, SEED) as campaign:
        tally = campaign.run(BY_NAME[name], kills, per_run=per_run)
    print(f"\n{campaign.table()}\n{campaign.line()}")
    assert campaign.wrong == [], campaign.line()
    assert sum(tally.kills.values()) == kills


@pytest.mark.req("D-01", "D-05", "E-01", "E-05")
def test_the_demo_survives_twenty_kills(tmp_path: Path) -> None:
    """Same result, no stage executed twice, no orphan process."""
    pytest.importorskip("sklearn", reason="the `demo` extra is not installed")
    attack(tmp_path, "digits demo", 20, per_run=10)


@pytest.mark.req("D-01", "E-01")
def test_a_run_on_s3_survives_kills(tmp_path: Path) -> None:
    attack(tmp_path, "s3", 6, per_run=6)


@pytest.mark.req("D-01", "D-04", "E-01")
def test_a_run_survives_kills_while_its_store_comes_and_goes(tmp_path: Path) -> None:
    attack(tmp_path, "s3 that goes away", 5, per_run=5)


@pytest.mark.req("D-01", "E-02", "E-03")
@pytest.mark.parametrize("whose", ["shims", "ranks"])
def test_a_run_survives_kills_of_more_than_its_driver(tmp_path: Path, whose: str) -> None:
    attack(tmp_path, f"{whose} die too", 6, per_run=6)
