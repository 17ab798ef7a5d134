"""Decision writers decide from what was measured, and publish only what was promoted."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from npa.errors import UsageError
from npa.storage import Stores
from npa.tools import backfill, decide, publish, report, undescribed
from npa.tools.task import Task


@pytest.fixture
def root(tmp_path: Path) -> str:
    return tmp_path.as_uri() + "/"


def put(uri: str, value: object) -> str:
    path = Path(uri.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return uri


def read(uri: str) -> dict[str, object]:
    value = json.loads(Path(uri.removeprefix("file://")).read_text())
    assert isinstance(value, dict)
    return value


def task(*, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Task:
    return Task(Stores(), name="gate", run_id="r1", inputs=inputs, outputs=outputs)


def measured(root: str, inputs: tuple[str, ...], *more: str) -> dict[str, object]:
    words = ["measured", "--output", f"{root}decision.json", "--field", "success_rate"]
    words += ["--op", ">=", "--value", "0.85", *more]
    assert decide.main(words, task(inputs=inputs)) == 0
    return read(f"{root}decision.json")


@pytest.mark.parametrize(
    ("value", "decision"),
    [(0.9, "promote_checkpoint"), (0.85, "promote_checkpoint"), (0.2, "loop_back_to_inner_loop")],
)
def test_the_decision_follows_the_measured_number(root: str, value: float, decision: str) -> None:
    source = put(f"{root}eval.json", {"success_rate": value})
    assert measured(root, (source,)) == {
        "decision": decision,
        "source": source,
        "field": "success_rate",
        "measured": value,
        "op": ">=",
        "threshold": 0.85,
    }


def test_the_number_is_found_in_a_section_and_among_other_inputs(root: str) -> None:
    checkpoint = put(f"{root}policy.json", {"epoch": 3})
    source = put(f"{root}eval.json", {"metrics": {"success_rate": 1}})
    got = measured(root, (f"{root}data/", checkpoint, source))
    assert (got["field"], got["measured"]) == ("metrics.success_rate", 1.0)


def test_a_rate_can_be_the_complement_of_the_measured_one(root: str) -> None:
    source = put(f"{root}eval.json", {"success_rate": 0.75})
    words = ["measured", "--output", f"{root}d.json", "--field", "failure_rate"]
    words += ["--field", "1-success_rate", "--op", "<=", "--value", "0.3"]
    assert decide.main(words, task(inputs=(source,))) == 0
    assert read(f"{root}d.json")["measured"] == 0.25
    assert read(f"{root}d.json")["decision"] == "promote_checkpoint"


def test_a_preferred_field_comes_first(root: str) -> None:
    source = put(f"{root}eval.json", {"success_rate": 0.9, "strict": 0.1})
    got = measured(root, (source,), "--prefer", "strict")
    assert got["decision"] == "loop_back_to_inner_loop"


@pytest.mark.parametrize("content", [{"other": 0.9}, {"success_rate": True}, {"success_rate": "1"}])
def test_nothing_is_decided_without_a_measured_number(root: str, content: object) -> None:
    source = put(f"{root}eval.json", content)
    with pytest.raises(UsageError, match="`success_rate` is a number") as caught:
        measured(root, (source,))
    assert "decision_field" in caught.value.hint
    assert not Path(f"{root}decision.json".removeprefix("file://")).exists()


def test_nothing_is_decided_without_a_report(root: str) -> None:
    with pytest.raises(UsageError, match="no JSON report"):
        measured(root, (f"{root}absent.json",))


def test_a_configured_decision_says_that_it_is_configured(root: str) -> None:
    words = ["configured", "--output", f"{root}d.json", "--decision", "promote"]
    assert decide.main(words, task()) == 0
    assert read(f"{root}d.json") == {"decision": "promote_checkpoint", "source": "configured"}


def test_a_report_holds_the_decision_and_its_evidence(root: str) -> None:
    decision = put(f"{root}decision.json", {"decision": "loop_back_to_inner_loop"})
    evidence = put(f"{root}validation/report.json", {"completeness": 0.2})
    words = ["--outcome", "rejected", "--decision", decision, "--evidence", f"{root}validation/"]
    words += ["--output", f"{root}validation/rejection_report.json"]
    assert report.main(words, task(inputs=(evidence,))) == 0
    got = read(f"{root}validation/rejection_report.json")
    assert got["outcome"] == "rejected"
    assert got["evidence"] == {evidence: {"completeness": 0.2}}
    declared = f"{root}reports/release.json"
    assert report.main(words, task(inputs=(evidence,), outputs=(declared,))) == 0
    assert read(declared)["decision"] == {"decision": "loop_back_to_inner_loop"}


def test_a_promoted_artifact_is_copied_and_its_manifest_written(root: str) -> None:
    artifact = put(f"{root}policy/latest.ckpt", [1, 2, 3])
    decision = put(f"{root}decision.json", {"decision": "promote_checkpoint"})
    words = ["--artifact", artifact, "--decision", decision, "--release", f"{root}release/"]
    extra = f"{root}reports/release.json"
    outputs = (f"{root}release/manifest.json", extra)
    assert publish.main(words, task(outputs=outputs)) == 0
    manifest = read(f"{root}release/manifest.json")
    content = Path(artifact.removeprefix("file://")).read_bytes()
    assert manifest["files"] == [
        {
            "uri": f"{root}release/latest.ckpt",
            "source": artifact,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    ]
    assert Path(f"{root}release/latest.ckpt".removeprefix("file://")).read_bytes() == content
    assert read(extra) == manifest


def test_every_object_below_a_prefix_is_published(root: str) -> None:
    put(f"{root}policy/a.json", 1)
    put(f"{root}policy/deep/b.json", 2)
    decision = put(f"{root}decision.json", {"action": "promote"})
    words = ["--artifact", f"{root}policy/", "--decision", decision, "--release", f"{root}out"]
    assert publish.main(words, task()) == 0
    assert json.loads(Path(f"{root}out/deep/b.json".removeprefix("file://")).read_text()) == 2


def test_nothing_is_published_against_the_decision(root: str) -> None:
    artifact = put(f"{root}policy.ckpt", [1])
    decision = put(f"{root}decision.json", {"decision": "loop_back_to_inner_loop"})
    words = ["--artifact", artifact, "--decision", decision, "--release", f"{root}release/"]
    with pytest.raises(UsageError, match="nothing is published"):
        publish.main(words, task())
    assert not Path(f"{root}release".removeprefix("file://")).exists()


def test_a_backfill_runs_one_command_a_name_and_stops_at_the_first_failure() -> None:
    calls: list[list[str]] = []

    def call(words: object) -> int:
        calls.append(list(words))  # type: ignore[call-overload]
        return 3 if len(calls) == 2 else 0

    words = ["--udfs", "a, b,c", "--", "tool", "--table", "t"]
    assert backfill.main(words, task(), call=call) == 3
    assert calls == [["tool", "--table", "t", "--udf", "a"], ["tool", "--table", "t", "--udf", "b"]]
    with pytest.raises(UsageError, match="no column"):
        backfill.main(["--udfs", "", "--", "tool"], task(), call=call)


def test_a_tool_that_is_not_described_says_so() -> None:
    with pytest.raises(UsageError, match=r"`workbench\.x` does is not described"):
        undescribed.main(["workbench.x"], task())


def run(arguments: list[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_tool_takes_its_artifacts_from_the_environment_of_its_task(
    root: str, tmp_path: Path
) -> None:
    source = put(f"{root}eval.json", {"success_rate": 0.5})
    environ = {
        "NPA_CONFIG_DIR": str(tmp_path / "home"),
        "NPA_INPUTS": json.dumps([{"uri": source, "schema": "x"}]),
    }
    words = ["npa.tools.decide", "measured", "--output", f"{root}d.json"]
    words += ["--field", "success_rate", "--op", ">=", "--value", "0.4"]
    done = run(words, environ)
    assert (done.returncode, done.stdout) == (0, f"wrote {root}d.json\n"), done.stderr
    wrong = run(words, environ | {"NPA_INPUTS": "{"})
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "error: `NPA_INPUTS` is no JSON list of artifacts\n",
    )
