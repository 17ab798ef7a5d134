"""A working folder of its own for each rank: a copy of the pinned source, gone when all went well.

Steps that run side by side must not see each other's files, and what a step leaves in its folder
must not make a later one succeed. A copy that a step has not touched is as good as a new one: the
shim gives it to its next job instead. Standard library only (the shim uses it).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_CHUNK_BYTES = 1 << 24

SPARES_MAX = 16
"""Untouched copies that a shim keeps between two jobs."""
ENTRIES_MAX = 20_000
"""Above so many entries a copy is not watched: what it costs to know them outweighs a copy."""

Mark = tuple[int, int, int, int, int]
"""Of one file: inode, mode, size in bytes, and when it was modified and changed (nanoseconds)."""
Marks = dict[str, Mark]
"""By path below the copy; the copy itself is ""."""


class Places:
    """The working folders of one shim. Raises OSError where a folder cannot be made."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[str, Marks]] = {}  # source and marks by working folder
        self._spare: list[str] = []

    def make(self, source: str, target: str) -> None:
        """Make the new folder `target` like `source`: an untouched copy moves, or one is made."""
        for spare in self._spare:
            if self._used[spare][0] == source and self._move(spare, target):
                return
        copy_tree(source, target)
        self._used[target] = (source, marks_of(target))

    def _move(self, spare: str, target: str) -> bool:
        """False if somebody has taken the spare away, or touched it after all."""
        source, marks = self._used.pop(spare)
        self._spare.remove(spare)
        try:
            untouched = bool(marks) and marks_of(spare) == marks
            if untouched:
                os.rename(spare, target)
                marks[""] = _mark(os.lstat(target))  # a rename is a change of the folder
        except OSError:
            untouched = False
        if untouched:
            self._used[target] = (source, marks)
        else:
            remove_tree(spare)
        return untouched

    def release(self, place: str, *, again: bool) -> None:
        """The job is over and was good. With `again`, another may get what this one left alone."""
        _source, marks = self._used.get(place, ("", {}))
        try:
            keep = again and bool(marks) and marks_of(place) == marks
        except OSError:
            keep = False
        if keep and len(self._spare) < SPARES_MAX:
            self._spare.append(place)
        else:
            self._used.pop(place, None)
            remove_tree(place)

    def forget(self, place: str) -> None:
        """Leave `place` as it is, for people to look at."""
        self._used.pop(place, None)

    def clear(self) -> None:
        for spare in self._spare:
            remove_tree(spare)
        self._spare.clear()
        self._used.clear()


def copy_tree(source: str, target: str) -> None:
    """Copy the tree at `source` to the new folder `target`, for the owner to read and write.

    Whether a file may be executed is kept, and when it was modified; links stay links.
    Raises OSError.
    """
    os.mkdir(target, 0o700)
    folders = [(source, target)]
    for here, there in folders:
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
    for here, there in reversed(folders):  # each after what is in it
        _copy_time(os.stat(here), there)


def _copy_file(source: str, target: str) -> None:
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(reading)
        mode = 0o700 if status.st_mode & 0o100 else 0o600
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            while os.sendfile(writing, reading, None, _CHUNK_BYTES):
                pass
            _copy_time(status, writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_time(status: os.stat_result, target: str | int) -> None:
    """An old time shows a later write for sure; the clock of a file system ticks every 4 ms."""
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def marks_of(top: str) -> Marks:
    """What each entry below `top` looks like now; empty if there are too many. Raises OSError."""
    marks = {"": _mark(os.lstat(top))}
    folders = [""]
    for below in folders:
        with os.scandir(f"{top}/{below}") as entries:
            for entry in entries:
                name = f"{below}{entry.name}"
                marks[name] = _mark(os.lstat(entry.path))
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                if len(marks) > ENTRIES_MAX:
                    return {}
    return marks


def _mark(status: os.stat_result) -> Mark:
    return (
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def remove_tree(top: str) -> None:
    """Remove the tree at `top` as far as that is possible; never raises OSError.

    A step may have put a link in its place, or mounted something in it: what lies behind is not
    ours and stays.
    """
    empty: list[str] = []
    folders = [top]
    mount: bytes | None = None
    while folders:
        here = folders.pop()
        with contextlib.suppress(OSError), _opened(here) as folder:
            behind = _mount_of(folder)
            mount = behind if mount is None else mount
            if behind == mount:
                folders += _empty(here, folder)
                empty.append(here)
    for folder_path in reversed(empty):
        with contextlib.suppress(OSError):
            os.rmdir(folder_path)
    with contextlib.suppress(OSError):
        os.unlink(top)  # a link or a file that was put there


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Raises OSError, also for a link."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _mount_of(fd: int) -> bytes:
    """Names the mount through which a folder is seen: a bind mount has its device from elsewhere.

    Empty where the kernel does not say.
    """
    with open(f"/proc/self/fdinfo/{fd}", "rb") as facts:
        return next((line for line in facts if line.startswith(b"mnt_id:")), b"")


def _empty(here: str, folder: int) -> list[str]:
    """Remove the files of the open folder `here`; the folders in it. Raises OSError."""
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(f"{here}/{entry.name}")
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.name, dir_fd=folder)
    return below
