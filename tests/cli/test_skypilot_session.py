"""What a run's end cannot let go of is said, kept, and ended by one command; its verdict stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_harness import Run
from npa.cli import driving
from npa.errors import EngineError
from npa.orchestration.skypilot.session import Session
from sky_harness import Sky

HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: t}\n"
ONE = HEAD + "initial: one\nstates:\n  one: {run: {shell: 'true'}, terminal: true}\n"


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline" / "one.yaml"
    path.parent.mkdir()
    path.write_text(ONE)
    return path


def submit(npa: Run, sky: Sky, pipeline: Path, run_id: str = "r"):  # type: ignore[no-untyped-def]
    return npa("workflow", "submit", pipeline, "--engine", "skypilot", *sky.words(run_id), "--json")


@pytest.mark.req("F-05", "F-06")
def test_a_run_that_is_over_has_stopped_its_server(npa: Run, sky: Sky, pipeline: Path) -> None:
    done = submit(npa, sky, pipeline)
    assert done.code == 0, done.stderr
    assert sky.living(sky.session("r")) == ()
    assert "warning" not in done.stderr
    again = npa("skypilot", "stop", "r", "--json")
    assert (again.code, json.loads(again.stdout)["was_running"]) == (0, False)


@pytest.mark.req("F-05", "F-06")
@pytest.mark.parametrize("fault", [EngineError("99 did not end"), RuntimeError("99 did not end")])
def test_a_server_that_does_not_stop_is_reported_and_changes_no_verdict(
    npa: Run, sky: Sky, pipeline: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    stop = Session.stop

    def fail(*_: object, **__: object) -> bool:
        raise fault

    monkeypatch.setattr(Session, "stop", fail)
    done = submit(npa, sky, pipeline)
    assert (done.code, json.loads(done.stdout)["status"]) == (0, "succeeded")
    assert "99 did not end" in done.stderr
    assert "`npa skypilot stop r`" in done.stderr
    kept = sky.session("r") / "left.json"
    assert json.loads(kept.read_text())["left"] == "99 did not end"
    assert sky.living(sky.session("r"))

    monkeypatch.setattr(Session, "stop", stop)
    ended = npa("skypilot", "stop", "r", "--json")
    assert (ended.code, json.loads(ended.stdout)["status"]) == (0, "ok"), ended.stderr
    assert sky.living(sky.session("r")) == ()
    assert not kept.exists()


def test_the_server_of_a_run_that_is_not_over_is_not_stopped(
    npa: Run, sky: Sky, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "drive", lambda *_, **__: 0)  # the driver is gone at once
    assert submit(npa, sky, pipeline).code == 0
    assert sky.living(sky.session("r"))
    refused = npa("skypilot", "stop", "r", "--json")
    assert json.loads(refused.stdout)["next_command"] == "npa workflow cancel r"
    assert refused.code == 1
    assert sky.living(sky.session("r"))


@pytest.mark.req("F-05")
def test_a_server_left_by_a_submission_that_was_refused_is_named_and_stopped(
    npa: Run, sky: Sky, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Session.stop

    def fail(*_: object, **__: object) -> bool:
        raise EngineError("99 did not end")

    monkeypatch.setattr(Session, "stop", fail)
    sky.change(faults={"version": "0.12.1"})
    refused = submit(npa, sky, pipeline)
    assert refused.code == 1
    assert "SKYPILOT_VERSION" in refused.stderr
    assert "99 did not end" in refused.stderr
    assert "`npa skypilot stop r`" in refused.stderr
    monkeypatch.setattr(Session, "stop", stop)
    assert npa("skypilot", "stop", "r").code == 0
    assert sky.living(sky.session("r")) == ()


def test_a_run_that_is_not_known_has_nothing_to_stop(npa: Run, sky: Sky) -> None:
    refused = npa("skypilot", "stop", "never", "--json")
    assert refused.code == 1
    assert json.loads(refused.stdout)["code"] == "RUN_NOT_FOUND"
