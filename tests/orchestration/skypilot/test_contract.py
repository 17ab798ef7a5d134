"""The engine's contract, against the stand-in bridge."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from npa.orchestration.skypilot.client import BridgeClient
from npa.orchestration.skypilot.engine import SkyPilotEngine
from npa.orchestration.skypilot.launches import Launches
from orchestration.skypilot.contract import holds_from_launch_to_cancel
from orchestration.skypilot.engine_world import (
    STANDIN,
    Documents,
    FakeSession,
    VirtualClock,
    job,
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SkyPilotEngine]:
    path = tmp_path / "world.json"
    path.write_text(json.dumps({"jobs": [], "faults": {}, "requests": {}, "posts": 0}))
    argv = (sys.executable, "-I", "-u", str(STANDIN), str(path))
    made = SkyPilotEngine(
        session=FakeSession(),
        bridge=BridgeClient(argv, dict, tmp_path, tmp_path / "bridge.log"),
        launches=Launches(tmp_path / "launches"),
        render=lambda wanted: Documents(f"name: {wanted.name}\n---\nname: t\n", {"a": "t"}),
        facts={},
        clock=VirtualClock().clock(),
    )
    yield made
    made.bridge.restart()


@pytest.mark.req("D-02", "D-04", "D-05", "E-04")
def test_the_contract_holds_from_launch_to_cancel(engine: SkyPilotEngine) -> None:
    holds_from_launch_to_cancel(engine, job("contract"))
