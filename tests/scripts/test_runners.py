"""The runner scripts: from the named worktree or not at all; thin wrappers with one summary."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
RUNNERS = ("run_bdd100k_pipeline", "run_isaac_lab_rl")
GREET = """apiVersion: npa.workflow/v0.0.1
kind: Workflow
metadata: {name: greet}
config: {task_name: none, fails: "no"}
initial: greet
states:
  greet:
    run:
      shell: |
        echo {{config.task_name|quote}} > greeting.txt
        npa artifact put greeting.txt "{{run.uri}}greeting.txt"
        test {{config.fails|quote}} = no
    outputs:
      - uri: "{{run.uri}}greeting.txt"
    terminal: true
"""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / "greet.yaml"
    path.write_text(GREET)
    return path


def homes(home: Path) -> list[Path]:
    return [path for path in (home / ".npa").rglob("*") if path.is_file()]


@pytest.mark.req("G-03")
@pytest.mark.parametrize("name", RUNNERS)
@pytest.mark.parametrize(
    "named", [None, "", "relative/tree", "/no/such/worktree", "a temporary one"]
)
def test_a_runner_without_a_lasting_worktree_stops_before_submission(
    name: str, named: str | None, spec: Path, tmp_path: Path, own_home: Path
) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "NPA_LIVE_WT"}
    if named == "a temporary one":
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        named = str(tmp_path)
    if named is not None:
        environ["NPA_LIVE_WT"] = named
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py"), "--spec", str(spec), "--engine", "local"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    summary = json.loads(done.stdout)
    assert done.returncode == 64
    assert summary["status"] == "not submitted"
    assert summary["error_code"] == "LIVE_WORKTREE"
    assert homes(own_home) == []


class TestTheWorktree:
    """`temporary=()` lets a worktree of a test count as a lasting one."""

    @pytest.fixture
    def runner(self, load: Callable[[str], ModuleType]) -> Any:
        return load("live_runner")

    @pytest.mark.req("G-03")
    def test_the_top_of_this_checkout_is_taken(self, runner: Any) -> None:
        assert runner.live_worktree({"NPA_LIVE_WT": str(ROOT)}, ()) == ROOT

    @pytest.mark.parametrize("within", ["src", "workflows/testing"])
    def test_a_folder_below_the_top_is_refused(self, runner: Any, within: str) -> None:
        with pytest.raises(Exception, match="not the top of a Git worktree"):
            runner.live_worktree({"NPA_LIVE_WT": str(ROOT / within)}, ())

    @pytest.mark.req("G-03")
    def test_another_checkout_does_not_step_in(self, runner: Any, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        with pytest.raises(Exception, match="another checkout"):
            runner.live_worktree({"NPA_LIVE_WT": str(tmp_path)}, ())

    def test_a_folder_without_git_is_refused(self, runner: Any, tmp_path: Path) -> None:
        with pytest.raises(Exception, match="not the top of a Git worktree"):
            runner.live_worktree({"NPA_LIVE_WT": str(tmp_path)}, ())


class TestARun:
    @pytest.fixture
    def run(
        self, load: Callable[[str], ModuleType], spec: Path, capsys: pytest.CaptureFixture[str]
    ) -> Callable[..., tuple[int, Mapping[str, Any]]]:
        shared, isaac = load("live_runner"), load("run_isaac_lab_rl")

        def run(*words: str) -> tuple[int, Mapping[str, Any]]:
            argv = ["--spec", str(spec), "--engine", "local", *words]
            environ = {**os.environ, "NPA_LIVE_WT": str(ROOT)}
            code = shared.main(isaac.RUNNER, argv, environ, ())
            return code, json.loads(capsys.readouterr().out)

        return run

    @pytest.mark.req("G-02")
    def test_flags_become_config_and_the_summary_says_how_it_ended(
        self, run: Callable[..., tuple[int, Mapping[str, Any]]], tmp_path: Path
    ) -> None:
        code, summary = run("--task", "Ant", "--output-json", str(tmp_path / "summary.json"))
        assert (code, summary["status"]) == (0, "succeeded")
        (uri,) = summary["outputs"]["greet"]
        assert Path(uri.removeprefix("file://")).read_text() == "Ant\n"
        assert summary["worktree"] == str(ROOT)
        assert json.loads((tmp_path / "summary.json").read_text()) == summary

    @pytest.mark.req("G-02")
    def test_only_success_is_zero(self, run: Callable[..., tuple[int, Mapping[str, Any]]]) -> None:
        code, summary = run("--var", "fails=yes")
        assert (code, summary["status"]) == (1, "failed")

    def test_a_key_that_the_file_does_not_have_is_refused(
        self, run: Callable[..., tuple[int, Mapping[str, Any]]]
    ) -> None:
        code, summary = run("--num-envs", "8")
        assert (code, summary["status"]) == (64, "not submitted")

    def test_a_word_that_sets_nothing_is_refused(
        self, run: Callable[..., tuple[int, Mapping[str, Any]]]
    ) -> None:
        code, summary = run("--var", "fails")
        assert (code, summary["error_code"]) == (64, "USAGE")


def test_the_canonical_spec_is_the_default(load: Callable[[str], ModuleType]) -> None:
    runner = load("run_bdd100k_pipeline").RUNNER
    assert (ROOT / runner.spec).is_file()
    assert (ROOT / runner.catalog).is_file()
