"""`submit_workflow`: a run from a program, with the checks and the guarantees of the command."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from npa.errors import EngineError, UsageError
from npa.orchestration.prepare import InvalidWorkflow
from npa.orchestration.skypilot import RunResult, submit_workflow
from npa.orchestration.skypilot.session import Session
from sky_harness import Sky

HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: greet}\n"
GREET = """config: {word: hello}
initial: greet
states:
  greet:
    run:
      shell: |
        echo {{config.word|quote}} > greeting.txt
        npa artifact put greeting.txt "{{run.uri}}greeting.txt"
    outputs:
      - uri: "{{run.uri}}greeting.txt"
    terminal: true
"""
FAIL = "initial: fail\nstates:\n  fail: {run: {shell: 'exit 3'}, terminal: true}\n"


@pytest.fixture
def write(tmp_path: Path) -> object:
    def write(text: str) -> Path:
        path = tmp_path / "project" / "pipeline.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD + text)
        return path

    return write


def runs(home: Path) -> list[Path]:
    return list((home / ".npa").rglob("*.json"))


@pytest.mark.req("G-02")
def test_a_run_is_driven_to_its_end_and_says_what_it_made(write, own_home: Path) -> None:  # type: ignore[no-untyped-def]
    result = submit_workflow(
        write(GREET), engine="local", run_id="hi", overrides={"word": "good morning"}
    )
    assert result.succeeded
    assert result.steps == {"greet": "succeeded"}
    assert result.terminal == "greet"
    (uri,) = result.outputs["greet"]
    assert Path(uri.removeprefix("file://")).read_text() == "good morning\n"
    assert json.loads(json.dumps(result.to_json()))["status"] == "succeeded"


def test_a_failed_run_is_a_result(write) -> None:  # type: ignore[no-untyped-def]
    result = submit_workflow(write(FAIL), engine="local")
    assert isinstance(result, RunResult)
    assert (result.status, result.error_code) == ("failed", "PAYLOAD_EXIT_NONZERO")
    assert not result.succeeded


def test_a_file_with_errors_raises_them_all_and_starts_nothing(write, own_home: Path) -> None:  # type: ignore[no-untyped-def]
    spec = write("initial: a\nstates:\n  a: {run: {shell: 'true'}, next: b, nxt: c}\n")
    with pytest.raises(InvalidWorkflow) as caught:
        submit_workflow(spec, engine="local")
    assert len(caught.value.diagnostics) >= 2
    assert runs(own_home) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run_id": "no/slashes"}, "cannot be a run ID"),
        ({"secrets": ["ABSENT_SECRET"]}, "ABSENT_SECRET"),
        ({"env": ["ABSENT_NAME"]}, "ABSENT_NAME"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_starts(  # type: ignore[no-untyped-def]
    write, own_home: Path, options: Mapping[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        submit_workflow(write(GREET), engine="local", **options)
    assert runs(own_home) == []


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        submit_workflow(tmp_path / "absent.yaml", engine="local")


def test_the_caller_s_environment_is_not_changed(write) -> None:  # type: ignore[no-untyped-def]
    before = dict(os.environ)
    submit_workflow(write(GREET), engine="local")
    assert dict(os.environ) == before


def test_a_secret_goes_to_the_task_and_only_its_name_is_kept(write, own_home: Path) -> None:  # type: ignore[no-untyped-def]
    spec = write("""initial: use
states:
  use:
    secrets: [CANARY]
    run: {shell: 'test "$CANARY" = "$(printf "sings-%s" at-dawn)"'}
    terminal: true
""")
    environ = {**os.environ, "CANARY": "sings-at-dawn"}
    result = submit_workflow(spec, engine="local", environ=environ)
    assert result.succeeded
    kept = [path for path in own_home.rglob("*") if path.is_file()]
    assert [path for path in kept if b"sings-at-dawn" in path.read_bytes()] == []
    assert any(b"CANARY" in path.read_bytes() for path in kept)


def test_an_engine_that_cannot_run_it_is_a_typed_error(write, own_home: Path) -> None:  # type: ignore[no-untyped-def]
    spec = write(GREET.replace("  greet:\n", "  greet:\n    resources: vast\n", 1))
    text = spec.read_text().replace("initial:", "resources: {vast: {cpus: 4096}}\ninitial:", 1)
    spec.write_text(text)
    with pytest.raises(EngineError) as caught:
        submit_workflow(spec, engine="local")
    assert caught.value.code == "PREFLIGHT"
    assert "greet" in caught.value.message
    assert runs(own_home) == []


@pytest.mark.req("G-02", "F-05")
def test_a_program_submits_to_skypilot_and_is_told_what_stayed(
    write,  # type: ignore[no-untyped-def]
    sky: Sky,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = write(FAIL)
    more = {"infra": "slurm/bed", "store": f"{sky.s3.uri}runs/"}
    result = submit_workflow(spec, run_id="one", **more)
    assert (result.status, result.left) == ("succeeded", "")  # the fake ends every job well
    assert sky.living(sky.session("one")) == ()

    stop = Session.stop

    def fail(*_: object, **__: object) -> bool:
        raise EngineError("99 did not end")

    monkeypatch.setattr(Session, "stop", fail)
    result = submit_workflow(spec, run_id="two", **more)
    assert (result.status, result.left) == ("succeeded", "99 did not end")
    monkeypatch.setattr(Session, "stop", stop)


@pytest.mark.req("A-01", "G-02")
def test_a_program_may_submit_a_skypilot_file(sky: Sky, tmp_path: Path) -> None:
    spec = tmp_path / "theirs.yaml"
    spec.write_text("run: echo hello\n")
    result = submit_workflow(spec, run_id="raw", infra="slurm/bed", store=f"{sky.s3.uri}runs/")
    assert result.steps == {"task": "succeeded"}
    with pytest.raises(UsageError, match="only SkyPilot"):
        submit_workflow(spec, engine="local")
