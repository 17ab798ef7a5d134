"""The digits example from the command line: both ends, a broken stage, another store."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from behaviour.conftest import Machine, machine
from chaos import demo
from chaos.server import s3_process
from npa.observation import Found
from npa.storage import Stores

__all__ = ["machine"]  # the fixture

pytestmark = pytest.mark.e2e
pytest.importorskip("sklearn", reason="the `demo` extra is not installed")
pytest.importorskip("matplotlib", reason="the `demo` extra is not installed")

SECONDS_MAX = 300.0
SUBMIT = ("workbench", "workflow", "submit")
OPTIONS = ("--engine", "local", "--run-id", "r1", "--json", "--env", "CHAOS_TRACE")
BROKEN = 'raise SystemExit("a stage that is broken on purpose")\n'


@pytest.fixture
def digits(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example whose attempts are counted from outside."""
    monkeypatch.setattr("behaviour.conftest.DEADLINE_SECONDS", SECONDS_MAX)
    spec = demo.write(machine.root / "project")
    machine.env |= demo.environment(spec.parent)
    machine.env["CHAOS_TRACE"] = str(machine.work / "trace")
    return spec


def submit(machine: Machine, spec: Path, *words: str) -> tuple[int, Any]:
    said = machine.npa(*SUBMIT, spec, *OPTIONS, *demo.OPTIONS, *words)
    return said.code, said.document


def ran(machine: Machine) -> Counter[str]:
    """How often each step began, by its own word (a gang counts each rank)."""
    lines = (machine.work / "trace").read_text().splitlines()
    return Counter(line.split()[1] for line in lines if line.startswith("begin"))


def summary(machine: Machine, uri: str = "") -> Any:
    root = uri or (machine.home / "runs" / "r1").as_uri() + "/"
    seen = Stores(machine.options).get(f"{root}artifacts/report/summary.json")
    assert isinstance(seen, Found), seen
    return json.loads(seen.value.data)


def measured(machine: Machine, uri: str = "") -> Any:
    return demo.essence({"summary": summary(machine, uri)})


def test_the_demo_promotes_a_model_and_reports_it(machine: Machine, digits: Path) -> None:
    code, document = submit(machine, digits)
    assert (code, document["status"], document["terminal"]) == (0, "succeeded", "report-promoted")
    found = summary(machine)
    assert found["outcome"] == "promoted"
    assert found["validation_accuracy"] >= found["accuracy_threshold"]
    page = machine.home / "runs/r1/artifacts/report/report.html"
    assert page.read_text().lstrip().lower().startswith("<!doctype html")
    assert set(ran(machine).values()) == {1, 2}
    assert {path for path, n in ran(machine).items() if n == 2} == {"cross-check"}
    listed = machine.npa("workflow", "artifacts", "r1", "--json").document["artifacts"]
    assert any(one["uri"].endswith("report/report.html") for one in listed)


def test_a_threshold_that_nothing_reaches_ends_on_the_shortfall_branch(
    machine: Machine, digits: Path
) -> None:
    code, document = submit(machine, digits, "--var", "accuracy_threshold=1.01")
    assert (code, document["terminal"]) == (0, "report-shortfall")
    found = summary(machine)
    assert found["outcome"] == "shortfall"
    assert found["iteration"] == found["max_iterations"]
    counted = ran(machine)
    rounds = [path for path in counted if path.endswith("/refine-train")]
    assert len(rounds) == found["max_iterations"]
    assert "report-promoted" not in counted
    assert found["validation_accuracy"] < 1.01


def test_a_broken_stage_fails_with_the_rank_the_line_and_the_way_on(
    machine: Machine, digits: Path
) -> None:
    """Rank 1 of the gang breaks; after the fix only the gang and what follows it run."""
    script = digits.parent / "stages" / "cross_check.py"
    good = script.read_text()
    broken = (
        'import os\n\nif os.environ["SKYPILOT_NODE_RANK"] == "1":\n    print("one")\n    ' + BROKEN
    )
    script.write_text(broken + good.partition("from __future__ import annotations\n")[2])
    spec = digits.read_text()
    assert "retry: {payload: 1, backoffSeconds: 2}" in spec
    digits.write_text(spec.replace("retry: {payload: 1, backoffSeconds: 2}", "retry: {payload: 0}"))
    said = machine.npa(*SUBMIT, digits, *OPTIONS[:4], *OPTIONS[5:], *demo.OPTIONS)
    assert said.code == 1
    assert "cross-check" in said.out
    assert "a stage that is broken on purpose" in said.err
    assert "npa workflow resume r1" in said.err
    status = machine.npa("workflow", "status", "r1", "--json")
    (step,) = [one for one in status.document["steps"] if one["path"] == "cross-check"]
    assert (step["recorded"], step["exit_code"], step["rank"], step["log_line"]) == (
        *("failed", 1, 1, 2),
    )
    before = ran(machine)
    script.write_text(good)
    refused = machine.npa("workflow", "resume", "r1")
    assert refused.code == 12
    assert "--accept-changes" in refused.err
    resumed = machine.npa("workflow", "resume", "r1", "--accept-changes", "mended rank 1", "--json")
    assert (resumed.code, resumed.document["terminal"]) == (0, "report-promoted")
    again = ran(machine) - before
    assert again == {"cross-check": 2, "report-promoted": 1}


def test_the_demo_on_s3_keeps_journal_and_artifacts_there_and_measures_the_same(
    machine: Machine, digits: Path
) -> None:
    code, document = submit(machine, digits)
    assert code == 0, document
    here = measured(machine)
    with s3_process() as server:
        machine.env |= server.environment
        machine.options = server.options
        shutil.rmtree(machine.home)
        code, document = submit(machine, digits, "--store", f"{server.uri}demo/")
        assert (code, document["terminal"]) == (0, "report-promoted")
        assert document["run_prefix_uri"] == f"{server.uri}demo/r1/"
        there = measured(machine, f"{server.uri}demo/r1/")
        listed = Stores(machine.options).list(f"{server.uri}demo/r1/npa-workflow/journal/")
        assert isinstance(listed, Found)
        assert len(listed.value) > 10
        assert machine.npa("workflow", "status", "r1").code == 0
    assert not (machine.home / "runs").exists()
    assert here == there
