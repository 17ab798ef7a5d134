"""A look for people changes nothing: not a file, not a process, not what a driver will find."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from npa.observation import Absent, Found, Observation, Unavailable
from npa.orchestration.engine import Job, JobRef, JobStatus, LaunchRefused, Phase
from npa.orchestration.local import layout, procfs, records
from npa.orchestration.local.engine import LocalEngine
from npa.orchestration.local.records import JobFile, JobTask
from npa.orchestration.logs import LogStream
from orchestration.local.conftest import MakeEngine
from orchestration.local.kit import exact, job, lines, ref, settled, shim_pid, status, until

MANY = 20


def glance(engine: LocalEngine, of: Job) -> Observation[JobStatus]:
    """Several looks: the second must find what the first found."""
    seen = [engine.glance([ref(of)])[of.name] for _ in range(MANY)]
    assert len({type(one) for one in seen}) == 1
    return seen[-1]


def shape(root: Path) -> dict[str, tuple[int, int]]:
    """Every name below `root` with its inode and its last change."""
    return {
        str(path.relative_to(root)): (path.lstat().st_ino, path.lstat().st_mtime_ns)
        for path in (root, *sorted(root.rglob("*")))
    }


def unclaimed(tmp_path: Path, name: str, boot: str) -> None:
    """What lies there between `mkdir` and the shim's claim."""
    folder = tmp_path / "jobs" / name
    folder.mkdir(mode=0o700)
    task = JobTask(name, 1, False, 1.0, 0.0, ((),))
    file = JobFile(name, f"key-{name}", procfs.host_id(), boot, 1.0, 5.0, (task,))
    records.write_job(str(folder), file)


def test_a_job_that_nobody_has_claimed_yet_may_still_come(
    engine: LocalEngine, tmp_path: Path
) -> None:
    unclaimed(tmp_path, "a", procfs.boot_id())
    before = shape(tmp_path / "jobs")
    seen = glance(engine, job("a"))
    assert isinstance(seen, Absent)
    assert seen.late_possible
    assert shape(tmp_path / "jobs") == before
    stream = LogStream("a", 0, str(tmp_path / "jobs/a/rank-0.log"))
    chunk = engine.logs.read(ref(job("a")), stream, 0)
    assert isinstance(chunk, Found)
    assert not chunk.value.ended
    (tmp_path / "jobs/a" / layout.CLAIM).symlink_to(  # so a shim that comes now finds no seal
        layout.claim_text(layout.SHIM, str(procfs.own_identity(procfs.boot_id())))
    )


def test_a_driver_settles_what_a_glance_left_open(engine: LocalEngine, tmp_path: Path) -> None:
    unclaimed(tmp_path, "a", procfs.boot_id())
    glance(engine, job("a"))
    seen = engine.observe([ref(job("a"))])["a"]
    assert isinstance(seen, Absent)
    assert not seen.late_possible
    after = glance(engine, job("a"))  # sealed: now a glance is sure, too
    assert isinstance(after, Absent)
    assert not after.late_possible


def test_half_a_job_file_is_a_job_that_is_just_being_launched(
    engine: LocalEngine, tmp_path: Path
) -> None:
    (tmp_path / "jobs/a").mkdir()
    (tmp_path / "jobs/a" / layout.JOB).write_text('{"v": 1, "na')
    assert isinstance(glance(engine, job("a")), Absent)
    streams = engine.logs.streams(ref(job("a")))
    assert isinstance(streams, Absent)
    assert streams.late_possible


def test_a_job_without_a_folder_may_still_come(engine: LocalEngine) -> None:
    seen = glance(engine, job("nobody"))
    assert isinstance(seen, Absent)
    assert seen.late_possible


def test_orphans_of_a_lost_shim_are_told_and_left_alone(
    engine: LocalEngine, tmp_path: Path
) -> None:
    one = job("a", f"echo $$ > {tmp_path}/pid; sleep 300")
    engine.launch(one)
    until(lambda: bool(lines(tmp_path / "pid")))
    os.kill(shim_pid(status(engine, one)), signal.SIGKILL)
    until(lambda: reason_of(glance(engine, one)) != "")
    before = shape(tmp_path / "jobs")
    seen = glance(engine, one)
    assert isinstance(seen, Found)
    assert not seen.value.settled
    assert "its shim is gone" in seen.value.reason
    assert seen.value.leftovers
    assert shape(tmp_path / "jobs") == before
    orphan = procfs.stat(int(lines(tmp_path / "pid")[0]))
    assert orphan is not None
    assert orphan.alive
    assert settled(engine, one).evidence[0].code == "SHIM_LOST"


