"""A folder as a store: an object appears whole under its name or not at all, even on power loss.

Written by hand because durability is the point: the client library's local store does not fsync.
A create writes `<name>#<digits>`, fsyncs it, hard-links it to its name (which fails if the name is
taken) and fsyncs the folder. With `later` this is left to `harden`: until then a loss of power may
take the name away again, or what is behind it. A name with nothing behind it is free. Only files of
one page wait, on file systems that keep order (`mounts`): so none is ever torn, and one fsync of
the file makes its name durable, too.
"""
# Paths stay strings here: a journal frame costs half a millisecond in all.
# ruff: noqa: PTH102, PTH105, PTH108, PTH112, PTH116, PTH120

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from npa.storage.faults import Exists, Fault, Missing, fault_of_os_error
from npa.storage.keys import is_temporary
from npa.storage.mounts import keeps_order
from npa.storage.seam import Blob, ObjectInfo, is_blank

PAGE_BYTES = 4096
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
_serial = itertools.count(1)


class LocalBackend:
    """Objects as files below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = str(root).rstrip("/")
        self._durable: set[str] = set()  # folders that hold a durable object of ours
        self._soft: dict[str, tuple[int, bytes]] = {}  # what `harden` owes: by path, open
        self._ordered: dict[str, bool] = {}  # by folder: may hardening wait there?

    def get(self, key: str) -> Blob:
        with _looking():
            fd = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
            with open(fd, "rb", buffering=0) as file:
                data = file.read()
                return Blob(data, _etag(os.fstat(fd)))

    def head(self, key: str) -> ObjectInfo:
        with _looking():
            status = os.stat(self._path(key))
        if not stat.S_ISREG(status.st_mode):
            raise Missing("not a file")
        return ObjectInfo(key, status.st_size, _etag(status))

    def list(self, prefix: str, after: str, limit: int | None) -> tuple[ObjectInfo, ...]:
        base = self._path(prefix) if prefix else self._root or "/"
        found = [info for info in _walk(base, prefix) if info.key > after]
        found.sort(key=lambda info: info.key)
        return tuple(found if limit is None else found[:limit])

    def create(self, key: str, data: bytes, durable: bool, later: bool = False) -> None:
        target = self._path(key)
        folder = os.path.dirname(target)
        with _acting():
            temporary, fd = self._temporary(target, data, durable)
            later = later and self._may_wait(folder, data)
            try:
                _name(temporary, target, sync=fd if durable and not later else None)
            except FileExistsError:
                os.close(fd)
                if not (durable and _is_empty(target)):
                    raise Exists from None
                self._fill(target, data)
            except BaseException:
                os.close(fd)
                raise
            else:
                if durable and later:
                    self._soft[target] = (fd, data)
                    return
                os.close(fd)
            if durable:
                _sync_folder(folder)
                self._durable.add(folder)

    def harden(self) -> None:
        with _acting():
            for target, (fd, data) in tuple(self._soft.items()):
                folder = os.path.dirname(target)
                if fd >= 0 and not _synced(fd):
                    self._soft[target] = (fd := -1, data)
                try:
                    if fd < 0:
                        fd = self._again(target, data)
                        self._soft[target] = (fd, data)
                        _sync_folder(folder)
                    if not os.path.samestat(os.fstat(fd), os.stat(target)):
                        raise _taken(target)
                except FileNotFoundError:
                    raise _gone(folder) from None
                self._durable.add(folder)
                os.close(fd)
                del self._soft[target]

    def _may_wait(self, folder: str, data: bytes) -> bool:
        """A file of one page is there whole or not at all, where the file system keeps order."""
        if folder not in self._ordered:
            self._ordered[folder] = keeps_order(folder)
        return self._ordered[folder] and len(data) <= PAGE_BYTES

    def _again(self, target: str, data: bytes) -> int:
        """Write what the disk failed to keep anew, under its own name; the new file, open."""
        temporary = self._write_temporary(target, data, True)
        with _removed_on_error(temporary), _locked(os.path.dirname(target)):
            with open(target, "rb") as file:
                present = file.read()
            if present != data and not is_blank(present):
                raise _taken(target)
            os.replace(temporary, target)
        return os.open(target, os.O_RDONLY | os.O_CLOEXEC)

    def _fill(self, target: str, data: bytes) -> None:
        """Put `data` behind a name that a loss of power left empty; one writer only."""
        temporary = self._write_temporary(target, data, True)
        with _removed_on_error(temporary), _locked(os.path.dirname(target)):
            if not _is_empty(target):
                raise Exists
            os.replace(temporary, target)

    def settle(self, key: str) -> None:
        """Make an object that is already there survive a loss of power."""
        target = self._path(key)
        with _acting():
            _sync_file(target)
            _sync_folder(os.path.dirname(target))

    def put(self, key: str, data: bytes) -> None:
        target = self._path(key)
        with _acting():
            self._replace(self._write_temporary(target, data, False), target)

    def put_file(self, key: str, path: Path) -> None:
        target = self._path(key)
        with _acting():
            _make_folders(os.path.dirname(target), durable=False)
            temporary = temporary_name(target)
            with _removed_on_error(temporary):
                with open(path, "rb") as source, open(_new(temporary), "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                self._replace(temporary, target)

    def get_file(self, key: str, path: Path) -> ObjectInfo:
        with _looking():
            source = open(self._path(key), "rb")  # noqa: SIM115 - closed below
        with source, into_place(path) as sink:
            status = os.fstat(source.fileno())
            with _acting():
                shutil.copyfileobj(source, sink, 1 << 20)
        return ObjectInfo(key, status.st_size, _etag(status))

    def delete(self, key: str) -> None:
        with _acting(), suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _write_temporary(self, target: str, data: bytes, durable: bool) -> str:
        temporary, fd = self._temporary(target, data, durable)
        with _removed_on_error(temporary):
            try:
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
        return temporary

    def _temporary(self, target: str, data: bytes, durable: bool) -> tuple[str, int]:
        """A new file beside `target` with `data`, still open; `durable` is its folder."""
        temporary, folder = temporary_name(target), os.path.dirname(target)
        try:
            fd = _new(temporary)
        except FileNotFoundError:
            if folder in self._durable:  # what was durable there is gone: no new beginning
                raise _gone(folder) from None
            _make_folders(folder, durable)
            fd = _new(temporary)
        with _removed_on_error(temporary):
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            except BaseException:
                os.close(fd)
                raise
        return temporary, fd

    def _replace(self, temporary: str, target: str) -> None:
        with _removed_on_error(temporary):
            os.replace(temporary, target)


def temporary_name(target: str) -> str:
    """A name beside `target` that no other writer uses and that listings leave out."""
    return f"{target}#{os.getpid()}{next(_serial):06d}{int.from_bytes(os.urandom(4)):010d}"


@contextmanager
def into_place(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the name `path` when the block ends well, and vanishes if not."""
    temporary = temporary_name(str(path))
    with _acting():
        _make_folders(str(path.parent), durable=False)
        fd = _new(temporary)
    with _removed_on_error(temporary):
        with open(fd, "wb") as sink:
            yield sink
            with _acting():
                sink.flush()
        with _acting():
            os.replace(temporary, path)


