"""A shim serves one job after the other; nothing of one job may touch the next."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import socket
from itertools import count
from pathlib import Path

import pytest

from npa.observation import Found, Unavailable
from npa.orchestration.engine import Job, Launched, Phase
from npa.orchestration.local import procfs, shim
from npa.orchestration.local.engine import LocalEngine
from npa.orchestration.local.inventory import Gpu, Inventory
from npa.workflow.step import Profile
from orchestration.local.conftest import MakeEngine
from orchestration.local.kit import (
    counted,
    exact,
    job,
    launched_and_settled,
    lines,
    ref,
    settled,
    shim_pid,
    status,
    until,
)

TRIES_MAX = 100


def on_shim(engine: LocalEngine, pid: int, then: str = "true") -> Job:
    """A new job that this shim has taken; the jobs of other shims end at once."""
    for number in count():
        assert number < TRIES_MAX, f"shim {pid} takes no job any more"
        one = job(f"on-{pid}-{number}", f'[ "$PPID" != {pid} ] || {{ {then}; }}')
        assert isinstance(engine.launch(one), Launched)
        if shim_pid(status(engine, one)) == pid:
            return one
        settled(engine, one)
    raise AssertionError


def gone(pid: int) -> bool:
    seen = procfs.stat(pid)
    return seen is None or not seen.alive


def test_a_shim_takes_the_next_job(engine: LocalEngine, tmp_path: Path) -> None:
    first = counted("a", tmp_path)
    pid = shim_pid(launched_and_settled(engine, first))
    second = on_shim(engine, pid, f"echo b >> {tmp_path}/runs")
    assert settled(engine, second).phase is Phase.SUCCEEDED
    assert status(engine, first).phase is Phase.SUCCEEDED
    assert lines(tmp_path / "runs") == ["a", "b"]


def test_a_shim_whose_job_failed_takes_no_other(engine: LocalEngine) -> None:
    failed = launched_and_settled(engine, job("a", "exit 3"))
    assert failed.phase is Phase.FAILED
    until(lambda: gone(shim_pid(failed)), "the shim to end")


def test_each_job_finds_its_own_working_folder(engine: LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    before = launched_and_settled(engine, job("a", "true", workdir=tmp_path / "own"))
    after = on_shim(engine, shim_pid(before), f"pwd > {tmp_path}/where")
    settled(engine, after)
    assert lines(tmp_path / "where") == [str(tmp_path / "jobs" / after.name / "rank-0.work")]


@pytest.mark.req("D-05")
def test_a_signal_for_a_job_that_ends_never_hits_the_next(
    engine: LocalEngine, tmp_path: Path
) -> None:
    """Whoever cancels holds the folder's lock: the shim goes on after the signal, without it."""
    os.mkfifo(tmp_path / "go")
    one = counted("a", tmp_path, f"cat {tmp_path}/go")
    engine.launch(one)
    pid = shim_pid(status(engine, one))
    folder = os.open(tmp_path / "jobs/a", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    (tmp_path / "go").write_text("")
    assert settled(engine, one).phase is Phase.SUCCEEDED
    os.kill(pid, signal.SIGTERM)
    os.close(folder)
    assert settled(engine, on_shim(engine, pid)).phase is Phase.SUCCEEDED
    assert not gone(pid)


@pytest.mark.req("D-05")
@pytest.mark.parametrize("record", ["kept", "taken away"])
def test_a_late_cancel_never_hits_the_next_job(
    engine: LocalEngine, tmp_path: Path, record: str
) -> None:
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "end")
    first = counted("a", tmp_path, f"cat {tmp_path}/go")
    engine.launch(first)
    proof = exact(engine, first)
    (tmp_path / "go").write_text("")
    settled(engine, first)
    pid = shim_pid(status(engine, first))
    second = on_shim(engine, pid, f"cat {tmp_path}/end")
    if record == "taken away":
        (tmp_path / "jobs/a/exit.json").unlink()
    engine.cancel(proof)
    assert not procfs_pending(pid)
    (tmp_path / "end").write_text("")
    assert settled(engine, second).phase is Phase.SUCCEEDED


