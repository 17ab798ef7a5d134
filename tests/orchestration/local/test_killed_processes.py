"""Each process around the payload is killed in turn: zygote, waiting shim, shim, driver.

How often a payload ran is counted by the payload itself, which appends a line to a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from npa.observation import Absent
from npa.orchestration.engine import (
    LaunchRefused,
    LaunchUnknown,
    Phase,
)
from npa.orchestration.local import launcher, procfs, records
from npa.orchestration.local.engine import LocalEngine
from npa.orchestration.local.procfs import Identity
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


def zygote_of(engine: LocalEngine) -> int:
    pid = engine._launcher.pid
    assert pid is not None
    return pid


def spares_of(engine: LocalEngine) -> list[int]:
    """The shims that wait for the next launch: the one that has served, and a fresh one."""
    until(lambda: len(procfs.children(zygote_of(engine))) == 2, "the next shim")
    spares = procfs.children(zygote_of(engine))
    until(lambda: all(is_waiting(pid) for pid in spares), "both shims to wait")
    return spares


def is_waiting(pid: int) -> bool:
    """Does the shim sleep, and no longer in a job's folder?"""
    seen = procfs.stat(pid)
    at_rest = Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    return at_rest and seen is not None and seen.state == "S"


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


# -- the zygote -----------------------------------------------------------------------------


def test_a_zygote_that_died_is_replaced(engine: LocalEngine, tmp_path: Path) -> None:
    assert launched_and_settled(engine, counted("a", tmp_path)).phase is Phase.SUCCEEDED
    first = zygote_of(engine)
    os.kill(first, signal.SIGKILL)
    until(lambda: procfs.stat(first) is None or procfs.stat(first).state == "Z")  # type: ignore[union-attr]
    assert launched_and_settled(engine, counted("b", tmp_path)).phase is Phase.SUCCEEDED
    assert zygote_of(engine) != first
    assert lines(tmp_path / "runs") == ["a", "b"]


