"""How jobs are ended: gangs, cancels, graces, and what a job leaves behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from changed import replace
from npa.orchestration.engine import CancelRequested, CancelUnknown, Job, Phase, Task
from npa.orchestration.local import canceller
from npa.orchestration.local.engine import LocalEngine
from orchestration.local.conftest import MakeEngine
from orchestration.local.kit import (
    exact,
    job,
    lines,
    settled,
    shim_pid,
    status,
    step,
    until,
)

DAEMON = "(setsid sh -c 'echo $$ > {pid}; exec sleep 300' >/dev/null 2>&1 &) ; "


def pid_in(file: Path) -> int:
    until(lambda: bool(lines(file)), f"a pid in {file}")
    return int(lines(file)[0])


def is_gone(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"


def test_a_rank_that_fails_ends_its_gang_and_is_named(engine: LocalEngine, tmp_path: Path) -> None:
    gang = job(
        "gang",
        f"""echo up > {tmp_path}/up-$SKYPILOT_NODE_RANK
        while [ $(ls {tmp_path} | grep -c up-) -lt 3 ]; do sleep 0.01; done
        [ $SKYPILOT_NODE_RANK = 1 ] && exit 7
        sleep 300""",
        ranks=3,
    )
    engine.launch(gang)
    over = settled(engine, gang)
    evidence = over.members[0].evidence
    assert over.phase is Phase.FAILED
    assert [(one.code, one.exit_code, one.rank) for one in evidence] == [
        ("PAYLOAD_EXIT_NONZERO", 7, 1)
    ]


def test_a_rank_that_cannot_start_ends_its_gang(engine: LocalEngine, tmp_path: Path) -> None:
    """Setups make a folder each; the second one takes the program away."""
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nsleep 300\n")
    tool.chmod(0o700)
    setup = f"mkdir {tmp_path}/first || {{ rm {tool}; mkdir {tmp_path}/both; }}\n"
    wait = f"while [ ! -d {tmp_path}/both ]; do sleep 0.01; done"
    gang = job("gang", argv=(str(tool),), setup=setup + wait, ranks=2)
    engine.launch(gang)
    over = settled(engine, gang)
    assert over.phase is Phase.FAILED
    assert [(one.code, one.rank) for one in over.members[0].evidence] == [("COMMAND_NOT_FOUND", 0)]


@pytest.mark.req("F-03")
def test_a_cancel_honours_a_term_trap(engine: LocalEngine, tmp_path: Path) -> None:
    """Children get TERM and a chance to clean up before KILL."""
    polite = job(
        "polite",
        f"trap 'echo saved > {tmp_path}/checkpoint; exit 0' TERM; echo up > {tmp_path}/up\n"
        "while :; do sleep 0.01; done",
    )
    engine.launch(polite)
    until(lambda: bool(lines(tmp_path / "up")))
    assert engine.cancel(exact(engine, polite)) == CancelRequested()
    over = settled(engine, polite)
    assert over.phase is Phase.CANCELLED
    assert lines(tmp_path / "checkpoint") == ["saved"]
    assert over.members[0].evidence == ()


def test_a_task_deaf_to_term_is_killed_after_the_grace(engine: LocalEngine, tmp_path: Path) -> None:
    deaf = job(
        "deaf",
        f"trap '' TERM; echo up > {tmp_path}/up; while :; do sleep 0.01; done",
        grace=0.1,
    )
    engine.launch(deaf)
    until(lambda: bool(lines(tmp_path / "up")))
    for _ in range(3):  # repeats are safe
        assert engine.cancel(exact(engine, deaf)) == CancelRequested()
    assert settled(engine, deaf).phase is Phase.CANCELLED


@pytest.mark.parametrize("stopped", ["task", "shim"])
def test_a_paused_job_dies_all_the_same(engine: LocalEngine, tmp_path: Path, stopped: str) -> None:
    paused = job("paused", f"echo $$ > {tmp_path}/pid; sleep 300", grace=0.2)
    engine.launch(paused)
    task = pid_in(tmp_path / "pid")
    os.kill(task if stopped == "task" else shim_pid(status(engine, paused)), signal.SIGSTOP)
    engine.cancel(exact(engine, paused))
    assert settled(engine, paused).phase is Phase.CANCELLED
    assert is_gone(task)


def test_a_second_cancel_kills_what_ignored_the_first(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shim that does not do its duty is not waited for without end."""
    monkeypatch.setattr(canceller, "MARGIN_SECONDS", 0.0)
    stuck = job("stuck", f"echo $$ > {tmp_path}/pid; sleep 300", grace=0.0)
    engine.launch(stuck)
    task = pid_in(tmp_path / "pid")
    proof = exact(engine, stuck)
    (tmp_path / "jobs/stuck/cancel.json").write_text('{"at": 1}')
    os.kill(shim_pid(status(engine, stuck)), signal.SIGSTOP)
    assert engine.cancel(proof) == CancelRequested()
    over = settled(engine, stuck)
    assert over.phase is Phase.CANCELLED
    assert is_gone(task)


