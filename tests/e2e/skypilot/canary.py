"""Looking for a value where it must not be: in files, in a bucket, in what processes were started
with. A value counts as found in plain text and in base64 at any offset."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from npa.observation import Found
from npa.storage import Store

LOOK_SECONDS = 0.05


def spellings(value: str) -> tuple[bytes, ...]:
    """The value, and the middle of it in base64 at each of the three offsets."""
    plain = value.encode()
    coded = [base64.b64encode(b"\0" * shift + plain)[4:-4] for shift in range(3)]
    return (plain, *coded)


def in_bytes(data: bytes, values: Mapping[str, str]) -> set[str]:
    """Names of the values that are in the data."""
    return {name for name, v in values.items() if any(s in data for s in spellings(v))}


def in_files(root: Path, values: Mapping[str, str]) -> dict[str, set[str]]:
    """Path below `root` -> names of the values in that file. Links are not followed."""
    found: dict[str, set[str]] = {}
    for path in _files(root):
        try:
            names = in_bytes(path.read_bytes(), values)
        except OSError:  # gone since
            continue
        if names:
            found[str(path.relative_to(root))] = names
    return found


def in_store(store: Store, values: Mapping[str, str]) -> dict[str, set[str]]:
    listed = store.list("")
    assert isinstance(listed, Found), listed
    found: dict[str, set[str]] = {}
    for info in listed.value:
        seen = store.get(info.key)
        assert isinstance(seen, Found), seen
        if names := in_bytes(seen.value.data, values):
            found[info.key] = names
    return found


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path


class ArgvWatch:
    """Reads the command line of every process of the machine, again and again, while it is open.

    `found` holds (user, name of the value, command line). A process that lives for less than a
    look may be missed: what is found is proof, what is not found is none for the shortest-lived.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.found: set[tuple[int, str, str]] = set()
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ArgvWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        settled: dict[str, int] = {}  # a process is read three times: it may start another program
        while not self._over.wait(LOOK_SECONDS):
            self.looks += 1
            present = {name for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
            settled = {pid: times for pid, times in settled.items() if pid in present}
            for pid in present:
                if settled.get(pid, 0) < 3:
                    settled[pid] = settled.get(pid, 0) + 1
                    self._read(Path("/proc") / pid)

    def _read(self, process: Path) -> None:
        try:
            data = (process / "cmdline").read_bytes()
            user = process.stat().st_uid
        except OSError:
            return
        for name in in_bytes(data, self.values):
            text = data.replace(b"\0", b" ").decode(errors="replace")
            self.found.add((user, name, text))
