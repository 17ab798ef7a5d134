"""The benchmarks measure what they say: clean files of the asked size, honest costs and ratios."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from npa.catalog.loader import Catalog
from npa.orchestration import snapshots
from npa.orchestration.journal.chain import Journal
from npa.orchestration.registry import default_run_uri
from npa.orchestration.state import Lifecycle
from npa.storage import open_store
from npa.target.home import Home
from npa.workflow.load import load_text

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports one of the benchmarks' modules, which stand beside each other in one folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_generated_workflows_are_clean_and_of_the_asked_size(load: Any, shape: str) -> None:
    text = load("shapes").npa(shape, 50)
    loaded = load_text(text, filename=f"{shape}.yaml", tools=Catalog.load())
    assert loaded.diagnostics == ()
    assert text.count("argv:") == 50


def test_a_failure_is_a_cost_with_its_reason(load: Any, tmp_path: Path) -> None:
    argv = ("/bin/sh", "-c", "echo error: out of cheese; echo hint: buy some; exit 3")
    cost = load("measure").run(argv, cwd=tmp_path, log=tmp_path / "log")
    assert cost.problem == "exit 3: error: out of cheese"


def test_a_command_that_does_not_end_is_stopped_and_named(load: Any, tmp_path: Path) -> None:
    argv = ("/bin/sh", "-c", "sleep 600")
    cost = load("measure").run(argv, cwd=tmp_path, log=tmp_path / "log", limit_s=0.1)
    assert cost.problem == "stopped after 0.1 s"


def test_children_may_write_bytecode(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in load("measure").clean_environment()


def test_ratios_are_to_the_bare_loop_of_the_same_case(load: Any) -> None:
    tables, measure = load("tables"), load("measure")

    def row(engine: str, case: str, *walls: float) -> Any:
        costs = [measure.Cost(wall, wall, 10.0, 5.0) for wall in walls]
        return tables.Row.of(engine, "child", case, 100, costs)

    rows = [
        row(tables.FLOOR, "chain 100", 0.5),
        row(tables.FLOOR, "fan 100", 0.25),
        row("other", "chain 100", 3.0, 1.0),
        row("other", "fan 100", 1.0),
    ]
    machine = {"cpus": 2, "memory_gb": 4, "python": "3", "system": "x", "when": "now"}
    page = tables.page(machine, {"no-ops": rows})
    (line,) = [line for line in page.splitlines() if line.startswith("| other")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["other", "child", "1.00", "1.00", "2.0", "4.0", "10.00", "10"]


def test_what_could_not_run_is_named_with_the_reason(load: Any) -> None:
    tables = load("tables")
    machine = {"cpus": 2, "memory_gb": 4, "python": "3", "system": "x", "when": "now"}
    page = tables.page(machine, {"no-ops": [tables.Skipped("peer 1", "not installable: offline")]})
    assert "- peer 1: not installable: offline" in page


def test_a_written_history_is_a_run_that_can_be_opened(load: Any, tmp_path: Path) -> None:
    home = Home(tmp_path / "home").make()
    run_id = load("history").write(home, 20)
    store = open_store(default_run_uri(home, run_id))
    state = snapshots.read(store, Journal(store, lambda: 0.0))
    assert state.lifecycle is Lifecycle.COMPLETED
    assert len(state.attempts) == 20
    assert all(state.success_of(path) for path in state.latest)
