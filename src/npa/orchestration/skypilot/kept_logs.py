"""Logs of a run, also after its API server has stopped: whole copies, made before it stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from npa.errors import EngineError
from npa.observation import Absent, Found, Observation, Unavailable
from npa.orchestration.engine import JobRef
from npa.orchestration.logs import LogChunk, LogStream
from npa.orchestration.skypilot.launches import Launches
from npa.orchestration.skypilot.log_reader import CHUNK_BYTES_MAX, SOURCE, SkyPilotLogs

KEEP_SECONDS_MAX = 60.0
_COMPLETE = "complete"  # exists once the run is over and nothing more can be copied
_PAUSE_SECONDS = 0.5


class KeptLogs(Struct, frozen=True):
    """Implements npa.orchestration.logs.LogReader. `live` is asked for what is not kept whole,
    after `prove` has found the session's server."""

    folder: Path
    launches: Launches
    now: Callable[[], float]
    live: SkyPilotLogs | None = None
    prove: Callable[[], object] = lambda: None

    def complete(self) -> bool:
        return (self.folder / _COMPLETE).exists()

    def streams(self, ref: JobRef) -> Observation[Sequence[LogStream]]:
        """One stream for each step of the job."""
        tasks: Mapping[str, str] = {p: task for task, p in self.launches.paths(ref.key).items()}
        if not tasks:
            return Absent("this host did not launch the job", SOURCE, self.now())
        found = tuple(LogStream(path, 0, task) for path, task in sorted(tasks.items()))
        return Found(found, SOURCE, self.now())

    def read(self, ref: JobRef, stream: LogStream, offset: int) -> Observation[LogChunk]:
        copy = self._copy(ref, stream)
        if copy.exists():
            return self._chunk(copy, offset)
        if self.live is None:
            return Unavailable("not_kept", "it was not copied in time", SOURCE, self.now())
        if not ref.native_id:
            return Found(LogChunk(b"", offset, ended=True), SOURCE, self.now())
        try:
            self.prove()
        except EngineError as error:
            return Unavailable(error.code, error.message, SOURCE, self.now())
        return self.live.read(ref, stream, offset)

    def keep(self, refs: Iterable[JobRef]) -> None:
        """Copy every log whole, as far as that is done within KEEP_SECONDS_MAX."""
        deadline = time.monotonic() + KEEP_SECONDS_MAX
        for ref in refs:
            streams = self.streams(ref)
            if ref.native_id and isinstance(streams, Found):
                for stream in streams.value:
                    self._keep(ref, stream, deadline)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / _COMPLETE).touch(mode=0o600)

    def _keep(self, ref: JobRef, stream: LogStream, deadline: float) -> None:
        copy = self._copy(ref, stream)
        if copy.exists() or self.live is None:
            return
        offset = 0
        while time.monotonic() < deadline:
            seen = self.live.read(ref, stream, offset)
            if not isinstance(seen, Found):
                return
            offset = seen.value.next_offset
            if seen.value.ended:
                self.live.copy_of(ref, stream).replace(copy)
                return
            if not seen.value.data:
                time.sleep(_PAUSE_SECONDS)

    def _copy(self, ref: JobRef, stream: LogStream) -> Path:
        return self.folder / f"{ref.key}-{stream.location}.log"

    def _chunk(self, copy: Path, offset: int) -> Observation[LogChunk]:
        with copy.open("rb") as file:
            file.seek(offset)
            data = file.read(CHUNK_BYTES_MAX)
            size = file.seek(0, 2)
        end = offset + len(data)
        return Found(LogChunk(data, end, ended=end >= size), SOURCE, self.now())
