"""This machine and its processes: identities that survive the reuse of a pid and a reboot.

A process is (pid, start ticks, boot id): a pid comes again, a start time within one boot does not.
Linux only, because the truth is read from /proc.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from npa.errors import EngineError

# /proc/<pid>/stat, proc(5): fields after the command's closing bracket, counted from 3.
_STATE, _START_TICKS = 3 - 3, 22 - 3
_DEAD_STATES = "ZXx"
_STOPPED_STATES = "Tt"


class ProcessIdentity(Struct, frozen=True):
    """One process for ever: `start_ticks` are clock ticks after the boot `boot_id`."""

    pid: int
    start_ticks: int
    boot_id: str


class Host(Struct, frozen=True):
    name: str
    boot_id: str


def this_host() -> Host:
    """The machine's name and the identity of its present boot. Raises EngineError."""
    return Host(os.uname().nodename, boot_id())


def boot_id() -> str:
    """The random identity of this boot. Raises EngineError where there is no /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError as error:
        raise EngineError(
            "this machine has no Linux /proc, which live runs need",
            not_done="nothing was started",
            hint="validate, plan and render work everywhere; run on a Linux host",
        ) from error


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a live process; None if there is none (a zombie has ended).

    Raises OSError if /proc could not be read: that says nothing about the process.
    """
    seen = _stat(pid)
    if seen is None:
        return None
    state, ticks = seen
    return None if state in _DEAD_STATES else ProcessIdentity(pid, ticks, boot_id())


def own_identity() -> ProcessIdentity:
    """The identity of this process."""
    identity = identity_of(os.getpid())
    if identity is None:
        raise EngineError("this process does not find itself in /proc")
    return identity


def is_alive(pid: int, start_ticks: int, boot_id: str) -> bool:
    """Does exactly this process still run on this machine? Raises OSError if it cannot see."""
    return identity_of(pid) == ProcessIdentity(pid, start_ticks, boot_id)


def is_stopped(pid: int) -> bool:
    """Is the process held by a signal (SIGSTOP, Ctrl-Z) or a debugger? Raises OSError."""
    seen = _stat(pid)
    return seen is not None and seen[0] in _STOPPED_STATES


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        text = Path(f"/proc/{pid:d}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command stands in brackets and may itself hold brackets and blanks.
    fields = text.rpartition(")")[2].split()
    return fields[_STATE], int(fields[_START_TICKS])
