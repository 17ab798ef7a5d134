"""From launch to exit record, when nothing goes wrong around the payload."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from npa.observation import Ambiguous
from npa.orchestration.engine import Engine, Job, JobRef, Launched, LaunchRefused, Phase, Task
from npa.orchestration.local import layout, zygote
from npa.orchestration.local.engine import LocalEngine
from npa.orchestration.local.inventory import Gpu, Inventory
from npa.orchestration.local.observer import Observer
from npa.orchestration.logs import LogReader
from npa.target.secret import Secret
from npa.workflow.step import Profile
from orchestration.local.conftest import MakeEngine
from orchestration.local.kit import (
    exact,
    job,
    launched_and_settled,
    lines,
    ref,
    settled,
    status,
    step,
    until,
)


def test_the_engine_keeps_the_seam(engine: LocalEngine) -> None:
    seam: Engine = engine
    logs: LogReader = engine.logs
    assert (seam.name, seam.launches_groups) == ("local", False)
    assert seam.target["engine"] == "local"
    assert logs is not None


def test_a_step_succeeds(engine: LocalEngine, tmp_path: Path) -> None:
    hello = job("hello", f"echo run >> {tmp_path}/runs; echo hello")
    reply = engine.launch(hello)
    assert isinstance(reply, Launched)
    over = settled(engine, hello)
    assert over.phase is Phase.SUCCEEDED
    assert over.exact.native_id == reply.native_id
    assert [member.path for member in over.members] == ["hello"]
    assert lines(tmp_path / "runs") == ["run"]
    assert (tmp_path / "jobs/hello/rank-0.log").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("shell", "code", "exit_code", "signal"),
    [
        ("exit 3", "PAYLOAD_EXIT_NONZERO", 3, None),
        ("no-such-command", "PAYLOAD_EXIT_NONZERO", 127, None),
        ("kill -SEGV $$", "PAYLOAD_SIGNAL", None, 11),
        ("kill -KILL $$", "PAYLOAD_SIGNAL", None, 9),
    ],
)
def test_a_failure_is_typed(
    engine: LocalEngine, shell: str, code: str, exit_code: int | None, signal: int | None
) -> None:
    bad = job("bad", f"echo one; echo two; echo; {shell}")
    engine.launch(bad)
    over = settled(engine, bad)
    evidence = over.members[0].evidence[0]
    assert over.phase is Phase.FAILED
    assert (evidence.code, evidence.exit_code, evidence.signal) == (code, exit_code, signal)
    assert evidence.rank == 0


def test_a_failure_points_to_the_last_line_that_says_something(engine: LocalEngine) -> None:
    bad = job("bad", "echo one; echo the reason; echo; exit 1")
    engine.launch(bad)
    assert settled(engine, bad).members[0].evidence[0].log_line == 2


def test_a_program_that_is_not_there_is_its_own_evidence(engine: LocalEngine) -> None:
    bad = job("bad", argv=("no-such-program", "x"))
    engine.launch(bad)
    evidence = settled(engine, bad).members[0].evidence[0]
    assert evidence.code == "COMMAND_NOT_FOUND"
    assert "no-such-program" in evidence.hint


@pytest.mark.parametrize(("text", "mode"), [("#!/bin/sh\n", 0o600), ("no magic", 0o700)])
def test_a_file_that_cannot_be_executed_is_its_own_evidence(
    engine: LocalEngine, tmp_path: Path, text: str, mode: int
) -> None:
    file = tmp_path / "tool"
    file.write_text(text)
    file.chmod(mode)
    bad = job("bad", argv=(str(file),))
    engine.launch(bad)
    assert settled(engine, bad).members[0].evidence[0].code == "COMMAND_NOT_EXECUTABLE"


def test_a_command_too_long_for_the_kernel_is_typed(engine: LocalEngine) -> None:
    bad = job("bad", f"true {'x' * 200_000}")
    engine.launch(bad)
    assert settled(engine, bad).members[0].evidence[0].code == "INVALID_ARGUMENT"


def test_arguments_and_scripts_arrive_as_they_are(engine: LocalEngine, tmp_path: Path) -> None:
    nasty = "a b 'c' \"d\" $e `f` \\ * ;"
    direct = job("direct", argv=("printf", "%s\n", nasty))
    script = job("script", "x='a  b'\nprintf '%s|' \"$x\" '\\n' \"$V\"", V=nasty)
    for one in (direct, script):
        engine.launch(one)
        assert settled(engine, one).phase is Phase.SUCCEEDED
    assert (tmp_path / "jobs/direct/rank-0.log").read_text() == nasty + "\n"
    assert (tmp_path / "jobs/script/rank-0.log").read_text() == f"a  b|\\n|{nasty}|"


def test_the_environment_is_what_was_given_and_nothing_else(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OF_THE_DRIVER", "must not leak")
    engine = make_engine(BASE="base", BOTH="base")
    env = job("env", argv=("/usr/bin/env",), BOTH="task", OWN="own")
    engine.launch(env)
    settled(engine, env)
    found = dict(line.split("=", 1) for line in lines(tmp_path / "jobs/env/rank-0.log"))
    assert (found["BASE"], found["BOTH"], found["OWN"]) == ("base", "task", "own")
    assert found[layout.MARKER] == env.key
    assert "OF_THE_DRIVER" not in found


def test_a_job_whose_pipe_is_silent_is_not_looked_at_again(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    look = Observer._look
    monkeypatch.setattr(Observer, "_look", lambda self, ref: looks.append("") or look(self, ref))
    (tmp_path / "up").mkdir()
    one = job("a", f"while [ -e {tmp_path}/up ]; do sleep 0.01; done", setup="true")
    engine.launch(one)
    until(lambda: status(engine, one).phase is Phase.RUNNING)
    before = len(looks)
    assert [status(engine, one).phase for _ in range(3)] == [Phase.RUNNING] * 3
    assert len(looks) == before
    engine.cancel(exact(engine, one))
    assert settled(engine, one).phase is Phase.CANCELLED


@pytest.mark.req("D-05")
def test_a_silent_pipe_says_nothing_of_a_job_with_another_identity(
    engine: LocalEngine, tmp_path: Path
) -> None:
    (tmp_path / "up").mkdir()
    one = job("a", f"while [ -e {tmp_path}/up ]; do sleep 0.01; done")
    engine.launch(one)
    status(engine, one)
    assert isinstance(engine.observe([ref(one, "1@2@boot")])["a"], Ambiguous)
    assert isinstance(engine.observe([JobRef("a", "another key")])["a"], Ambiguous)
    (tmp_path / "up").rmdir()
    settled(engine, one)


def test_a_task_inherits_its_three_streams_and_nothing_else(
    engine: LocalEngine, tmp_path: Path
) -> None:
    held_by_ls_itself = {"3"}
    for name in ("first", "second"):  # the second by a shim that has served
        launched_and_settled(engine, job(name, f"exec ls /proc/self/fd > {tmp_path}/open"))
        assert set(lines(tmp_path / "open")) == {"0", "1", "2"} | held_by_ls_itself


@pytest.mark.req("A-11")
def test_secrets_reach_the_task_and_no_file(engine: LocalEngine, tmp_path: Path) -> None:
    canary = "canary-7f3a"
    one = step("secret", 'test "$TOKEN" = canary-"7f3a"')
    secret = Job("secret", "key", (Task(one, {}, {"TOKEN": Secret(canary)}),))
    engine.launch(secret)
    assert settled(engine, secret).phase is Phase.SUCCEEDED
    texts = [file.read_bytes() for file in (tmp_path / "jobs").rglob("*") if file.is_file()]
    assert texts
    assert not any(canary.encode() in text for text in texts)


def test_files_are_for_the_owner_only(engine: LocalEngine, tmp_path: Path) -> None:
    one = job("one", "true")
    engine.launch(one)
    settled(engine, one)
    folder = tmp_path / "jobs/one"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.lstat().st_mode & 0o077 for file in folder.iterdir() if file.is_file()} == {0}


def test_setup_runs_on_each_rank_without_rank_variables(
    engine: LocalEngine, tmp_path: Path
) -> None:
    gang = job(
        "gang",
        'n=$(echo "$SKYPILOT_NODE_IPS" | wc -l)\n'
        'echo "run $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES, $n"',
        setup='echo "setup ${SKYPILOT_NODE_RANK-none}"',
        ranks=2,
    )
    engine.launch(gang)
    assert settled(engine, gang).phase is Phase.SUCCEEDED
    for rank in (0, 1):
        log = tmp_path / f"jobs/gang/rank-{rank}.log"
        assert lines(log) == ["setup none", f"run {rank} of 2, 2"]


def test_a_failed_setup_on_one_rank_starts_no_run(engine: LocalEngine, tmp_path: Path) -> None:
    gang = job(
        "gang",
        f"echo run >> {tmp_path}/runs",
        setup=f"mkdir {tmp_path}/once || exit 9",
        ranks=3,
    )
    engine.launch(gang)
    over = settled(engine, gang)
    evidence = over.members[0].evidence[0]
    assert over.phase is Phase.FAILED
    assert (evidence.code, evidence.exit_code) == ("SETUP_FAILED", 9)
    assert lines(tmp_path / "runs") == []


def test_several_tasks_of_one_job_are_judged_one_by_one(
    engine: LocalEngine, tmp_path: Path
) -> None:
    tasks = tuple(
        Task(step(f"g/{name}", shell)) for name, shell in [("a", "true"), ("b", "exit 4")]
    )
    group = Job("group", "key-group", tasks)
    engine.launch(group)
    over = settled(engine, group)
    assert over.phase is Phase.FAILED
    assert [(one.path, one.phase) for one in over.members] == [
        ("g/a", Phase.SUCCEEDED),
        ("g/b", Phase.FAILED),
    ]
    found = engine.logs.streams(ref(group))
    assert [Path(stream.location).name for stream in found.value] == [  # type: ignore[union-attr]
        "m0-rank-0.log",
        "m1-rank-0.log",
    ]


def test_commands_run_in_a_copy_of_the_working_folder(engine: LocalEngine, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "given").write_text("x")
    one = job("one", "pwd; ls; touch mine", workdir=work)
    engine.launch(one)
    settled(engine, one)
    place = tmp_path / "jobs/one/rank-0.work"
    assert lines(tmp_path / "jobs/one/rank-0.log") == [str(place), "given"]
    assert [path.name for path in work.iterdir()] == ["given"]


def test_files_of_a_command_without_a_source_never_meet_the_files_of_its_job(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    first, second = make_engine(), make_engine()
    names = f"{layout.JOB} {layout.PROGRESS} {layout.CANCEL} {layout.RECORD} {layout.CLAIM}"
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    one = job("one", f"ls; for name in {names}; do echo mine > $name; done; touch x; {waits}")
    first.launch(one)
    until(lambda: (tmp_path / "jobs/one/rank-0.work/x").exists())
    assert status(second, one).phase is Phase.RUNNING
    (tmp_path / "go").touch()
    assert settled(second, one).phase is Phase.SUCCEEDED
    assert lines(tmp_path / "jobs/one/rank-0.log") == []
    until(lambda: not list((tmp_path / "jobs/one").glob("*.work")))


def test_a_missing_working_folder_is_refused(engine: LocalEngine, tmp_path: Path) -> None:
    reply = engine.launch(job("one", "true", workdir=tmp_path / "nowhere"))
    assert isinstance(reply, LaunchRefused)
    assert reply.evidence.code == "INVALID_ARGUMENT"
    assert "nowhere" in reply.evidence.hint


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 300])
def test_a_name_that_is_no_folder_is_refused(engine: LocalEngine, name: str) -> None:
    assert isinstance(engine.launch(job(name, "true")), LaunchRefused)


def test_a_nul_byte_never_reaches_a_program(engine: LocalEngine) -> None:
    bad = job("bad", "true", V="a\0b")
    engine.launch(bad)
    assert settled(engine, bad).members[0].evidence[0].code == "INVALID_ARGUMENT"


def test_gpus_are_given_to_one_job_at_a_time(make_engine: MakeEngine, tmp_path: Path) -> None:
    two = (Gpu(0, "NVIDIA H100 80GB HBM3"), Gpu(1, "NVIDIA H100 80GB HBM3"))
    engine = make_engine(Inventory(8.0, 8.0, two))
    profile = Profile(accelerator="H100", accelerator_count=1)
    script = (
        "echo $CUDA_VISIBLE_DEVICES $SKYPILOT_NUM_GPUS_PER_NODE\n"
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
    )
    first, second, third = (job(name, script, profile=profile) for name in ("a", "b", "c"))
    assert isinstance(engine.launch(first), Launched)
    assert isinstance(make_engine(Inventory(8.0, 8.0, two)).launch(second), Launched)
    refused = engine.launch(third)
    assert isinstance(refused, LaunchRefused)
    assert refused.evidence.code == "CAPACITY_OR_QUOTA"
    (tmp_path / "go").touch()
    assert settled(engine, first).phase is settled(engine, second).phase is Phase.SUCCEEDED
    assert lines(tmp_path / "jobs/a/rank-0.log") == ["0 1"]
    assert lines(tmp_path / "jobs/b/rank-0.log") == ["1 1"]


def test_the_zygote_needs_the_standard_library_only() -> None:
    """Its modules must import without site-packages and without the packages around them."""
    here = str(Path(zygote.__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {here!r})\n"
        f"import zygote; zygote.borrow_packages({here!r})\n"
        "import npa.orchestration.local.shim\n"
        "bad = [n for n in sys.modules if n.split('.')[0] in ('pydantic', 'yaml', 'obstore')]\n"
        "own = [n for n in sys.modules if n.startswith('npa.') and 'local' not in n]\n"
        "print(bad, own)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] ['npa.orchestration']\n"
