"""Plans, drawings, descriptions, tools: what a file means, with nothing launched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_harness import Golden, Run
from cli_specs import BRANCHES, TWO_STEPS, WRONG, write

PLAN = ("workflow", "plan-spec")


def test_one_path_is_a_list_of_steps(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, TWO_STEPS)
    golden("plan-steps", *PLAN, spec)
    golden("plan-steps-json", *PLAN, spec, "--json")


def test_without_an_assumption_every_path_is_shown(golden: Golden, tmp_path: Path) -> None:
    golden("plan-tree", *PLAN, write(tmp_path, BRANCHES))


def test_an_assumption_shows_one_path(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, BRANCHES)
    golden("plan-promote", *PLAN, spec, "--assume-decision", "promote_checkpoint")


def test_waves_are_what_is_launched_together(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, BRANCHES)
    golden("plan-waves", *PLAN, spec, "--waves")
    golden("plan-waves-json", *PLAN, spec, "--waves", "--json", "--run-id", "r1")


def test_a_plan_for_a_store_shows_its_uris(npa: Run, tmp_path: Path) -> None:
    spec = write(tmp_path, TWO_STEPS)
    result = npa(*PLAN, spec, "--store", "s3://data/runs", "--run-id", "r7", "--json")
    outputs = json.loads(result.stdout)["steps"][0]["outputs"]
    assert outputs == [{"schema": "", "uri": "s3://data/runs/r7/first/word.txt"}]


def test_a_file_with_errors_is_not_planned(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, WRONG)
    golden("plan-wrong", *PLAN, spec)
    golden("plan-wrong-json", *PLAN, spec, "--json")


def test_run_spec_plans_unless_told_to_execute(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, TWO_STEPS)
    golden("run-spec", "workflow", "run-spec", spec)
    golden("run-spec-json", "workflow", "run-spec", spec, "--json")


@pytest.mark.parametrize("form", ["mermaid", "dot", "json"])
def test_a_drawing_on_stdout(golden: Golden, tmp_path: Path, form: str) -> None:
    spec = write(tmp_path, BRANCHES)
    golden(f"graph-{form}", "workflow", "graph", spec, "--format", form)


def test_a_drawing_in_a_file_takes_its_form_from_the_ending(npa: Run, tmp_path: Path) -> None:
    spec = write(tmp_path, BRANCHES)
    result = npa("workflow", "graph", spec, "-o", "p.svg")
    assert result.stdout == "p.svg\n"
    assert (tmp_path / "p.svg").read_text().lstrip().startswith("<svg")


def test_a_drawing_that_cannot_be_written_is_an_error(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, BRANCHES)
    golden("graph-no-folder", "workflow", "graph", spec, "-o", "no/such/p.svg")


def test_what_can_be_set_is_described(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, BRANCHES)
    golden("describe", "workflow", "describe", spec)
    golden("describe-json", "workflow", "describe", spec, "--json")
    golden("describe-var", "workflow", "describe", spec, "--var", "limit=5")


def test_the_schema_for_editors(npa: Run) -> None:
    schema = json.loads(npa("workflow", "schema").stdout)
    assert "states" in schema["properties"]


def test_a_tool_is_explained_and_a_wrong_name_gets_a_suggestion(golden: Golden, npa: Run) -> None:
    golden("tools-one", "workflow", "tools", "core.gate.threshold")
    golden("tools-unknown", "workflow", "tools", "core.gate.treshold")
    listed = json.loads(npa("workflow", "tools", "--json").stdout)
    assert "core.gate.threshold" in [tool["ref"] for tool in listed]
    assert "core.gate.threshold" in npa("workflow", "tools").stdout


def test_a_catalogue_of_ones_own_adds_tools(npa: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "catalogue: npa.catalog/v1\nfamily: lab\n"
        "tools:\n  hello: {summary: say hello, command: [echo, hello]}\n"
    )
    result = npa("workflow", "tools", "lab.hello", "--catalog", "mine.yaml")
    assert "lab.hello: say hello" in result.stdout