def reason_of(seen: Observation[JobStatus]) -> str:
    return seen.value.reason if isinstance(seen, Found) else ""


def test_the_loss_of_a_job_is_not_recorded_by_a_glance(engine: LocalEngine, tmp_path: Path) -> None:
    one = job("a", f"echo $$ > {tmp_path}/pid; kill -9 $PPID; exit 0")
    engine.launch(one)
    until(lambda: isinstance(seen := glance(engine, one), Found) and seen.value.settled)
    seen = glance(engine, one)
    assert isinstance(seen, Found)
    assert seen.value.evidence[0].code == "SHIM_LOST"
    assert not (tmp_path / "jobs/a" / layout.RECORD).exists()
    assert status(engine, one).evidence[0].code == "SHIM_LOST"
    assert (tmp_path / "jobs/a" / layout.RECORD).exists()


def test_a_reboot_is_told_and_not_recorded(engine: LocalEngine, tmp_path: Path) -> None:
    unclaimed(tmp_path, "a", "another-boot")
    before = shape(tmp_path / "jobs")
    seen = glance(engine, job("a"))
    assert isinstance(seen, Found)
    assert seen.value.evidence[0].code == "HOST_REBOOTED"
    assert shape(tmp_path / "jobs") == before


def test_a_glance_agrees_with_a_driver_on_what_is_settled(
    engine: LocalEngine, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    good, bad, live = job("good", "true"), job("bad", "exit 3"), job("live", f"cat {tmp_path}/go")
    for one in (good, bad, live):
        engine.launch(one)
    settled(engine, good)
    settled(engine, bad)
    for one, phase in ((good, Phase.SUCCEEDED), (bad, Phase.FAILED), (live, Phase.RUNNING)):
        seen = glance(engine, one)
        assert isinstance(seen, Found)
        assert seen.value.phase is phase
        assert seen.value.exact.native_id == exact(engine, one).native_id
    (tmp_path / "go").write_text("")
    settled(engine, live)


@pytest.mark.req("D-04")
def test_what_a_glance_cannot_see_is_unavailable(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine()
    (tmp_path / "jobs").rmdir()
    seen = engine.glance([JobRef("a", "key"), JobRef("../up", "key")])
    assert isinstance(seen["a"], Unavailable)
    assert isinstance(seen["../up"], Unavailable)


def test_a_root_that_is_gone_proves_nothing_and_is_not_made_again(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine()
    one = job("one", "sleep 60")
    engine.launch(one)
    jobs = tmp_path / "jobs"
    jobs.rename(tmp_path / "away")
    for looker in (engine, make_engine()):
        for look in (looker.observe, looker.glance):
            seen = look([ref(one)])[one.name]
            assert isinstance(seen, Unavailable | Found), seen
            if isinstance(seen, Unavailable):
                assert seen.cause == "JOBS_FOLDER_GONE"
    assert isinstance(engine.launch(job("two", "true")), LaunchRefused)
    assert not jobs.exists()
    (tmp_path / "away").rename(jobs)
    engine.cancel(exact(engine, one))
    assert settled(engine, one).phase is Phase.CANCELLED


def test_a_job_whose_folder_is_gone_is_not_absent_while_a_process_of_it_lives(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine()
    one = job("one", f"touch {tmp_path}/up; sleep 60")
    engine.launch(one)
    until((tmp_path / "up").exists, "the command")
    (tmp_path / "jobs" / "one").rename(tmp_path / "away")
    seen = make_engine().observe([ref(one)])[one.name]  # another driver, which knows no native ID
    assert isinstance(seen, Unavailable)
    assert seen.cause == "JOB_FOLDER_LOST"
    (tmp_path / "away").rename(tmp_path / "jobs" / "one")
    engine.cancel(exact(engine, one))
    assert settled(engine, one).phase is Phase.CANCELLED
