"""What a submit to SkyPilot lacks is named in one answer, and nothing is started for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_harness import Run
from npa.errors import EngineError
from npa.orchestration.skypilot import submit_workflow
from orchestration.skypilot.test_resolve import environment as make_environment
from sky_harness import Sky

SPEC = """\
apiVersion: npa.workflow/v0.0.1
kind: Workflow
metadata: {name: greet}
initial: greet
states:
  greet: {run: {shell: "echo hello"}, secrets: [GREETING_TOKEN], terminal: true}
"""
SLURM = "Host bed\n  HostName 127.0.0.1\n"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "pipe/pipeline.yaml"
    path.parent.mkdir()
    path.write_text(SPEC)
    return path


def test_everything_that_is_missing_is_named_at_once(spec: Path, own_home: Path) -> None:
    with pytest.raises(EngineError) as caught:
        submit_workflow(spec, engine="skypilot", infra="slurm/bed", run_id="r1")
    assert caught.value.code == "PREFLIGHT"
    for word in (
        "SKYPILOT_ABSENT",
        "npa skypilot bootstrap",
        "SLURM_CONFIG",
        "STORE_NOT_SHARED",
        "--store s3://",
        "STORAGE_CREDENTIALS",
        "MISSING_SECRET",
        "export GREETING_TOKEN",
    ):
        assert word in caught.value.message
    assert not (own_home / ".npa/skypilot").exists()
    assert not (own_home / ".npa/runs").exists()


def test_without_an_infrastructure_the_answer_says_which_there_are(spec: Path) -> None:
    with pytest.raises(EngineError) as caught:
        submit_workflow(spec, engine="skypilot", run_id="r1")
    assert "--infra k8s/CONTEXT" in caught.value.message


@pytest.mark.req("B-02")
def test_a_plan_shows_the_documents_and_what_is_missing(
    npa: Run, spec: Path, own_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "slurm").write_text(SLURM)
    words = ("workflow", "submit", spec, "--engine", "skypilot", "--infra", "slurm/bed")
    more = ("--slurm-config", tmp_path / "slurm", "--store", "s3://b/x/", "--run-id", "r1")
    done = npa(*words, *more, "--image", "ubuntu:24.04", "--plan-only", "--json")
    document = json.loads(done.stdout)
    assert document["infrastructure"] == {"engine": "skypilot", "infra": "slurm/bed"}
    codes = {check["code"] for check in document["preflight"]["checks"]}
    assert {"SKYPILOT_ABSENT", "MISSING_SECRET"} <= codes
    assert not codes & {"SLURM_CONFIG", "STORE_NOT_SHARED"}
    assert "infra: slurm/bed" in document["skypilot_yaml"]
    assert "docker:ubuntu:24.04" in document["skypilot_yaml"]
    assert "s3://b/x/r1/npa-workflow/attempts/" in document["skypilot_yaml"]
    assert "GREETING_TOKEN: null" in document["skypilot_yaml"]
    assert not list(own_home.rglob("session.json"))


def test_options_of_skypilot_are_refused_for_this_machine(npa: Run, spec: Path) -> None:
    done = npa("workflow", "submit", spec, "--infra", "slurm/bed", "--run-id", "r1")
    assert done.code == 64
    assert "`infra`" in done.stderr


def test_a_cluster_that_the_configuration_does_not_name_is_found(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPA_SKYPILOT_BIN", str(make_environment(tmp_path / "sky")))
    config = Path(str(tmp_path / ".slurm/config"))
    config.parent.mkdir()
    config.write_text(SLURM)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(EngineError) as caught:
        submit_workflow(spec, engine="skypilot", infra="slurm/other", run_id="r1")
    assert "has no `Host other`" in caught.value.message
    assert "SKYPILOT_ABSENT" not in caught.value.message


ABSOLUTE = """\
initial: a
states:
  a: {run: {shell: "true"}, outputs: [{uri: "s3://results/here.txt"}], terminal: true}
"""
HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: t}\n"


@pytest.mark.req("A-08")
@pytest.mark.parametrize(
    ("config", "codes"),
    [
        ("", {"STORE_NOT_SHARED"}),
        ("config: {bucket: mine}\n", set()),
        ("config: {bucket: mine, prefix: 'robots/{{run.id}}'}\n", set()),
        ("config: {bucket: mine, prefix: robots}\n", {"PREFIX_NOT_RUN_SCOPED"}),
        ("config: {bucket: mine, prefix: 'robots-{{run.id}}'}\n", set()),
    ],
)
def test_state_needs_a_bucket_and_a_folder_of_the_run_even_with_absolute_outputs(
    npa: Run, spec: Path, sky: Sky, config: str, codes: set[str]
) -> None:
    spec.write_text(HEAD + config + ABSOLUTE)
    words = ("--engine", "skypilot", "--infra", "slurm/bed", "--run-id", "r1")
    done = npa("workflow", "submit", spec, *words, "--plan-only", "--json")
    found = {check["code"] for check in json.loads(done.stdout)["preflight"]["checks"]}
    assert found & {"STORE_NOT_SHARED", "PREFIX_NOT_RUN_SCOPED"} == codes
    if codes:
        refused = npa("workflow", "submit", spec, *words)
        assert refused.code == 1
        assert codes.pop() in refused.stderr
    assert not sky.session("r1").exists()
