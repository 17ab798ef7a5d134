"""A folder as a store: whole or not at all, private, and honest about what the system refuses."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from npa.errors import StoreFull
from npa.observation import Absent, Found, Unavailable
from npa.storage import CreateOutcome, Store, local, open_store, path_to_uri


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(path_to_uri(tmp_path / "root"))


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system on which hardening may wait, whatever this machine has."""
    monkeypatch.setattr(local, "keeps_order", lambda _folder: True)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_durable_create_syncs_the_file_before_its_name_and_the_folder_after(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("j/1", b"x")  # the folder exists from here on
    calls: list[str] = []
    fsync, link = os.fsync, os.link

    def spy_fsync(fd: int) -> None:
        calls.append("sync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync file")
        fsync(fd)

    def spy_link(source: str, target: str) -> None:
        calls.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "link", spy_link)
    store.create("j/2", b"x", durable=True)
    assert calls == ["sync file", "link", "sync folder"]


@pytest.mark.usefixtures("ordered")
def test_what_may_wait_is_made_durable_by_harden_and_only_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("j/1", b"x")
    calls: list[str] = []
    fsync = os.fsync

    def spy(fd: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", spy)
    assert store.create("j/2", b"x", durable=True, later=True) is CreateOutcome.CREATED
    assert calls == []
    assert store.harden() is None
    assert store.harden() is None
    assert calls == ["file"]
    assert store.harden("j/2") is None  # somebody else's, for all we know
    assert calls == ["file", "file", "folder"]


@pytest.mark.usefixtures("ordered")
def test_a_disk_that_fails_to_harden_gets_the_bytes_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports a failed write to one fsync; the next one would call it done."""
    store.create("j/1", b"x")
    faults = [errno.ENOSPC, errno.EIO, 0, errno.EIO]  # the last comes first
    synced: list[bytes] = []
    fsync = os.fsync

    def spy(fd: int) -> None:
        if faults and (fault := faults.pop()):
            raise OSError(fault, "the disk")
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            synced.append(Path(f"/proc/self/fd/{fd}").read_bytes())
        fsync(fd)

    store.create("j/2", b"frame", durable=True, later=True)
    monkeypatch.setattr(os, "fsync", spy)
    answers = [store.harden() for _ in range(4)]
    assert [a is None for a in answers] == [False, True, True, True]
    assert isinstance(answers[0], Unavailable)
    assert answers[0].cause == "io_error"
    assert b"frame" in synced
    assert names(tmp_path / "root") == ["1", "2"]


@pytest.mark.usefixtures("ordered")
def test_a_name_that_another_writer_took_is_not_hardened_as_ours(
    store: Store, tmp_path: Path
) -> None:
    place = tmp_path / "root/j/1"
    store.create("j/1", b"mine", durable=True, later=True)
    place.write_bytes(b"")  # as another machine may see it
    other = open_store(path_to_uri(tmp_path / "root"))
    assert other.create("j/1", b"theirs", durable=True) is CreateOutcome.CREATED
    answer = store.harden()
    assert isinstance(answer, Unavailable)
    assert answer.cause == "taken_over"
    assert place.read_bytes() == b"theirs"


def test_what_is_longer_than_a_page_or_on_another_file_system_is_durable_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), fsync(fd))[1])
    store.create("j/0", b"x")
    monkeypatch.setattr(local, "keeps_order", lambda folder: not folder.endswith("/net"))
    store.create("j/1", b"x" * 4097, durable=True, later=True)
    assert len(synced) == 2
    store.create("net/0", b"x")
    store.create("net/1", b"x", durable=True, later=True)
    assert len(synced) == 4
    assert store.harden() is None
    assert len(synced) == 4


@pytest.mark.parametrize("blank", [b"", bytes(700)])
def test_a_name_with_nothing_behind_it_is_free_for_one_writer(
    store: Store, tmp_path: Path, blank: bytes
) -> None:
    store.create("j/1", b"x", durable=True)
    (tmp_path / "root/j/1").write_bytes(blank)
    assert store.create("j/1", b"first", durable=True, later=True) is CreateOutcome.CREATED
    assert store.create("j/1", b"second", durable=True) is CreateOutcome.OTHER
    assert (tmp_path / "root/j/1").read_bytes() == b"first"
    assert names(tmp_path / "root") == ["1"]


def test_finding_my_own_bytes_makes_them_durable_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("j/1", b"x")
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), fsync(fd))[1])
    assert store.create("j/1", b"x", durable=True) is CreateOutcome.MINE
    assert len(synced) == 3  # the temporary, then the file and the folder that were found


@pytest.mark.parametrize("moment", ["link", "fsync"])
def test_a_writer_killed_in_the_middle_leaves_no_object(tmp_path: Path, moment: str) -> None:
    uri = path_to_uri(tmp_path / "root")
    program = (
        "import os, signal\n"
        "from npa.storage import open_store\n"
        f"os.{moment} = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"open_store({uri!r}).create('frame', b'half', durable=True)\n"
    )
    child = subprocess.run([sys.executable, "-c", program], check=False)
    assert child.returncode == -signal.SIGKILL
    store = open_store(uri)
    listing = store.list()
    assert isinstance(listing, Found)
    assert listing.value == ()
    assert isinstance(store.get("frame"), Absent)
    assert store.create("frame", b"whole", durable=True) is CreateOutcome.CREATED


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_no_space_is_store_full_and_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(StoreFull) as caught:
            store.create("a/frame", b"data", durable=True)
    assert caught.value.not_done
    assert names(tmp_path) == []
    assert store.create("a/frame", b"data", durable=True) is CreateOutcome.CREATED


def test_running_out_of_file_descriptors_is_unavailable(store: Store) -> None:
    store.put("key", b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        answers = [store.create("new", b"x"), store.get("key"), store.list()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for answer in answers:
        assert isinstance(answer, Unavailable)
        assert answer.cause == "emfile"


def test_an_unreadable_folder_is_unavailable_not_empty(store: Store, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads every folder")
    store.put("a/b", b"x")
    (tmp_path / "root" / "a").chmod(0)
    try:
        answers = [store.list(), store.get("a/b"), store.head("a/b")]
    finally:
        (tmp_path / "root" / "a").chmod(0o700)
    for answer in answers:
        assert isinstance(answer, Unavailable)
        assert answer.cause == "forbidden"


def test_a_failing_disk_is_unavailable_not_absent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **named: object) -> None:
        raise OSError(errno.EIO, "broken")

    for name in ("open", "stat", "scandir"):
        monkeypatch.setattr(os, name, fail)
    for answer in (store.get("a"), store.head("a"), store.list()):
        assert isinstance(answer, Unavailable)
        assert answer.cause == "io_error"


def test_files_and_folders_are_private(store: Store, tmp_path: Path) -> None:
    store.create("a/b/one", b"x", durable=True)
    store.put("a/b/two", b"x")
    for path in (tmp_path / "root").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    assert (tmp_path / "root").stat().st_mode & 0o777 == 0o700


def test_links_are_followed_but_not_round_in_a_circle(store: Store, tmp_path: Path) -> None:
    store.put("run/step-1/model", b"x")
    (tmp_path / "root" / "run" / "latest").symlink_to("step-1")
    (tmp_path / "root" / "run" / "loop").symlink_to(".")
    (tmp_path / "root" / "run" / "dangling").symlink_to("nowhere")
    answer = store.list("run")
    assert isinstance(answer, Found)
    assert [info.key for info in answer.value] == ["run/latest/model", "run/step-1/model"]


def test_half_written_files_are_not_listed(store: Store, tmp_path: Path) -> None:
    store.put("a", b"x")
    (tmp_path / "root" / "a#4711").write_bytes(b"half")
    answer = store.list()
    assert isinstance(answer, Found)
    assert [info.key for info in answer.value] == ["a"]


def test_a_folder_with_durable_objects_that_is_taken_away_is_not_begun_anew(
    store: Store, tmp_path: Path
) -> None:
    store.create("j/1", b"x", durable=True)
    (tmp_path / "root" / "j").rename(tmp_path / "away")
    answer = store.create("j/2", b"y", durable=True)
    assert isinstance(answer, Unavailable)
    assert answer.cause == "folder_gone"
    assert not (tmp_path / "root" / "j").exists()
    (tmp_path / "away").rename(tmp_path / "root" / "j")
    assert store.create("j/2", b"y", durable=True) is CreateOutcome.CREATED
    assert names(tmp_path / "root") == ["1", "2"]
