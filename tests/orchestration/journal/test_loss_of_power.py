"""A machine that loses power at any moment: what was counted on is there, and the chain goes on.

The disk of the test keeps what was fsynced and, of the rest, whatever is drawn: a name or none, and
behind it all, nothing or zeros.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import FOLDER, Appended, Journal
from npa.storage import local as under_test
from npa.storage import open_store, path_to_uri

NOW = 1_000.0
WRITERS = ("a", "b")
OPS = ("later", "durable", "harden", "read", "power")


class Disk:
    """What would survive, by inode and by folder. `journal` is the folder that is watched."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = root / FOLDER
        self.data: dict[int, bytes] = {}
        self.names: dict[str, int] = {}

    def made(self, fd: int) -> None:
        self.data.pop(os.fstat(fd).st_ino, None)

    def fsync(self, fd: int) -> None:
        status = os.fstat(fd)
        if not stat.S_ISDIR(status.st_mode):
            self.data[status.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()
            # a file system that keeps order takes the file's names along
            self.names |= {n: i for n, i in self.present().items() if i == status.st_ino}
        elif os.path.samestat(status, self.journal.stat()):
            self.names = self.present()

    def present(self) -> dict[str, int]:
        return {p.name: p.stat().st_ino for p in self.journal.iterdir()}

    def lose_power(self, draw: st.DataObject) -> None:
        survivors: dict[str, bytes] = {}
        for name, inode in sorted(self.present().items()):
            full = (self.journal / name).read_bytes()
            if self.names.get(name) != inode and not draw.draw(
                st.booleans(), label=f"{name} stays"
            ):
                continue
            kept = self.data.get(inode)
            if kept is None:
                kept = draw.draw(st.sampled_from([full, b"", bytes(len(full))]), label=name)
            survivors[name] = kept
        for path in self.journal.iterdir():
            path.unlink()
        self.data.clear()
        for name, data in survivors.items():
            (self.journal / name).write_bytes(data)
            self.data[(self.journal / name).stat().st_ino] = data
        self.names = self.present()


@contextmanager
def watched(disk: Disk) -> Iterator[None]:
    make = under_test._new

    def new(path: str) -> int:
        fd = make(path)
        disk.made(fd)
        return fd

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", disk.fsync)
        patch.setattr(under_test, "_new", new)
        patch.setattr(under_test, "keeps_order", lambda _folder: True)
        yield


@pytest.mark.req("D-01")
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_was_counted_on_survives_and_the_chain_goes_on(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder))
        disk.journal.mkdir(parents=True)
        with watched(disk):
            play(disk, data)


def play(disk: Disk, draw: st.DataObject) -> None:
    def opened(by: str) -> Journal:
        journal = Journal(open_store(path_to_uri(disk.root)), lambda: NOW, by=by)
        journal.read()
        return journal

    writers = {by: opened(by) for by in WRITERS}
    written: list[str] = []  # digests of the chain as it stands
    hardened = 0  # how many of them somebody counted on
    for number in range(draw.draw(st.integers(1, 14), label="steps")):
        op = draw.draw(st.sampled_from(OPS), label="op")
        by = draw.draw(st.sampled_from(WRITERS), label="by")
        journal = writers[by]
        match op:
            case "later" | "durable":
                entry = e.Held("TEST", f"{number}", "", "")
                result = journal.append([entry], epoch=0, later=op == "later")
                if isinstance(result, Appended):
                    del written[result.frame.n - 1 :]
                    written.append(result.frame.digest)
                    # whoever writes counts on all that it has read
                    hardened = result.frame.n - (op == "later")
            case "harden":
                mine = journal.head
                assert journal.harden() is None
                hardened = max(hardened, mine if writer_of_head(disk, mine) == by else 0)
            case "read":
                journal.refresh()
            case _:
                disk.lose_power(draw)
                writers = {by: opened(by) for by in WRITERS}
        after = opened("reader")
        chain = [f.digest for f in frames(disk)]
        assert chain == written[: len(chain)]
        assert len(chain) >= hardened
        del written[after.head :]


def frames(disk: Disk) -> tuple[object, ...]:
    return Journal(open_store(path_to_uri(disk.root)), lambda: NOW).read()


def writer_of_head(disk: Disk, n: int) -> str:
    found = frames(disk)
    return found[n - 1].by if 0 < n <= len(found) else ""  # type: ignore[attr-defined]