def procfs_pending(pid: int) -> bool:
    """Does a SIGTERM wait for this process?"""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("ShdPnd:", "SigPnd:")) and int(line.split()[1], 16) & (
            1 << (signal.SIGTERM - 1)
        ):
            return True
    return False


def test_a_cancel_reaches_the_second_job_of_a_shim(engine: LocalEngine, tmp_path: Path) -> None:
    pid = shim_pid(launched_and_settled(engine, counted("a", tmp_path)))
    second = on_shim(engine, pid, f"echo up > {tmp_path}/up; sleep 300")
    until((tmp_path / "up").exists)
    engine.cancel(exact(engine, second))
    assert settled(engine, second).phase is Phase.CANCELLED
    until(lambda: gone(pid), "the shim of a cancelled job to end")


@pytest.mark.req("D-04")
def test_a_job_whose_record_was_taken_away_is_not_lost_while_its_shim_is_elsewhere(
    engine: LocalEngine, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    first = counted("a", tmp_path)
    pid = shim_pid(launched_and_settled(engine, first))
    second = on_shim(engine, pid, f"cat {tmp_path}/go")
    (tmp_path / "jobs/a/exit.json").unlink()
    seen = engine.observe([ref(first)])["a"]
    assert isinstance(seen, Unavailable)
    assert seen.cause == "RECORD_LOST"
    assert status(engine, second).phase is Phase.RUNNING
    (tmp_path / "go").write_text("")
    settled(engine, second)
    engine.close()
    until(lambda: gone(pid), "the shim to end with its driver")
    over = engine.observe([ref(first)])["a"]
    assert isinstance(over, Found)
    assert over.value.evidence[0].code == "SHIM_LOST"


def test_a_shim_killed_at_its_second_job_loses_only_that(
    engine: LocalEngine, tmp_path: Path
) -> None:
    first = counted("a", tmp_path)
    pid = shim_pid(launched_and_settled(engine, first))
    second = on_shim(engine, pid, f"echo up > {tmp_path}/up; sleep 300")
    until((tmp_path / "up").exists)
    os.kill(pid, signal.SIGKILL)
    assert settled(engine, second).evidence[0].code == "SHIM_LOST"
    assert status(engine, first).phase is Phase.SUCCEEDED


def test_a_shim_with_something_left_of_its_job_takes_no_other(
    engine: LocalEngine, tmp_path: Path
) -> None:
    one = counted("a", tmp_path, "setsid sleep 300 > /dev/null 2>&1 &", grace=0.1)
    over = launched_and_settled(engine, one)
    assert over.leftovers
    until(lambda: gone(shim_pid(over)), "the shim to end")


def test_a_shim_that_held_a_gpu_takes_no_other_job(make_engine: MakeEngine) -> None:
    machine = Inventory(cpus=8.0, memory_gib=8.0, gpus=(Gpu(0, "NVIDIA H100 80GB HBM3"),))
    engine = make_engine(machine)
    wants = Profile(accelerator="H100", accelerator_count=1)
    over = launched_and_settled(engine, job("a", "true", profile=wants))
    until(lambda: gone(shim_pid(over)), "the shim to end, and its lock with it")


def test_a_job_goes_on_when_its_shim_has_outlived_the_driver(
    engine: LocalEngine, make_engine: MakeEngine, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    pid = shim_pid(launched_and_settled(engine, counted("a", tmp_path)))
    second = on_shim(engine, pid, f"cat {tmp_path}/go")
    engine.close()
    other = make_engine()
    assert status(other, second).phase is Phase.RUNNING
    (tmp_path / "go").write_text("")
    assert settled(other, second).phase is Phase.SUCCEEDED
    until(lambda: gone(pid), "a shim without a driver to end")


@pytest.mark.parametrize("answer", ["nothing comes", "the driver leaves"])
def test_an_idle_shim_leaves(answer: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        if answer == "nothing comes":
            patience = array.array("l", [0, 1000]).tobytes()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        else:
            ours.close()
        assert shim.next_request(theirs, patient=answer != "nothing comes") is None
