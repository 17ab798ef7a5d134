"""`validate-spec` and `explain`: every problem at once, in every form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_harness import Golden, Run
from cli_specs import TWO_STEPS, WRONG, write


def test_a_valid_file(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, TWO_STEPS)
    golden("validate-valid", "workflow", "validate-spec", spec)
    golden("validate-valid-json", "workflow", "validate-spec", spec, "--json")


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
def test_every_problem_of_a_file_in_each_form(golden: Golden, tmp_path: Path, form: str) -> None:
    spec = write(tmp_path, WRONG)
    result = golden(f"validate-wrong-{form}", "workflow", "validate-spec", spec, "--format", form)
    assert result.code == 1
    if form in ("json", "sarif"):
        json.loads(result.stdout)


def test_an_override_of_an_unknown_key_is_a_usage_error_with_the_nearest_key(
    golden: Golden, tmp_path: Path
) -> None:
    spec = write(tmp_path, TWO_STEPS)
    golden("validate-var-unknown", "workflow", "validate-spec", spec, "--var", "wrod=hi")


def test_a_wrong_override_leads_to_the_command_that_lists_what_can_be_set(
    npa: Run, tmp_path: Path
) -> None:
    spec = write(tmp_path, TWO_STEPS)
    wrong = npa("workflow", "submit", spec, "--var", "wrod=hi")
    assert wrong.code == 64
    assert "did you mean 'word'?" in wrong.stderr
    assert f"npa workflow describe {spec}" in wrong.stderr
    assert "word" in npa("workflow", "describe", spec).stdout


@pytest.mark.parametrize("command", ["validate-spec", "plan-spec", "graph", "describe", "submit"])
def test_every_command_refuses_a_wrong_override_with_the_command_line(
    npa: Run, tmp_path: Path, command: str
) -> None:
    spec = write(tmp_path, TWO_STEPS.replace("word: hello", "word: 3"))
    for words, said in (
        (("--var", "wrod=hi"), "unknown config key 'wrod' in `--var`"),
        (("--var", "word=hi"), "`config.word` is 'hi' in `--var`, not a number"),
        (("--var", "word=hi", "--var", "x=1"), "2 values of `--var` cannot be used"),
    ):
        wrong = npa("workflow", command, spec, *words)
        assert (wrong.code, wrong.stdout) == (64, "")
        assert said in wrong.stderr
        assert f"npa workflow describe {spec}" in wrong.stderr


def test_a_wrong_file_is_told_with_its_wrong_overrides(npa: Run, tmp_path: Path) -> None:
    both = npa("workflow", "validate-spec", write(tmp_path, WRONG), "--var", "wrod=hi")
    assert both.code == 1
    assert "NPA020" in both.stdout
    assert "NPA023" in both.stdout


def test_a_wrong_file_leads_to_a_command_that_shows_the_same_problems(
    npa: Run, tmp_path: Path
) -> None:
    spec = write(tmp_path, WRONG)
    wrong = npa("workflow", "submit", spec, "--var", "wrod=a b")
    assert f"npa workflow validate-spec {spec} --var 'wrod=a b'" in wrong.stderr


def test_an_override_that_is_no_pair_is_a_usage_error(golden: Golden, tmp_path: Path) -> None:
    spec = write(tmp_path, TWO_STEPS)
    golden("validate-var-no-pair", "workflow", "validate-spec", spec, "--var", "word")


def test_a_file_that_is_not_there(golden: Golden) -> None:
    golden("validate-missing", "workflow", "validate-spec", "nope.yaml")
    golden("validate-missing-json", "workflow", "validate-spec", "nope.yaml", "--json")


def test_a_code_is_explained(golden: Golden, npa: Run) -> None:
    golden("explain-023", "workflow", "explain", "npa023")
    page = json.loads(npa("workflow", "explain", "NPA023", "--json").stdout)
    assert page["code"] == "NPA023"
    everything = npa("workflow", "explain")
    assert "NPA023" in everything.stdout


def test_an_unknown_code_gets_a_suggestion(golden: Golden) -> None:
    golden("explain-unknown", "workflow", "explain", "NPA0023")


def test_what_a_run_ends_with_is_explained(npa: Run) -> None:
    page = npa("workflow", "explain", "declared_output_missing")
    assert "npa workflow artifacts RUN" in page.stdout
    assert "OUT_OF_MEMORY" in npa("workflow", "explain").stdout
    wrong = npa("workflow", "explain", "OUT_OF_MEMROY")
    assert (wrong.code, "did you mean 'OUT_OF_MEMORY'?" in wrong.stderr) == (64, True)


def test_a_script_that_is_not_beside_the_file_is_a_warning(npa: Run, tmp_path: Path) -> None:
    spec = write(
        tmp_path,
        "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nstates:\n"
        "  a: {run: {argv: [python, joinn.py]}, next: b}\n"
        "  b: {run: {setup: 'touch made.sh', argv: [bash, made.sh]}, next: c}\n"
        "  c: {run: {argv: [python, -m, made]}, next: d}\n"
        "  d: {run: {argv: [python, /opt/there.py]}, terminal: true}\n",
    )
    (tmp_path / "join.py").write_text("")
    told = json.loads(npa("workflow", "validate-spec", spec, "--json").stdout)
    (item,) = told["diagnostics"]
    assert (item["code"], item["line"], item["column"]) == ("NPA084", 4, 28)
    assert (item["severity"], item["help"]) == ("warning", "did you mean 'join.py'?")
    broken = write(tmp_path, Path(spec).read_text().replace("next: b", "next: bb"))
    told = json.loads(npa("workflow", "validate-spec", broken, "--json").stdout)
    assert {item["code"] for item in told["diagnostics"]} >= {"NPA023", "NPA084"}
    write(tmp_path, Path(spec).read_text().replace("next: bb", "next: b"))
    (tmp_path / "joinn.py").write_text("")
    assert json.loads(npa("workflow", "validate-spec", spec, "--json").stdout)["warnings"] == 0


def test_a_script_that_is_left_out_of_the_source_is_told_so(npa: Run, tmp_path: Path) -> None:
    spec = write(
        tmp_path,
        "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nstates:\n"
        "  a: {run: {argv: [python, join.py]}, next: b}\n"
        "  b: {run: {argv: [python, nowhere-at-all.py]}, terminal: true}\n",
    )
    (tmp_path / "join.py").write_text("")
    (tmp_path / ".npaignore").write_text("join.py\n")
    told = json.loads(npa("workflow", "validate-spec", spec, "--json").stdout)
    assert [(item["code"], item["help"]) for item in told["diagnostics"]] == [
        ("NPA084", "it is there, but `.npaignore` or `.gitignore` leaves it out"),
        ("NPA084", "put it beside the pipeline's file"),
    ]


@pytest.mark.parametrize("command", ["plan-spec", "run"])
def test_a_command_that_goes_on_shows_the_warnings_first(
    npa: Run, tmp_path: Path, command: str
) -> None:
    steps = "".join(
        f"  s{n}: {{run: {{argv: [bash, s{n}.sh]}}, next: s{n + 1}}}\n" for n in range(6)
    )
    spec = write(
        tmp_path,
        "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\ninitial: s0\nstates:\n"
        f"{steps}  s6: {{run: {{argv: ['true']}}, terminal: true}}\n",
    )
    words = ("workflow", command) if command != "run" else (command,)
    told = npa(*words, spec, "--json")
    json.loads(told.stdout)
    assert told.stderr.count("warning NPA084") == 5
    assert f"1 more warning: npa workflow validate-spec {spec}" in told.stderr
