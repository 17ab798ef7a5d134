"""Processes as `/proc` shows them: identity, descent, and signals that cannot hit a stranger.

A pid alone names nothing: it is reused. A process is named by its pid, its start time in clock
ticks since boot, and the boot. Standard library only (the shim uses it).
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of `/proc/<pid>/stat` that we use. `ticks` is the start time since boot."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    ticks: int

    @property
    def alive(self) -> bool:
        return self.state not in ("Z", "X", "x")


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot, for ever. As text: `<pid>@<ticks>@<boot id>`."""

    pid: int
    ticks: int
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}@{self.ticks}@{self.boot}"

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Raises ValueError if the text is not an identity."""
        pid, ticks, boot = text.split("@")
        if not boot:
            raise ValueError("no boot in identity")
        return cls(int(pid), int(ticks), boot)


def read_text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536).decode("utf-8", "replace")
    finally:
        os.close(fd)


def boot_id() -> str:
    """Raises OSError where there is no such file."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def host_id() -> str:
    """The machine, across boots and changes of its name."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            if text := read_text(path).strip():
                return text
        except OSError:
            continue
    return os.uname().nodename


def stat(pid: int) -> Stat | None:
    """None: the kernel says that there is no such process. Raises OSError if it could not look."""
    try:
        text = read_text(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    head, _, tail = text.rpartition(")")
    comm = head.partition("(")[2]
    rest = tail.split()
    return Stat(pid, comm, rest[0], int(rest[1]), int(rest[2]), int(rest[3]), ticks=int(rest[19]))


def own_identity(boot: str) -> Identity:
    me = stat(os.getpid())
    if me is None:
        raise FileNotFoundError("/proc does not show this process")
    return Identity(me.pid, me.ticks, boot)


def is_alive(identity: Identity) -> bool:
    """Does this very process live, as seen from this pid namespace? Raises OSError."""
    found = stat(identity.pid)
    return found is not None and found.ticks == identity.ticks and found.alive


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int) -> list[int]:
    """Children of all threads of `pid`; empty if it is gone."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return found
    for thread in threads:
        try:
            found += map(int, read_text(f"/proc/{pid}/task/{thread}/children").split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _children_by_scan() -> Callable[[int], list[int]]:
    """For kernels without `children` files: one pass over all processes."""
    table: dict[int, list[int]] = {}
    for pid in all_pids():
        if (found := stat(pid)) is not None:
            table.setdefault(found.ppid, []).append(pid)
    return lambda pid: table.get(pid, [])


def descendants(roots: list[int]) -> list[Stat]:
    """Everything below `roots` (without them) that lives, parents first."""
    me = os.getpid()
    has_files = os.path.exists(f"/proc/{me}/task/{me}/children")
    below = children if has_files else _children_by_scan()
    found: list[Stat] = []
    seen = set(roots)
    queue = list(roots)
    while queue:
        parent = queue.pop(0)
        for pid in below(parent):
            if pid in seen:
                continue
            seen.add(pid)
            queue.append(pid)
            if (one := stat(pid)) is not None and one.alive:
                found.append(one)
    return found


def has_marker(pid: int, marker: bytes) -> bool:
    """Is `NAME=value` in the environment with which the process was started?"""
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    data = b""
    try:
        while chunk := os.read(fd, 1 << 16):
            data += chunk
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return marker in data.split(b"\0")


def writes_into(pid: int, folder: str) -> bool:
    """Is its standard output or error a file of this folder?"""
    for fd in (1, 2):
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(folder + "/"):
                return True
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return False


def processes_of(leader: Identity, marker: bytes, folder: str) -> Iterator[Stat]:
    """What lives of the job whose shim was `leader`, once the shim is gone.

    Proof is the marker in the environment, or membership of the shim's session together with
    output into the job's folder (a session number alone can be reused). Raises OSError if it could
    not look.
    """
    me = os.getpid()
    for pid in all_pids():
        one = None if pid == me else stat(pid)
        if one is None or not one.alive or (pid == leader.pid and one.ticks == leader.ticks):
            continue
        in_session = one.session == leader.pid and one.ticks >= leader.ticks
        if has_marker(pid, marker) or (in_session and writes_into(pid, folder)):
            yield one


def try_lock(fd: int, kind: int) -> bool:
    """Take a lock at once or raise BlockingIOError; False where there are no locks."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        return False
    return True


def lock_held(path: str) -> bool | None:
    """Does somebody hold the file's lock exclusively? None where there are no locks."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return False if try_lock(fd, fcntl.LOCK_SH) else None
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def send(one: Stat, signals: tuple[int, ...]) -> bool:
    """Signal exactly this process; False if it is gone (or somebody else has its pid now).

    The pidfd is opened first and compared afterwards: a process that ended between the look and
    the signal is never confused with the next owner of its number.
    """
    try:
        fd = os.pidfd_open(one.pid)
    except ProcessLookupError:
        return False
    try:
        now = stat(one.pid)
        if now is None or now.ticks != one.ticks:
            return False
        for number in signals:
            signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True
