"""Descriptors, processes and disk run out: each is typed, and nothing is lost."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from npa.observation import Absent, Found, Unavailable
from npa.orchestration.engine import (
    Launched,
    LaunchRefused,
    Phase,
)
from npa.orchestration.local.engine import LocalEngine
from orchestration.local.conftest import MakeEngine
from orchestration.local.kit import (
    counted,
    job,
    launched_and_settled,
    lines,
    ref,
    settled,
    status,
    until,
)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Every new descriptor fails with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fd = os.open("/dev/null", os.O_RDONLY)
    os.close(fd)  # the lowest free number
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptor_for_a_launch_is_typed_and_loses_nothing(
    engine: LocalEngine, tmp_path: Path
) -> None:
    launched_and_settled(engine, counted("a", tmp_path))
    with no_descriptors():
        reply = engine.launch(counted("b", tmp_path))
    assert isinstance(reply, LaunchRefused)
    assert reply.evidence.code == "TOO_MANY_FILES"
    assert isinstance(engine.observe([ref(job("b"))])["b"], Absent)
    assert launched_and_settled(engine, counted("c", tmp_path)).phase is Phase.SUCCEEDED
    assert lines(tmp_path / "runs") == ["a", "c"]


@pytest.mark.req("D-04")
def test_no_descriptor_for_a_look_is_unavailable(engine: LocalEngine, tmp_path: Path) -> None:
    one = counted("a", tmp_path)
    launched_and_settled(engine, one)
    with no_descriptors():
        seen = engine.observe([ref(one)])["a"]
    assert isinstance(seen, Unavailable)
    assert seen.cause == "TOO_MANY_FILES"
    assert status(engine, one).phase is Phase.SUCCEEDED


def test_a_zygote_that_cannot_fork_says_so_and_goes_on(tmp_path: Path) -> None:
    code = """
import errno, os, socket, sys, threading
from npa.orchestration.local import launcher, zygote
real, count = os.fork, [0]
def fork():
    count[0] += 1
    if count[0] == 4:
        return real()
    raise OSError(errno.EAGAIN, "no")
os.fork = fork
def shim(channel, taken):
    data, fds, *_ = socket.recv_fds(channel, 16, 2)
    os.write(fds[1], b"foreign")
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
threading.Thread(target=zygote.serve, args=[theirs, shim], daemon=True).start()
one = launcher.Launcher(".", {})
one._channel = ours
print(one.launch({}), one.launch({}), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["NotStarted(errno=11, stage='fork')", "Foreign()"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """128 KiB of tmpfs at the jobs root."""
    root = tmp_path / "jobs"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(root)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs privileges that this user does not have")
    yield root
    subprocess.run(["umount", "-l", str(root)], check=True)


def fill(root: Path) -> None:
    subprocess.run(["dd", "if=/dev/zero", f"of={root}/fill"], capture_output=True)
    with pytest.raises(OSError, match="No space"):
        (root / "more").write_bytes(b"x" * 4096)


def test_a_full_disk_refuses_a_launch(
    tiny_disk: Path, make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine()
    fill(tiny_disk)
    reply = engine.launch(counted("a", tmp_path))
    assert isinstance(reply, LaunchRefused)
    assert reply.evidence.code == "NO_SPACE"
    (tiny_disk / "fill").unlink()
    assert launched_and_settled(engine, counted("a", tmp_path)).phase is Phase.SUCCEEDED
    assert lines(tmp_path / "runs") == ["a"]
    engine.close()


def test_a_disk_that_fills_up_does_not_lose_the_exit_record(
    tiny_disk: Path, make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine()
    one = counted("a", tmp_path, f"cat /dev/zero > {tiny_disk}/fill; exit 6")
    engine.launch(one)
    over = settled(engine, one)
    assert over.members[0].evidence[0].exit_code == 6
    assert len(json.loads((tiny_disk / "a/exit.json").read_text())["tasks"]) == 1
    engine.close()


def test_a_shim_without_room_for_its_record_waits_for_room(
    tiny_disk: Path, make_engine: MakeEngine, tmp_path: Path
) -> None:
    """Its reserve is taken away: it stays alive, and the job is not over until it has written."""
    engine = make_engine()
    one = counted(
        "a",
        tmp_path,
        f"""while [ ! -e {tiny_disk}/a/exit.spare ]; do sleep 0.01; done
        rm {tiny_disk}/a/exit.spare; cat /dev/zero > {tiny_disk}/fill
        echo full > {tmp_path}/full""",
    )
    engine.launch(one)
    until(lambda: bool(lines(tmp_path / "full")))
    assert status(engine, one).phase is Phase.RUNNING
    (tiny_disk / "fill").unlink()
    assert settled(engine, one).phase is Phase.SUCCEEDED
    engine.close()


def test_two_hundred_jobs_at_once(engine: LocalEngine, tmp_path: Path) -> None:
    script = f"while [ ! -e {tmp_path}/end ]; do sleep 0.2; done"
    jobs = [counted(f"job-{number}", tmp_path, script) for number in range(200)]
    assert all(isinstance(engine.launch(one), Launched) for one in jobs)
    seen = engine.observe([ref(one) for one in jobs])
    assert {found.value.phase for found in seen.values() if isinstance(found, Found)} == {
        Phase.RUNNING
    }
    assert len(seen) == 200
    (tmp_path / "end").touch()
    assert {settled(engine, one).phase for one in jobs} == {Phase.SUCCEEDED}
    assert sorted(lines(tmp_path / "runs")) == sorted(one.name for one in jobs)


def test_without_room_for_a_record_no_payload_starts(
    tiny_disk: Path, make_engine: MakeEngine, tmp_path: Path
) -> None:
    """There is room for what the driver writes, and none for what the shim needs at the end."""
    engine = make_engine()
    fill(tiny_disk)
    with open(tiny_disk / "fill", "r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 4096)
    reply = engine.launch(counted("a", tmp_path))
    assert isinstance(reply, LaunchRefused)
    assert reply.evidence.code == "NO_SPACE"
    assert lines(tmp_path / "runs") == []
    engine.close()