def test_a_cancel_in_setup_starts_no_run(engine: LocalEngine, tmp_path: Path) -> None:
    one = job(
        "one",
        f"echo run >> {tmp_path}/runs",
        setup=f"trap 'exit 0' TERM; echo up > {tmp_path}/up; while :; do sleep 0.01; done",
    )
    engine.launch(one)
    until(lambda: bool(lines(tmp_path / "up")))
    assert status(engine, one).phase is Phase.STARTING
    engine.cancel(exact(engine, one))
    assert settled(engine, one).phase is Phase.CANCELLED
    assert lines(tmp_path / "runs") == []


def test_a_cancel_of_a_job_that_ended_changes_nothing(engine: LocalEngine) -> None:
    one = job("one", "true")
    engine.launch(one)
    proof = settled(engine, one).exact
    assert engine.cancel(proof) == CancelRequested()
    assert settled(engine, one).phase is Phase.SUCCEEDED


def test_a_proof_of_another_driver_cancels_nothing(
    engine: LocalEngine, make_engine: MakeEngine, tmp_path: Path
) -> None:
    one = job("one", f"cat {tmp_path}/go")
    os.mkfifo(tmp_path / "go")
    engine.launch(one)
    reply = make_engine().cancel(replace(exact(engine, one), bound_to="elsewhere"))
    assert isinstance(reply, CancelUnknown)
    (tmp_path / "go").write_text("")
    assert settled(engine, one).phase is Phase.SUCCEEDED


def test_a_cancel_by_somebody_else_is_told_apart(engine: LocalEngine, tmp_path: Path) -> None:
    one = job("one", f"echo up > {tmp_path}/up; sleep 300")
    engine.launch(one)
    until(lambda: bool(lines(tmp_path / "up")))
    os.kill(shim_pid(status(engine, one)), signal.SIGTERM)
    over = settled(engine, one)
    evidence = over.members[0].evidence[0]
    assert over.phase is Phase.CANCELLED
    assert evidence.code == "CANCELLED_BY_SIGNAL"
    assert f"pid {os.getpid()}" in evidence.hint


def test_children_in_sessions_of_their_own_end_with_a_cancel(
    engine: LocalEngine, tmp_path: Path
) -> None:
    one = job("one", DAEMON.format(pid=tmp_path / "pid") + "sleep 300")
    engine.launch(one)
    child = pid_in(tmp_path / "pid")
    engine.cancel(exact(engine, one))
    assert settled(engine, one).phase is Phase.CANCELLED
    assert is_gone(child)


def test_a_daemon_that_outlives_its_step_is_ended_and_reported(
    engine: LocalEngine, tmp_path: Path
) -> None:
    """Work in the background must not live on after a step has reported success."""
    one = job(
        "one", DAEMON.format(pid=tmp_path / "pid") + f"while [ ! -s {tmp_path}/pid ]; do :; done"
    )
    engine.launch(one)
    over = settled(engine, one)
    child = pid_in(tmp_path / "pid")
    assert over.phase is Phase.SUCCEEDED
    assert over.leftovers == (f"pid {child} (sleep): ended after TERM",)
    assert is_gone(child)


def test_a_daemon_without_environment_and_deaf_to_term_is_killed(
    engine: LocalEngine, tmp_path: Path
) -> None:
    daemon = f'trap "" TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.01; done'
    started = f"while [ ! -s {tmp_path}/pid ]; do :; done"
    one = job("one", f"(env -i setsid sh -c '{daemon}' >/dev/null 2>&1 &); {started}", grace=0.1)
    engine.launch(one)
    over = settled(engine, one)
    child = pid_in(tmp_path / "pid")
    assert f"pid {child} (sh): killed" in over.leftovers
    assert is_gone(child)


def test_a_helper_that_drains_the_output_may_finish(engine: LocalEngine, tmp_path: Path) -> None:
    one = job("one", f"exec > >(sleep 0.1; cat > {tmp_path}/copy); echo whole")
    engine.launch(one)
    over = settled(engine, one)
    assert over.leftovers == ()
    assert lines(tmp_path / "copy") == ["whole"]


def test_one_task_of_a_job_ends_without_the_others(engine: LocalEngine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    tasks = (
        Task(step("bad", f"sleep 300 & echo $! > {tmp_path}/pid; exit 3")),
        Task(step("good", f"cat {tmp_path}/go")),
    )
    both = Job("both", "key-both", tasks)
    engine.launch(both)
    until(lambda: status(engine, both).members[0].phase is Phase.FAILED)
    seen = status(engine, both)
    assert (seen.phase, seen.settled, seen.members[1].phase) == (
        Phase.RUNNING,
        False,
        Phase.RUNNING,
    )
    (tmp_path / "go").write_text("")
    over = settled(engine, both)
    assert [one.phase for one in over.members] == [Phase.FAILED, Phase.SUCCEEDED]
    assert is_gone(pid_in(tmp_path / "pid"))
