"""The helper for stages, against files and against S3."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from npa.errors import NpaError
from npa.stage import Stage, StageArtifact, StageError
from s3server import S3


def environment(root: str, **changes: str) -> dict[str, str]:
    return {
        "NPA_WORKFLOW_NAME": "digits",
        "NPA_WORKFLOW_RUN_ID": "run-1",
        "NPA_WORKFLOW_STATE": "train",
        "NPA_WORKFLOW_PATH": "refine[2]/train",
        "NPA_WORKFLOW_ATTEMPT": "3",
        "NPA_WORKFLOW_ATTEMPT_ID": "0123abcd",
        "NPA_RUN_URI": root,
        "NPA_INPUTS": json.dumps([{"uri": root + "in.json", "schema": "rows.v1"}]),
        "NPA_OUTPUTS": json.dumps(
            [
                {"uri": root + "out/model.bin", "schema": "model.v1"},
                {"uri": root + "out/shards/", "schema": "shards.v1"},
            ]
        ),
        "NPA_PARAMS": '{"seed": 7, "name": "x"}',
        "NPA_DECISION_URI": root + "decision.json",
        **changes,
    }


@pytest.fixture(params=["file", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/run/"
    s3: S3 = request.getfixturevalue("s3")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("npa.stage._opened", [])
    return s3.uri + "run/"


def test_a_stage_knows_what_it_is(tmp_path: Path) -> None:
    stage = Stage.from_env(
        environment(
            "file:///r/",
            SKYPILOT_NODE_RANK="1",
            SKYPILOT_NUM_NODES="2",
            SKYPILOT_NODE_IPS="127.0.0.1\n127.0.0.2\n",
        )
    )
    assert (stage.name, stage.path, stage.attempt) == ("train", "refine[2]/train", 3)
    assert (stage.workflow, stage.run_id, stage.attempt_id) == ("digits", "run-1", "0123abcd")
    assert (stage.rank, stage.num_nodes) == (1, 2)
    assert stage.node_ips == ("127.0.0.1", "127.0.0.2")
    assert stage.params == {"seed": 7, "name": "x"}


def test_outside_a_gang_a_stage_is_alone() -> None:
    stage = Stage.from_env(environment("file:///r/"))
    assert (stage.rank, stage.num_nodes, stage.node_ips) == (0, 1, ())


def test_outside_a_task_it_says_how_to_run() -> None:
    with pytest.raises(StageError) as caught:
        Stage.from_env({})
    assert "npa run" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NPA_PARAMS", "{"),
        ("NPA_PARAMS", "[]"),
        ("NPA_INPUTS", '[{"schema": "x"}]'),
        ("NPA_OUTPUTS", "7"),
        ("NPA_WORKFLOW_ATTEMPT", "first"),
    ],
)
def test_a_malformed_environment_is_named(name: str, text: str) -> None:
    with pytest.raises(StageError, match=name):
        Stage.from_env(environment("file:///r/", **{name: text}))


def test_an_artifact_is_found_by_schema_or_by_place() -> None:
    stage = Stage.from_env(environment("file:///r/"))
    assert stage.output("shards.v1") is stage.outputs[1] is stage.output(1)
    assert stage.input() is stage.inputs[0]
    with pytest.raises(StageError) as caught:
        stage.output("modell.v1")
    assert "model.v1" in caught.value.hint
    with pytest.raises(StageError, match="number 5"):
        stage.output(5)


def test_two_outputs_of_one_schema_need_a_place() -> None:
    rows = json.dumps([{"uri": "file:///a", "schema": "s"}, {"uri": "file:///b", "schema": "s"}])
    with pytest.raises(StageError, match="several"):
        Stage.from_env(environment("file:///r/", NPA_OUTPUTS=rows)).output("s")


def test_what_is_written_is_read_back(root: str) -> None:
    stage = Stage.from_env(environment(root))
    model = stage.output("model.v1")
    assert not model.exists()
    with pytest.raises(StageError, match="does not exist"):
        model.read_bytes()
    model.write_bytes(b"\0\1")
    assert model.exists()
    assert model.read_bytes() == b"\0\1"
    model.write_json({"a": [1, None, "ü"]})
    assert model.read_json() == {"a": [1, None, "ü"]}


def test_a_prefix_lists_names_below_it(root: str) -> None:
    shards = Stage.from_env(environment(root)).output("shards.v1")
    assert shards.list() == []
    for name in ("b.json", "a/x.json", "c#1x"):
        shards.join(name).write_json(name)
    assert shards.list() == ["a/x.json", "b.json", "c#1x"]
    assert shards.child("a/").list() == ["x.json"]
    assert shards.exists()


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../../b", "a//b", "."])
def test_a_name_cannot_climb_out_of_a_prefix(name: str) -> None:
    with pytest.raises(StageError):
        StageArtifact("file:///r/").join(name)


def test_a_prefix_is_not_an_object_and_the_other_way_round(root: str) -> None:
    stage = Stage.from_env(environment(root))
    with pytest.raises(StageError, match="is a prefix"):
        stage.output("shards.v1").write_bytes(b"")
    with pytest.raises(StageError, match="is an object"):
        stage.output("model.v1").list()
    with pytest.raises(StageError, match="nothing lies below"):
        stage.output("model.v1").join("x")


def test_folders_travel_both_ways(root: str, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a").write_text("1")
    (source / "b").write_text("2")
    shards = Stage.from_env(environment(root)).output("shards.v1")
    shards.upload(source)
    assert shards.list() == ["b", "deep/a"]
    shards.download(copy)
    assert (copy / "deep" / "a").read_text() == "1"
    assert (shards.join("b").download()).read_text() == "2"
    with pytest.raises(StageError, match="is an object"):
        shards.join("b").upload(source)


def test_local_path_is_for_files(root: str) -> None:
    model = Stage.from_env(environment(root)).output("model.v1")
    if root.startswith("file"):
        assert model.local_path().parent.is_dir()
    else:
        with pytest.raises(StageError) as caught:
            model.local_path()
        assert "upload" in caught.value.hint


@pytest.mark.parametrize(
    ("word", "written"),
    [("promote_checkpoint", "promote_checkpoint"), ("loop_back", "loop_back_to_inner_loop")],
)
def test_a_decision_is_written_where_the_engine_reads_it(
    root: str, word: str, written: str
) -> None:
    stage = Stage.from_env(environment(root))
    stage.decide(word, accuracy=0.97)
    document = StageArtifact(root + "decision.json").read_json()
    assert document["decision"] == written
    assert document["measured"] == {"accuracy": 0.97}


def test_a_decision_outside_the_closed_set_is_refused() -> None:
    with pytest.raises(StageError, match="no decision"):
        Stage.from_env(environment("file:///r/")).decide("maybe")


def test_a_state_that_decides_nothing_cannot_decide() -> None:
    with pytest.raises(StageError) as caught:
        Stage.from_env(environment("file:///r/", NPA_DECISION_URI="")).decide("promote_checkpoint")
    assert "writesDecision" in caught.value.hint


@pytest.mark.parametrize("value", [math.nan, math.inf, object()])
def test_what_json_cannot_say_is_refused_and_nothing_is_written(
    tmp_path: Path, value: object
) -> None:
    artifact = StageArtifact(f"file://{tmp_path}/a.json")
    with pytest.raises(StageError, match="as JSON"):
        artifact.write_json({"loss": value})
    assert list(tmp_path.iterdir()) == []


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    artifact = StageArtifact(f"file://{tmp_path}/big.bin")
    bodies = [bytes([n]) * 3_000_000 for n in range(3)]
    artifact.write_bytes(bodies[0])
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            for body in bodies:
                artifact.write_bytes(body)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        seen = [artifact.read_bytes() for _ in range(50)]
    finally:
        stop.set()
        writer.join()
    assert all(body in bodies for body in seen)
    assert StageArtifact(f"file://{tmp_path}/").list() == ["big.bin"]


def test_a_blank_in_a_file_uri_may_be_written_both_ways(tmp_path: Path) -> None:
    StageArtifact(f"file://{tmp_path}/a b").write_text("x")
    assert StageArtifact(f"file://{tmp_path}/a%20b").read_text() == "x"


def test_a_store_that_cannot_be_seen_is_an_error_not_an_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("npa.stage._opened", [])
    with pytest.raises(NpaError, match="refused"):
        StageArtifact("s3://bucket/key").exists()


def test_scratch_is_private_and_gone_when_the_stage_ends(tmp_path: Path) -> None:
    program = (
        "from npa.stage import Stage\n"
        "stage = Stage.from_env()\n"
        "assert stage.scratch is stage.scratch\n"
        "(stage.scratch / 'x').write_text('x')\n"
        "print(stage.scratch)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment("file:///r/"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_stage_on_files_loads_no_client_library() -> None:
    program = (
        "import sys\nfrom npa.stage import Stage\nStage.from_env()\n"
        "print([name for name in ('obstore', 'pydantic', 'yaml', 'click') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment("file:///r/"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
