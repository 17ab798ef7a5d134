"""A working folder of its own for each rank: a copy of the pinned source, gone when all went well.

Steps that run side by side must not see each other's files, and what a step leaves in its folder
must not make a later one succeed. Standard library only (the shim uses it).
"""

from __future__ import annotations

import contextlib
import os

_CHUNK_BYTES = 1 << 24


def copy_tree(source: str, target: str) -> None:
    """Copy the tree at `source` to the new folder `target`, for the owner to read and write.

    Whether a file may be executed is kept; links stay links. Raises OSError.
    """
    os.mkdir(target, 0o700)
    folders = [(source, target)]
    while folders:
        here, there = folders.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                copy = f"{there}/{entry.name}"
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), copy)
                elif entry.is_dir():
                    os.mkdir(copy, 0o700)
                    folders.append((entry.path, copy))
                elif entry.is_file():
                    _copy_file(entry.path, copy)


def _copy_file(source: str, target: str) -> None:
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        executable = os.fstat(reading).st_mode & 0o100
        mode = 0o700 if executable else 0o600
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            while os.sendfile(writing, reading, None, _CHUNK_BYTES):
                pass
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def remove_tree(top: str) -> None:
    """Remove the tree at `top` as far as that is possible; never raises OSError."""
    empty: list[str] = []
    folders = [top]
    while folders:
        here = folders.pop()
        empty.append(here)
        with contextlib.suppress(OSError), os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
    for folder in reversed(empty):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
