"""A customer's own SkyPilot file: one task, run and supervised as any other run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli_harness import Result, Run
from sky_harness import Sky

ONE = """\
name: train.net
num_nodes: 2
resources:
  accelerators: H100:8
  cpus: 4+
envs:
  EPOCHS: 3
  NPA_EXECUTION_OUTPUTS: '[{"uri": "WHERE", "kind": "file"}]'
secrets: {HF_TOKEN: null}
file_mounts:
  /data: s3://their-bucket/data
setup: |
  pip list
run: |
  echo "{{.Names}} ${EPOCHS} rank $SKYPILOT_NODE_RANK"
"""
PLAIN = "run: |\n  echo hello\n"


@pytest.fixture
def raw(tmp_path: Path, sky: Sky, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_TOKEN", "s3cret-of-the-user")
    path = tmp_path / "their" / "train.yaml"
    path.parent.mkdir()
    path.write_text(ONE.replace("WHERE", f"{sky.s3.uri}out.txt"))
    return path


def submit(npa: Run, sky: Sky, path: Path, *words: str, run_id: str = "r") -> Result:
    return npa("workflow", "submit", path, *sky.words(run_id), *words, "--json")


def document_of(sky: Sky) -> dict[str, object]:
    """The one task that was launched."""
    (text,) = sky.read()["documents"].values()
    _, task = yaml.safe_load_all(text)
    return dict(task)


@pytest.mark.req("A-01")
def test_a_raw_task_becomes_a_run_of_one_step(npa: Run, sky: Sky, raw: Path) -> None:
    sky.s3.store().put("out.txt", b"made")
    done = submit(npa, sky, raw)
    assert done.code == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["workflow"], document["status"]) == ("train-net", "succeeded")
    assert [step["path"] for step in document["steps"]] == ["task"]
    task = document_of(sky)
    assert task["num_nodes"] == 2
    assert task["resources"] == {"accelerators": "H100:8", "cpus": "4+", "infra": "slurm/bed"}
    assert task["file_mounts"] == {"/data": "s3://their-bucket/data"}
    assert task["envs"]["EPOCHS"] == "3"  # type: ignore[index]
    assert task["envs"]["NPA_WORKFLOW_RUN_ID"] == "r"  # type: ignore[index]
    assert task["envs"]["NPA_CLAIM_URI"].endswith("/claim")  # type: ignore[index]
    assert "pip list" in str(task["setup"])
    assert 'echo "{{.Names}} ${EPOCHS} rank $SKYPILOT_NODE_RANK"' in str(task["run"])
    (name,) = {row["job_name"] for row in sky.read()["jobs"]}
    assert name.startswith("r-task-")
    assert npa("workflow", "artifacts", "r").stdout.count("out.txt") == 1


@pytest.mark.req("A-01", "A-11")
def test_a_secret_goes_by_its_name(npa: Run, sky: Sky, raw: Path) -> None:
    sky.s3.store().put("out.txt", b"made")
    assert submit(npa, sky, raw).code == 0
    assert document_of(sky)["secrets"]["HF_TOKEN"] is None  # type: ignore[index]
    kept = [p for p in (*sky.home.rglob("*"), *raw.parent.rglob("*")) if p.is_file()]
    assert not [p for p in kept if b"s3cret-of-the-user" in p.read_bytes()]


@pytest.mark.req("A-01")
def test_a_declared_output_that_is_missing_fails_the_run(npa: Run, sky: Sky, raw: Path) -> None:
    done = submit(npa, sky, raw)
    assert (done.code, json.loads(done.stdout)["error_code"]) == (1, "DECLARED_OUTPUT_MISSING")


@pytest.mark.req("A-01", "D-01")
@pytest.mark.parametrize("fault", ["lost_reply", "die_after_post"])
def test_a_lost_reply_makes_no_second_job(npa: Run, sky: Sky, raw: Path, fault: str) -> None:
    raw.write_text(PLAIN)
    sky.change(faults={fault: True})
    assert submit(npa, sky, raw).code == 0
    assert sky.read()["posts"] == 1


@pytest.mark.req("A-01", "A-07")
def test_a_run_of_a_changed_file_is_not_gone_on_with(npa: Run, sky: Sky, raw: Path) -> None:
    raw.write_text(PLAIN)
    sky.change(ends="FAILED")
    assert submit(npa, sky, raw).code == 1
    raw.write_text(PLAIN.replace("hello", "other"))
    refused = npa("workflow", "resume", "r", "--json")
    assert (refused.code, json.loads(refused.stdout)["code"]) == (12, "IDENTITY_MISMATCH")
    raw.write_text("# the same task\n" + PLAIN)
    sky.change(ends="SUCCEEDED")
    assert npa("workflow", "resume", "r").code == 0
    assert sky.read()["posts"] == 2


@pytest.mark.req("A-01", "F-03")
def test_a_raw_run_is_looked_at_and_cancelled_with_the_same_words(
    npa: Run, sky: Sky, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from npa.cli import driving

    raw.write_text(PLAIN)
    sky.change(ends="")
    drive = driving.drive
    monkeypatch.setattr(driving, "drive", lambda *_, **__: 0)  # its driver is gone at once
    assert submit(npa, sky, raw).code == 0
    assert npa("workflow", "status", "r").code == 0
    monkeypatch.setattr(driving, "drive", drive)
    done = npa("workflow", "cancel", "r", "--json")
    assert (done.code, json.loads(done.stdout)["outcome"]) == (0, "cancelled")


@pytest.mark.req("A-01", "B-02")
def test_a_raw_plan_shows_the_document_and_launches_nothing(npa: Run, sky: Sky, raw: Path) -> None:
    done = submit(npa, sky, raw, "--plan-only")
    assert done.code == 0, done.stderr
    _, task = yaml.safe_load_all(json.loads(done.stdout)["skypilot_yaml"])
    assert task["resources"]["accelerators"] == "H100:8"
    assert sky.read()["posts"] == 0


@pytest.mark.req("A-01")
def test_the_folder_of_the_file_is_staged_only_where_it_is_the_workdir(
    npa: Run, sky: Sky, raw: Path
) -> None:
    raw.write_text(PLAIN)
    assert submit(npa, sky, raw).code == 0
    assert "NPA_SOURCE_URI" not in str(document_of(sky)["envs"])
    sky.change(documents={})
    raw.write_text("workdir: .\n" + PLAIN)
    assert submit(npa, sky, raw, run_id="s").code == 0
    assert "NPA_SOURCE_URI" in str(document_of(sky)["envs"])


@pytest.mark.req("A-01")
@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("run: x\nresorces: {}\n", "2:1", "did you mean `resources`"),
        ("run: x\nservice: {}\n", "2:1", "`service` cannot be supervised"),
        ("run: x\nrun: y\n", "2:1", "there twice"),
        ("setup: x\n", "1:1", "nothing to run"),
        ("run: [a]\n", "1:6", "`run` is a text"),
        ("run: x\nnum_nodes: 0\n", "2:12", "whole number from 1"),
        ("run: x\nresources: {infra: k8s/a}\n", "2:12", "chosen by `--infra`"),
        ("run: x\nresources: {job_recovery: {}}\n", "2:12", "behind the run's back"),
        ("run: x\nenvs: {NPA_RUN_URI: x}\n", "2:7", "belongs to the run"),
        ("run: x\nenvs: {A: null}\n", "2:7", "`--env A`"),
        ("run: x\nsecrets: {A: hunter2}\n", "2:10", "holds a value"),
        ("run: x\nworkdir: ../x\n", "2:10", "the file's own folder"),
        ("run: x\nfile_mounts: {/a: ./b}\n", "2:14", "comes from this machine"),
        ("run: x\nenvs: {NPA_EXECUTION_OUTPUTS: 'a'}\n", "2:7", "is a JSON list"),
    ],
)
def test_a_file_that_cannot_be_supervised_is_refused_with_its_place(
    npa: Run, sky: Sky, raw: Path, text: str, place: str, said: str
) -> None:
    raw.write_text(text)
    done = submit(npa, sky, raw)
    document = json.loads(done.stdout)
    assert (done.code, document["code"]) == (64, "RAW_TASK")
    assert f"{raw}:{place}: " in document["error"]
    assert said in document["error"]
    assert "hunter2" not in done.stdout + done.stderr
    assert not sky.session("r").exists()


@pytest.mark.req("B-08")
def test_an_unresolved_placeholder_outside_the_scripts_is_refused(
    npa: Run, sky: Sky, raw: Path
) -> None:
    raw.write_text("run: echo ${A}\nenvs: {A: '${B}'}\n")
    done = submit(npa, sky, raw)
    assert done.code == 1
    assert "PLACEHOLDER" in done.stderr


@pytest.mark.req("A-01", "B-12")
@pytest.mark.parametrize("words", [("workflow", "submit"), ("burst", "submit-yaml")])
@pytest.mark.parametrize("execution", ["serial", "parallel"])
def test_a_chain_or_a_group_is_pointed_to_a_pipeline(
    npa: Run, sky: Sky, raw: Path, words: tuple[str, ...], execution: str
) -> None:
    raw.write_text(f"name: x\nexecution: {execution}\n---\nrun: a\n---\nrun: b\n")
    done = npa(*words, raw, *sky.words("r"), "--json")
    document = json.loads(done.stdout)
    assert (done.code, document["code"]) == (64, "RAW_TASKS")
    assert "npa workflow submit" in document["hint"]


@pytest.mark.req("B-12")
def test_burst_takes_a_rendered_single_task(npa: Run, sky: Sky, raw: Path) -> None:
    raw.write_text(f"name: x\nexecution: serial\n---\n{PLAIN}")
    done = npa("burst", "submit-yaml", raw, *sky.words("r"), "--json")
    assert (done.code, json.loads(done.stdout)["status"]) == (0, "succeeded"), done.stderr
    assert npa("workflow", "status", "r").code == 0


@pytest.mark.req("B-12")
def test_burst_points_a_pipeline_to_the_workflow_command(npa: Run, sky: Sky, raw: Path) -> None:
    raw.write_text(
        "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: t}\ninitial: a\n"
        "states:\n  a: {run: {shell: 'true'}, terminal: true}\n"
    )
    done = npa("burst", "submit-yaml", raw, *sky.words("r"), "--json")
    assert done.code == 64
    assert json.loads(done.stdout)["next_command"] == f"npa workflow submit {raw}"
    assert not sky.session("r").exists()


def test_this_machine_runs_no_skypilot_file(npa: Run, sky: Sky, raw: Path) -> None:
    done = npa("workflow", "submit", raw, "--engine", "local", "--json")
    assert (done.code, "--engine skypilot" in json.loads(done.stdout)["next_command"]) == (64, True)
    assert npa("workflow", "submit", raw, *sky.words("r"), "--var", "a=b").code == 64
