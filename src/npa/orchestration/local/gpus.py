"""GPUs across the runs of one user: a lock file for each GPU, held by the shim while its job lives.

The kernel drops a lock with its holder, so nothing has to be cleaned up after a crash. Standard
library only (the shim uses it).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable

from npa.orchestration.local import procfs

LOOKS_MAX, LOOK_SECONDS = 5, 0.002


def lock_path(folder: str, index: int) -> str:
    return f"{folder}/gpu-{index}.lock"


def take(folder: str, indices: Iterable[int]) -> None:
    """Hold the locks until this process ends. BlockingIOError if another job has one."""
    for index in sorted(indices):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(lock_path(folder, index), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for _ in range(LOOKS_MAX):
            try:
                procfs.try_lock(fd, fcntl.LOCK_EX)
                break
            except BlockingIOError:
                time.sleep(LOOK_SECONDS)  # perhaps somebody only looks (see `held`)
        else:
            procfs.try_lock(fd, fcntl.LOCK_EX)


def held(folder: str, indices: Iterable[int]) -> frozenset[int]:
    """Which of these a living job holds, of whatever run. Raises OSError if it cannot be known."""
    found = set()
    for index in indices:
        try:
            fd = os.open(lock_path(folder, index), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            procfs.try_lock(fd, fcntl.LOCK_SH)
        except BlockingIOError:
            found.add(index)
        finally:
            os.close(fd)
    return frozenset(found)
