"""A folder beside the kept logs for what one reader copies: it goes when its reader does.

A reader holds a lock on its folder. The lock of one that was killed is gone, and so its folder is
removed by the next reader that comes.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "tail-"


class Aside:
    """One reader's folder. `make` it before it is used; nothing is made of it until then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1

    def make(self) -> None:
        """Make the folder, if it is not there yet, and hold it. Raises OSError."""
        if self._lock < 0:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            sweep(self.path.parent)
            self.path.mkdir(mode=0o700)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@contextmanager
def aside(folder: Path) -> Iterator[Aside]:
    """A place of one's own in `folder`, removed at the end, however that comes."""
    own = Aside(folder / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield own
    finally:
        own.remove()


def sweep(folder: Path) -> None:
    """Remove what readers that are gone have left in `folder`."""
    for leftover in folder.glob(f"{PREFIX}*"):
        try:
            lock = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # its reader has just removed it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its reader lives
            continue
        else:
            shutil.rmtree(leftover, ignore_errors=True)
        finally:
            os.close(lock)
