"""Logs of local jobs: each rank's file, read as bytes from an offset.

Nothing is decoded or split while it is copied: lines may be of any length, end in `\\r`, or be no
text at all. Memory is bounded by one chunk, whatever the size of the file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from npa.observation import Absent, Found, Observation, Unavailable
from npa.orchestration.engine import JobRef, JobStatus
from npa.orchestration.local import layout, records
from npa.orchestration.logs import LogChunk, LogStream

SOURCE = "local"
CHUNK_BYTES = 1 << 20
TAIL_BYTES = 1 << 18
TAIL_LINES = 100
QUICK_BYTES_MAX = 1 << 23
COUNT_BYTES_MAX = 1 << 26
"""Line numbers are counted in files of up to 64 MiB; in larger ones the tail has none."""


class LocalLogs:
    """A LogReader over job folders. `folder_of` and `look` come from the engine.

    `look` must be one that changes nothing: reading a log is no reason to act on its job.
    """

    def __init__(
        self,
        folder_of: Callable[[str], str],
        look: Callable[[JobRef], Observation[JobStatus]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder_of = folder_of
        self._look = look
        self._clock = clock

    def streams(self, ref: JobRef) -> Observation[Sequence[LogStream]]:
        """One stream for each rank, also before its file exists."""
        folder = self._folder_of(ref.name)
        try:
            job = records.read_job(folder)
        except OSError as error:
            return self._unavailable(error)
        except ValueError as error:
            if os.path.lexists(f"{folder}/{layout.CLAIM}"):
                return self._unavailable(error)
            job = None  # half a file: its driver is just writing it, or died over it
        if job is None:
            return Absent("the job's folder holds no job", SOURCE, self._clock(), True)
        found = tuple(
            LogStream(task.path, rank, f"{folder}/{layout.log_name(number, len(job.tasks), rank)}")
            for number, task in enumerate(job.tasks)
            for rank in range(task.ranks)
        )
        return Found(found, SOURCE, self._clock())

    def read(self, ref: JobRef, stream: LogStream, offset: int) -> Observation[LogChunk]:
        """Up to 1 MiB from `offset`. `ended` is looked up before the bytes, so none is missed."""
        seen = self._look(ref)
        never = isinstance(seen, Absent) and not seen.late_possible
        over = never or (isinstance(seen, Found) and seen.value.settled)
        try:
            data = read_chunk(stream.location, offset)
        except FileNotFoundError:
            data = b""
        except OSError as error:
            return self._unavailable(error)
        chunk = LogChunk(data, offset + len(data), ended=over and len(data) < CHUNK_BYTES)
        return Found(chunk, SOURCE, self._clock())

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable("LOG_UNREADABLE", str(error), SOURCE, self._clock())


def read_chunk(path: str, offset: int) -> bytes:
    """At most `CHUNK_BYTES` from `offset`; empty at the end. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, CHUNK_BYTES, offset)
    finally:
        os.close(fd)


class Excerpt(Struct, frozen=True):
    """The end of a log. `first_line` is the number (from 1) of `lines[0]`, 0 if not counted."""

    lines: tuple[bytes, ...]
    first_line: int

    @property
    def last_number(self) -> int:
        """Number of the last line that is not blank; 0 if unknown or all are."""
        for back, line in enumerate(reversed(self.lines)):
            if line.strip() and self.first_line:
                return self.first_line + len(self.lines) - 1 - back
        return 0


def tail(path: str, lines: int) -> Excerpt:
    """The last `lines` lines from the last 256 KiB. Of a redrawn line only the last state counts.

    A line longer than that is cut at its start. Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        start = max(0, size - TAIL_BYTES)
        data = _read_range(fd, start, size)
        before = _count_newlines(fd, start) if size <= COUNT_BYTES_MAX else None
    finally:
        os.close(fd)
    if not data:
        return Excerpt((), 0)
    found = data.removesuffix(b"\n").split(b"\n")
    kept = found[-lines:] if lines > 0 else []
    first = 0 if before is None else before + len(found) - len(kept) + 1
    return Excerpt(tuple(line.removesuffix(b"\r").rpartition(b"\r")[2] for line in kept), first)


def last_line(path: str) -> int | None:
    """Number of the last line that says something, if it can be known in a few milliseconds."""
    try:
        if os.stat(path).st_size > QUICK_BYTES_MAX:
            return None
        return tail(path, TAIL_LINES).last_number or None
    except OSError:
        return None


def _read_range(fd: int, start: int, end: int) -> bytes:
    chunks = []
    while start < end and (chunk := os.pread(fd, min(CHUNK_BYTES, end - start), start)):
        chunks.append(chunk)
        start += len(chunk)
    return b"".join(chunks)


def _count_newlines(fd: int, end: int) -> int:
    count = start = 0
    while start < end and (chunk := os.pread(fd, min(CHUNK_BYTES, end - start), start)):
        count += chunk.count(b"\n")
        start += len(chunk)
    return count
