"""Engines for tests, and the rule that no test leaves a process behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from npa.orchestration.local.engine import LocalEngine
from npa.orchestration.local.inventory import Inventory
from orchestration.local.kit import living, until

BIG = Inventory(cpus=1000.0, memory_gib=1000.0)

MakeEngine = Callable[..., LocalEngine]


@pytest.fixture
def make_engine(tmp_path: Path) -> Iterator[MakeEngine]:
    """Engines over one jobs root; each child carries the test's own folder in its environment.

    At the end no process of the test may live. If one does, the test fails, and it is killed.
    """
    made: list[LocalEngine] = []
    (tmp_path / "jobs").mkdir(0o700, exist_ok=True)

    def make(inventory: Inventory = BIG, **env: str) -> LocalEngine:
        base = {"PATH": os.environ["PATH"], "TEST_HOME": str(tmp_path), **env}
        made.append(LocalEngine(tmp_path / "jobs", base_env=base, inventory=inventory))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
    try:
        until(lambda: not living(str(tmp_path)), "every process of the test to end")
    except AssertionError:
        left = living(str(tmp_path))
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes outlived the test: {left}")


@pytest.fixture
def engine(make_engine: MakeEngine) -> LocalEngine:
    return make_engine()
