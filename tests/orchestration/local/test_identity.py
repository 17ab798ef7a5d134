"""A look tells apart what it sees, what is not there, and what it cannot see."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from changed import replace
from npa.observation import Ambiguous, Found, Unavailable
from npa.orchestration.engine import (
    ExactJob,
    JobRef,
    Launched,
    Phase,
)
from npa.orchestration.local import layout, procfs, records
from npa.orchestration.local.engine import LocalEngine
from npa.orchestration.local.procfs import Identity
from npa.orchestration.local.records import JobFile, JobTask
from orchestration.local.kit import (
    counted,
    job,
    launched_and_settled,
    ref,
    settled,
    status,
    until,
)


def invented(tmp_path: Path, who: Identity, *, host: str = "", key: str = "key-a") -> None:
    """A job's folder as another shim would have left it."""
    folder = tmp_path / "jobs/a"
    folder.mkdir(mode=0o700)
    task = JobTask("a", 1, False, 1.0, 0.0, ((),))
    file = JobFile("a", key, host or procfs.host_id(), who.boot, 1.0, 5.0, (task,))
    records.write_job(str(folder), file)
    (folder / layout.CLAIM).symlink_to(layout.claim_text(layout.SHIM, str(who)))


@pytest.fixture
def innocent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process
        assert process.poll() is None, "a stranger was signalled"
        process.kill()


def test_a_reused_pid_is_never_signalled(
    engine: LocalEngine, tmp_path: Path, innocent: subprocess.Popen[bytes]
) -> None:
    now = procfs.stat(innocent.pid)
    assert now is not None
    who = Identity(innocent.pid, now.ticks - 1, procfs.boot_id())
    invented(tmp_path, who)
    proof = ExactJob("a", str(who), 0.0, engine._observer.bound_to)
    engine.cancel(proof)
    over = settled(engine, job("a"))
    assert (over.phase, over.evidence[0].code) == (Phase.CANCELLED, "SHIM_LOST")
    engine.cancel(proof)


def test_a_signal_misses_a_process_with_other_start_ticks(
    innocent: subprocess.Popen[bytes],
) -> None:
    now = procfs.stat(innocent.pid)
    assert now is not None
    assert not procfs.send(replace(now, ticks=now.ticks - 1), (signal.SIGKILL,))


def test_after_a_reboot_an_unfinished_job_is_known_to_be_lost(
    engine: LocalEngine, tmp_path: Path
) -> None:
    invented(tmp_path, Identity(4711, 99, "another-boot"))
    over = settled(engine, job("a"))
    assert (over.phase, over.evidence[0].code) == (Phase.FAILED, "HOST_REBOOTED")


@pytest.mark.parametrize("torn", ["empty", "half", "gone"])
def test_after_a_loss_of_power_a_claim_beside_a_torn_job_file_is_a_job_that_is_over(
    engine: LocalEngine, tmp_path: Path, torn: str
) -> None:
    invented(tmp_path, Identity(4711, 99, "another-boot"))
    file = tmp_path / "jobs/a" / layout.JOB
    text = file.read_text()
    if torn == "gone":
        file.unlink()
    else:
        file.write_text("" if torn == "empty" else text[: len(text) // 2])
    over = settled(engine, job("a"))
    assert (over.phase, over.evidence[0].code) == (Phase.FAILED, "HOST_REBOOTED")


def test_a_torn_job_file_of_this_boot_is_garbage_and_proves_nothing(
    engine: LocalEngine, tmp_path: Path
) -> None:
    invented(tmp_path, Identity(2**22 + 7, 99, procfs.boot_id()))
    (tmp_path / "jobs/a" / layout.JOB).write_text("")
    seen = engine.observe([ref(job("a"))])["a"]
    assert isinstance(seen, Unavailable)
    assert seen.cause == "GARBAGE"


def test_after_a_reboot_a_folder_without_claim_proves_nothing(
    engine: LocalEngine, tmp_path: Path
) -> None:
    invented(tmp_path, Identity(4711, 99, "another-boot"))
    (tmp_path / "jobs/a/claim").unlink()
    assert settled(engine, job("a")).evidence[0].code == "HOST_REBOOTED"


def test_a_job_of_another_host_cannot_be_judged_here(engine: LocalEngine, tmp_path: Path) -> None:
    invented(tmp_path, Identity(4711, 99, "another-boot"), host="other-machine")
    seen = engine.observe([ref(job("a"))])["a"]
    assert isinstance(seen, Unavailable)
    assert seen.cause == "OTHER_HOST"


def test_a_shim_in_another_pid_namespace_is_alive_while_it_holds_its_lock(
    engine: LocalEngine, tmp_path: Path
) -> None:
    invented(tmp_path, Identity(2**22 + 7, 99, procfs.boot_id()))
    with open(tmp_path / "jobs/a/job.json", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert status(engine, job("a")).phase is Phase.RUNNING
    assert settled(engine, job("a")).evidence[0].code == "SHIM_LOST"


@pytest.mark.req("D-05")
@pytest.mark.parametrize("wrong", [{"native_id": "1@2@boot"}, {"key": "another-key"}])
def test_a_name_with_another_identity_is_ambiguous(
    engine: LocalEngine, tmp_path: Path, wrong: dict[str, str]
) -> None:
    one = counted("a", tmp_path)
    launched_and_settled(engine, one)
    asked = JobRef("a", wrong.get("key", one.key), wrong.get("native_id", ""))
    seen = engine.observe([asked])["a"]
    assert isinstance(seen, Ambiguous)
    assert len(seen.candidates) == 2


@pytest.mark.req("D-04")
@pytest.mark.parametrize("file", ["exit.json", "job.json"])
def test_garbage_is_unavailable_and_never_absent(
    engine: LocalEngine, tmp_path: Path, file: str
) -> None:
    one = counted("a", tmp_path)
    launched_and_settled(engine, one)
    for garbage in ("", "{", "[]", '{"tasks": 1}', '{"tasks": [{}], "leftovers": []}'):
        (tmp_path / "jobs/a" / file).write_text(garbage)
        seen = engine.observe([ref(one)])["a"]
        assert isinstance(seen, Unavailable), garbage
        assert seen.cause == "GARBAGE"


def test_a_root_that_cannot_be_seen_is_unavailable(engine: LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "jobs").rmdir()
    assert isinstance(engine.observe([JobRef("a", "key")])["a"], Unavailable)


def test_a_folder_taken_away_under_a_running_job_is_not_an_absent_job(
    engine: LocalEngine, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    one = counted("a", tmp_path, f"cat {tmp_path}/go")
    reply = engine.launch(one)
    assert isinstance(reply, Launched)
    until((tmp_path / "runs").exists)
    (tmp_path / "jobs/a").rename(tmp_path / "gone")
    asked = ref(one, reply.native_id)
    seen = engine.observe([asked])["a"]
    assert isinstance(seen, Unavailable)
    assert seen.cause == "JOB_FOLDER_LOST"
    (tmp_path / "go").write_text("")
    until(lambda: isinstance(engine.observe([asked])["a"], Found))
    over = engine.observe([asked])["a"]
    assert isinstance(over, Found)
    assert over.value.evidence[0].code == "SHIM_LOST"
