"""The shim's files: the exit record, written so that a full disk cannot lose it.

The room for the record is reserved before the job is claimed; at the end it is filled and renamed.
If even that fails, the shim stays alive and tries again each second: a live shim loses nothing.
Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping

from npa.orchestration.local import layout

RESERVED_BYTES = 4096
RETRY_SECONDS = 1.0


def oom_file() -> str:
    """The file that counts kills by the memory controller for our control group; "" if none."""
    try:
        with open("/proc/self/cgroup") as lines:
            groups = [line.rstrip("\n").split(":", 2) for line in lines]
    except OSError:
        return ""
    for _number, controllers, path in groups:
        if controllers == "memory":
            file = f"/sys/fs/cgroup/memory{path}/memory.oom_control"
        elif controllers == "":
            file = f"/sys/fs/cgroup{path}/memory.events"
        else:
            continue
        if os.access(file, os.R_OK):
            return file
    return ""


def oom_kills(file: str) -> int | None:
    """How often the kernel killed for want of memory in the group; None if it cannot be known."""
    if not file:
        return None
    try:
        with open(file) as lines:
            for line in lines:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    except (OSError, ValueError):
        return None
    return None


class RecordFile:
    """`exit.json` and `progress.json` of one job folder."""

    def __init__(self, folder: str, counter: str) -> None:
        self._folder = folder
        self._counter = counter
        self._kills: int | None = None
        self._fd = -1

    def oom_kills_since(self) -> int | None:
        if self._kills is None:
            return None
        now = oom_kills(self._counter)
        return None if now is None else now - self._kills

    def reserve(self) -> None:
        """Take the room for the record. Raises OSError if there is none: then nothing may start."""
        self._open()
        try:
            os.posix_fallocate(self._fd, 0, RESERVED_BYTES)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise

    def watch_memory(self) -> None:
        """Remember how often the kernel has killed so far."""
        self._kills = oom_kills(self._counter)

    def write(self, facts: Mapping[str, object]) -> bool:
        """Make the record final. Returns when it is; False if the folder itself was taken away."""
        data = json.dumps(facts).encode().ljust(RESERVED_BYTES)  # no truncation: it costs
        while True:
            try:
                self._open()
                self._fill(data)
                os.rename(self._path(layout.SPARE), self._path(layout.RECORD))
            except OSError:
                self._close()
                if not os.path.isdir(self._folder):
                    return False
                time.sleep(RETRY_SECONDS)
            else:
                self._close()
                return True

    def publish(self, facts: Mapping[str, object]) -> None:
        """Replace `progress.json`; a failure is ignored, the next one may work."""
        try:
            fd = os.open(self._path("progress.tmp"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(fd, json.dumps(facts).encode())
            finally:
                os.close(fd)
            os.rename(self._path("progress.tmp"), self._path(layout.PROGRESS))
        except OSError:
            return

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = os.open(
                self._path(layout.SPARE), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
            )

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _fill(self, data: bytes) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], done)
