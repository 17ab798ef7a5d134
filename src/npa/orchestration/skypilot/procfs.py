"""What /proc says of processes and listening sockets. Nothing here signals or changes anything.

A process is named by its PID together with its start ticks: the kernel uses a PID again, but not
at the same tick of one boot.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

PROC = Path("/proc")
_LISTEN = "0A"  # state of a listening socket in /proc/net/tcp (include/net/tcp_states.h)
_LOOPBACK = "0100007F"  # 127.0.0.1, as the kernel prints it on a little-endian host


def supported() -> bool:
    """Can ownership be proven on this host at all?"""
    return sys.platform == "linux" and (PROC / "self" / "stat").exists()


def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


class Process(Struct, frozen=True):
    """One live process, as it was at one look. `sid` is its session's leader."""

    pid: int
    start_ticks: int
    ppid: int
    sid: int
    uid: int

    @property
    def key(self) -> tuple[int, int]:
        return (self.pid, self.start_ticks)


def look(pid: int) -> Process | None:
    """The process, or None if there is none (a zombie is none: it holds and does nothing)."""
    folder = PROC / str(pid)
    try:
        text = (folder / "stat").read_text()
        uid = folder.stat().st_uid
    except OSError:
        return None
    words = text[text.rindex(")") + 2 :].split()  # the name in brackets may hold anything
    if words[0] in ("Z", "X"):
        return None
    return Process(pid, int(words[19]), int(words[1]), int(words[3]), uid)


def same(pid: int, start_ticks: int) -> bool:
    """Is this very process still alive?"""
    seen = look(pid)
    return seen is not None and seen.start_ticks == start_ticks


def mine() -> Iterator[Process]:
    """Every live process of this user."""
    uid = os.geteuid()
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            seen = look(int(entry.name))
            if seen is not None and seen.uid == uid:
                yield seen


def command_line(pid: int) -> tuple[str, ...]:
    """Its arguments; empty if it is gone. A process may have rewritten them."""
    try:
        data = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in data.rstrip(b"\0").split(b"\0"))


def has_variable(pid: int, name: str, value: str) -> bool:
    """Was it started with this variable in its environment?"""
    try:
        data = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return os.fsencode(f"{name}={value}") in data.split(b"\0")


def network_namespace(pid: int | str = "self") -> str:
    """The identity of its network namespace; "" if it cannot be read."""
    try:
        return str((PROC / str(pid) / "ns" / "net").readlink())
    except OSError:
        return ""


def listening_inodes(port: int) -> frozenset[str]:
    """Inodes of the sockets that listen on this port, on any address of our namespace."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTEN and int(words[1].rsplit(":", 1)[1], 16) == port:
                found.add(words[9])
    return frozenset(found)


def loopback_only(port: int) -> bool:
    """Do all listeners on this port listen on 127.0.0.1 alone?"""
    lines = (PROC / "net" / "tcp").read_text().splitlines()[1:]
    own = [line.split() for line in lines]
    addresses = {w[1].split(":")[0] for w in own if _is_listener(w, port)}
    return addresses == {_LOOPBACK}


def _is_listener(words: list[str], port: int) -> bool:
    return words[3] == _LISTEN and int(words[1].split(":")[1], 16) == port


def socket_inodes(pid: int) -> frozenset[str]:
    """Inodes of the sockets that it holds open."""
    found = set()
    try:
        for entry in (PROC / str(pid) / "fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass
    return frozenset(found)
