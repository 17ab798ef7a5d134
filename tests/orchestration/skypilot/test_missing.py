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
        "export AWS_ACCESS_KEY_ID",
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


@pytest.mark.parametrize(
    ("store", "found", "not_found"),
    [
        ("file:///tmp/x/", "STORE_NOT_SHARED", "STORAGE_CREDENTIALS"),
        ("s3://b/x/", "STORAGE_CREDENTIALS", "STORE_NOT_SHARED"),
    ],
)
def test_only_a_store_that_asks_for_credentials_can_lack_them(
    npa: Run, spec: Path, store: str, found: str, not_found: str
) -> None:
    words = ("--engine", "skypilot", "--infra", "slurm/bed", "--store", store)
    said = npa("workflow", "submit", spec, *words, "--plan-only").stderr
    assert found in said
    assert not_found not in said


def test_a_plan_says_the_same_remedies_as_the_submit(npa: Run, spec: Path) -> None:
    words = ("workflow", "submit", spec, "--engine", "skypilot", "--infra", "slurm/bed")
    planned = npa(*words, "--run-id", "r1", "--plan-only")
    refused = npa(*words, "--run-id", "r1")
    assert (planned.code, refused.code) == (0, 1)
    reasons = [line.strip() for line in refused.stderr.splitlines() if line.startswith("  ")]
    assert len(reasons) == 4
    assert reasons == [
        line.removeprefix("warning: ")
        for line in planned.stderr.splitlines()
        if line.startswith("warning: ")
    ]
    assert "a submit is refused, for 4 reasons" in planned.stderr


@pytest.mark.parametrize(
    ("infra", "said"),
    [
        ("kubernets/x", "did you mean `kubernetes/x`?"),
        ("slum/x", "did you mean `slurm/x`?"),
        ("nebious", "did you mean `nebius`?"),
        ("k8s", "`--infra k8s/CONTEXT`"),
        ("nebius/x", "or `--infra nebius`"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--plan-only",)])
def test_a_misspelt_infrastructure_is_refused_with_the_command_line(
    npa: Run, spec: Path, infra: str, said: str, more: tuple[str, ...]
) -> None:
    done = npa("workflow", "submit", spec, "--engine", "skypilot", "--infra", infra, *more)
    assert (done.code, done.stdout) == (64, "")
    assert f"`{infra}` is no infrastructure" in done.stderr
    assert said in done.stderr


GROUP = """apiVersion: npa.workflow/v0.0.1
kind: Workflow
metadata: {name: two}
initial: all
resources: {big: {accelerators: "H100:8", num_nodes: 2, cpus: 4, memory: 16Gi}}
states:
  all: {parallel: [a, b], next: end}
  a: {run: {shell: "echo a"}, resources: big, multiNodeMode: sharded}
  b: {run: {shell: "echo b"}}
  end: {run: {shell: "echo end"}, terminal: true}
"""
PLAN = ("--engine", "skypilot", "--infra", "slurm/bed", "--run-id", "r1", "--plan-only")


def test_a_plan_of_jobs_is_a_line_a_task_and_says_how_to_see_the_documents(
    npa: Run, spec: Path
) -> None:
    spec.write_text(GROUP)
    done = npa("workflow", "submit", spec, *PLAN, "--image", "ubuntu:24.04")
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
        "JOB STEP RESOURCES WHERE IMAGE",
        "1 all/a 2 nodes of H100:8, 4 CPUs, 16 GB slurm/bed ubuntu:24.04",
        "1 all/b the default slurm/bed ubuntu:24.04",
        "2 end the default slurm/bed ubuntu:24.04",
    ]
    assert "planned 3 steps in 2 jobs; nothing was submitted" in done.stderr
    assert "`--documents -` prints the document of each job" in done.stderr


@pytest.mark.req("B-02")
def test_the_documents_of_a_plan_are_printed_alone_or_written_to_a_new_folder(
    npa: Run, spec: Path, tmp_path: Path
) -> None:
    spec.write_text(GROUP)
    words = ("workflow", "submit", spec, *PLAN)
    whole = json.loads(npa(*words, "--json").stdout)["skypilot_yaml"]
    assert npa(*words, "--documents", "-").stdout == whole
    written = [Path(line) for line in npa(*words, "--documents", "made").stdout.splitlines()]
    assert [path.parent.name for path in written] == ["made", "made"]
    assert "---\n".join(path.read_text() for path in written) == whole
    again = npa(*words, "--documents", "made")
    assert (again.code, "`made` is not empty" in again.stderr) == (64, True)


def test_documents_are_those_of_a_plan_by_skypilot(npa: Run, spec: Path) -> None:
    for words, said in (
        (("--infra", "slurm/bed", "--engine", "skypilot"), "needs `--plan-only`"),
        (("--engine", "local", "--plan-only"), "has no documents"),
        (
            ("--infra", "slurm/bed", "--engine", "skypilot", "--plan-only", "--json"),
            "skypilot_yaml",
        ),
    ):
        done = npa("workflow", "submit", spec, *words, "--documents", "-")
        assert (done.code, said in done.stderr) == (64, True)


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