def _new(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)


@contextmanager
def _removed_on_error(path: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


@contextmanager
def _looking() -> Iterator[None]:
    """A missing name is a positive signal; every other error is a fault."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise Missing(errno.errorcode[error.errno or 0]) from None
        if error.errno == errno.EISDIR:
            raise Missing("not a file") from None
        raise fault_of_os_error(error) from error


@contextmanager
def _acting() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise fault_of_os_error(error) from error


def _make_folders(folder: str, durable: bool) -> None:
    """Create missing folders (0700); with `durable` their names survive a loss of power."""
    missing: list[str] = []
    at = folder
    while at and not os.path.isdir(at):
        missing.append(at)
        at = os.path.dirname(at)
    for path in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(path, _FOLDER_MODE)
        if durable:
            _sync_folder(os.path.dirname(path) or "/")


def _name(temporary: str, target: str, sync: int | None) -> None:
    """Give a file its name, if that is free, once its data is durable (`sync`: its descriptor)."""
    try:
        if sync is not None:
            os.fsync(sync)
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            raise Fault("no_hard_links", "the file system has no hard links") from error
        raise
    finally:
        os.unlink(temporary)


def _gone(folder: str) -> Fault:
    return Fault("folder_gone", f"the folder '{folder}' was taken away")


def _taken(target: str) -> Fault:
    return Fault("taken_over", f"another writer took the name '{target}'")


def _synced(fd: int) -> bool:
    """False closes the file: the kernel tells once, and the next fsync would call it done."""
    try:
        os.fsync(fd)
    except OSError:
        os.close(fd)
        return False
    return True


def _is_empty(path: str) -> bool:
    """Is there nothing behind the name, as after a loss of power? (Some file systems: zeros.)"""
    try:
        with open(path, "rb") as file:
            return is_blank(file.read())
    except IsADirectoryError:
        return False


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _walk(base: str, prefix: str) -> Iterator[ObjectInfo]:
    """Every regular file below `base`; links are followed, but never round in a circle."""
    try:
        top = os.stat(base)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return
        raise fault_of_os_error(error) from error
    stack = [(base, f"{prefix}/" if prefix else "", frozenset([(top.st_dev, top.st_ino)]))]
    while stack:
        folder, key_prefix, above = stack.pop()
        for entry, status in _entries(folder):
            if status is None or is_temporary(entry.name):
                continue
            key = key_prefix + entry.name
            if stat.S_ISREG(status.st_mode):
                yield ObjectInfo(key, status.st_size, _etag(status))
            elif stat.S_ISDIR(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                if identity not in above:
                    stack.append((entry.path, key + "/", above | {identity}))


def _entries(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result | None]]:
    """Entries with their status; None for what vanished meanwhile or is a dangling link."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    yield entry, entry.stat()
                except OSError as error:
                    if error.errno not in (*_NOT_THERE, errno.ELOOP):
                        raise
                    yield entry, None
    except OSError as error:
        if error.errno in _NOT_THERE:
            return
        raise fault_of_os_error(error) from error