def test_jobs_outlive_their_zygote(engine: LocalEngine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    one = counted("a", tmp_path, f"cat {tmp_path}/go")
    engine.launch(one)
    os.kill(zygote_of(engine), signal.SIGKILL)
    assert status(engine, one).phase is Phase.RUNNING
    (tmp_path / "go").write_text("")
    assert settled(engine, one).phase is Phase.SUCCEEDED


@pytest.mark.req("D-01")
def test_a_launch_whose_shim_dies_before_the_claim_is_refused_for_certain(
    engine: LocalEngine, tmp_path: Path
) -> None:
    launched_and_settled(engine, counted("first", tmp_path))
    spares = spares_of(engine)
    signal_all(spares, signal.SIGSTOP)
    lost = counted("lost", tmp_path)
    replies: list[object] = []
    thread = threading.Thread(target=lambda: replies.append(engine.launch(lost)))
    thread.start()
    until((tmp_path / "jobs/lost/job.json").exists)
    os.kill(zygote_of(engine), signal.SIGKILL)
    signal_all(spares, signal.SIGKILL)
    thread.join()
    assert isinstance(replies[0], LaunchRefused)
    assert replies[0].evidence.code == "LAUNCH_VERIFIED_ABSENT"
    assert isinstance(engine.observe([ref(lost)])["lost"], Absent)
    assert lines(tmp_path / "runs") == ["first"]


@pytest.mark.req("D-01")
def test_a_late_shim_finds_the_seal_and_runs_nothing(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched_and_settled(engine, counted("first", tmp_path))
    spares = spares_of(engine)
    signal_all(spares, signal.SIGSTOP)
    monkeypatch.setattr(launcher, "REPLY_SECONDS_MAX", 0.05)
    late = counted("late", tmp_path)
    assert isinstance(engine.launch(late), LaunchRefused)
    signal_all(spares, signal.SIGCONT)
    until(lambda: any(procfs.stat(spare) is None for spare in spares), "the late shim to give up")
    seen = engine.observe([ref(late)])["late"]
    assert isinstance(seen, Absent)
    assert not seen.late_possible
    assert lines(tmp_path / "runs") == ["first"]


def test_a_launch_whose_folder_cannot_be_sealed_is_unknown(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_seal(folder: str, me: Identity) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(records, "seal", no_seal)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert isinstance(engine.launch(counted("a", tmp_path)), LaunchUnknown)


def test_a_launcher_that_cannot_start_says_why(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    reply = engine.launch(counted("a", tmp_path))
    assert isinstance(reply, LaunchRefused)
    assert "No such file" in reply.evidence.hint
    monkeypatch.undo()
    assert launched_and_settled(engine, counted("b", tmp_path)).phase is Phase.SUCCEEDED


# -- the shim -------------------------------------------------------------------------------


def test_orphans_of_a_killed_shim_are_found_and_ended(engine: LocalEngine, tmp_path: Path) -> None:
    script = (
        f"setsid sh -c 'echo $$ > {tmp_path}/own; sleep 300' & "
        f"env -i sh -c 'echo $$ > {tmp_path}/bare; sleep 300' & echo $$ > {tmp_path}/main; wait"
    )
    one = counted("a", tmp_path, script)
    engine.launch(one)
    until(lambda: all(lines(tmp_path / name) for name in ("own", "bare", "main")))
    pids = [int(lines(tmp_path / name)[0]) for name in ("own", "bare", "main")]
    os.kill(shim_pid(status(engine, one)), signal.SIGKILL)
    over = settled(engine, one)
    assert over.phase is Phase.FAILED
    assert over.evidence[0].code == "SHIM_LOST"
    assert len(over.leftovers) >= 3
    assert all(procfs.stat(pid) is None or procfs.stat(pid).state == "Z" for pid in pids)  # type: ignore[union-attr]
    assert status(engine, one).evidence == over.evidence  # it stays so
    assert lines(tmp_path / "runs") == ["a"]


def test_orphans_deaf_to_term_are_killed(engine: LocalEngine, tmp_path: Path) -> None:
    one = counted(
        "a",
        tmp_path,
        f"trap '' TERM; echo up > {tmp_path}/up; while :; do sleep 0.01; done",
        grace=0.1,
    )
    engine.launch(one)
    until(lambda: bool(lines(tmp_path / "up")))
    os.kill(shim_pid(status(engine, one)), signal.SIGKILL)
    over = settled(engine, one)
    assert any("killed" in text for text in over.leftovers)


def test_a_cancelled_job_whose_shim_is_lost_counts_as_cancelled(
    engine: LocalEngine, tmp_path: Path
) -> None:
    one = counted("a", tmp_path, f"trap '' TERM; echo up > {tmp_path}/up; sleep 300", grace=0.1)
    engine.launch(one)
    until(lambda: bool(lines(tmp_path / "up")))
    proof = exact(engine, one)
    os.kill(shim_pid(status(engine, one)), signal.SIGSTOP)
    pid = shim_pid(status(engine, one))
    engine.cancel(proof)
    os.kill(pid, signal.SIGKILL)
    assert settled(engine, one).phase is Phase.CANCELLED


# -- the driver -----------------------------------------------------------------------------

DRIVER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from orchestration.local.kit import job
from npa.orchestration.local.engine import LocalEngine
home = Path(sys.argv[1])
base = {"PATH": os.environ["PATH"], "TEST_HOME": str(home)}
engine = LocalEngine(home / "jobs", base_env=base)
for number in range(int(sys.argv[2])):
    name = f"job-{number}"
    wait = f"while [ ! -e {home}/go ]; do sleep 0.02; done"
    engine.launch(job(name, f"echo {name} >> {home}/runs; {wait}"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.req("D-05")
def test_jobs_of_a_killed_driver_are_adopted(make_engine: MakeEngine, tmp_path: Path) -> None:
    """Jobs go on without their driver, and the next one finds each of them once."""
    tests = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path), "20", str(tests)])
    assert done.returncode == -signal.SIGKILL
    engine = make_engine()
    jobs = [job(f"job-{number}", "x") for number in range(20)]
    assert {status(engine, one).phase for one in jobs} == {Phase.RUNNING}
    assert engine._ledger.used().cpus == 20.0
    (tmp_path / "go").touch()
    assert {settled(engine, one).phase for one in jobs} == {Phase.SUCCEEDED}
    assert sorted(lines(tmp_path / "runs")) == sorted(one.name for one in jobs)


def test_wait_wakes_up_for_an_adopted_job(make_engine: MakeEngine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    one = counted("a", tmp_path, f"cat {tmp_path}/go")
    make_engine().launch(one)
    second = make_engine()
    assert status(second, one).phase is Phase.RUNNING
    done = threading.Event()
    thread = threading.Thread(target=lambda: (second.wait(600.0), done.set()))
    thread.start()
    (tmp_path / "go").write_text("")
    assert done.wait(20.0)
    thread.join()
    assert settled(second, one).phase is Phase.SUCCEEDED


def test_wait_returns_when_time_is_up(engine: LocalEngine) -> None:
    engine.wait(0.0)
    engine.wait(-1.0)
