"""Logs of SkyPilot's jobs: the bridge copies each task's log into a file, and that is read.

One stream a task: SkyPilot merges the ranks of a task into one log, with a prefix on each line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import assert_never

from msgspec import Struct

from npa.observation import Absent, Found, Observation, Unavailable
from npa.orchestration.engine import JobRef
from npa.orchestration.logs import LogChunk, LogStream
from npa.orchestration.skypilot.client import Answer, BridgeClient, Broken, Refused
from npa.orchestration.skypilot.launches import Launches

SOURCE = "skypilot-logs"
CHUNK_BYTES_MAX = 1 << 20
CALL_SECONDS_MAX = 30.0


class SkyPilotLogs(Struct, frozen=True):
    """Implements npa.orchestration.logs.LogReader. `folder` takes the copies (0700)."""

    bridge: BridgeClient
    launches: Launches
    folder: Path
    now: Callable[[], float]

    def streams(self, ref: JobRef) -> Observation[Sequence[LogStream]]:
        """One stream for each step of the job."""
        tasks = self._tasks(ref)
        if not tasks:
            return Absent("this host did not launch the job", SOURCE, self.now())
        found = tuple(LogStream(path, 0, task) for path, task in sorted(tasks.items()))
        return Found(found, SOURCE, self.now())

    def read(self, ref: JobRef, stream: LogStream, offset: int) -> Observation[LogChunk]:
        """What was written from `offset` on; at most 1 MiB at a time."""
        tasks = self._tasks(ref)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = self.copy_of(ref, stream)
        reply = self.bridge.call(
            "follow",
            CALL_SECONDS_MAX,
            path=str(copy),
            job_id=int(ref.native_id),
            # A job of one task has only one log, and its task another name than we gave it.
            task=stream.location if len(tasks) > 1 else None,
        )
        match reply:
            case Answer(value=value):
                if value.get("failed"):
                    return Unavailable("log", "the log cannot be read now", SOURCE, self.now())
                return self._chunk(copy, offset, ended=bool(value.get("ended")))
            case Refused(code=code, message=message):
                return Unavailable(code, message[:300], SOURCE, self.now())
            case Broken(cause=cause, detail=detail):
                return Unavailable(cause, detail, SOURCE, self.now())
            case _:
                assert_never(reply)

    def copy_of(self, ref: JobRef, stream: LogStream) -> Path:
        """Where a log is copied to while it is read."""
        return self.folder / f"{ref.key}-{stream.location}.log"

    def _chunk(self, copy: Path, offset: int, *, ended: bool) -> Observation[LogChunk]:
        try:
            with copy.open("rb") as file:
                file.seek(offset)
                data = file.read(CHUNK_BYTES_MAX)
                size = file.seek(0, 2)
        except FileNotFoundError:
            return Found(LogChunk(b"", offset, ended=False), SOURCE, self.now())
        done = ended and offset + len(data) >= size
        return Found(LogChunk(data, offset + len(data), done), SOURCE, self.now())

    def _tasks(self, ref: JobRef) -> Mapping[str, str]:
        """Step path -> task name."""
        return {path: task for task, path in self.launches.paths(ref.key).items()}
