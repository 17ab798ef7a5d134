"""Which file system a folder is on, for what must not be assumed of every one."""

from __future__ import annotations

import os
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")  # proc(5)
_ORDERED = frozenset({"ext3", "ext4", "xfs", "tmpfs"})


def keeps_order(folder: str, mounts: Path = _MOUNTS) -> bool:
    """May a name be made durable after its first use there?

    True for the local file systems that log in order: on a loss of power they leave of a small new
    file all or nothing behind its name, an fsync of the file takes the names that it got before
    along (its link count and its name are one transaction), and no other machine sees its pages
    late. Otherwise, or if it cannot
    be told (network file systems, layered ones, containers' own), False.
    """
    try:
        device = os.stat(folder).st_dev  # noqa: PTH116 - a string from the hot path
        lines = mounts.read_text().splitlines()
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [number]:
            kind, _, options = after.partition(" ")
            return kind in _ORDERED and "data=writeback" not in options
    return False
