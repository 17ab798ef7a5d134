"""How logs of a job are read: by member and rank, from a byte offset, while it runs or after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from npa.observation import Observation
from npa.orchestration.engine import JobRef


class LogChunk(Struct, frozen=True):
    """Bytes as the task wrote them (no line limit, `\\r` and binary kept); `ended`: no more."""

    data: bytes
    next_offset: int
    ended: bool


class LogStream(Struct, frozen=True):
    """One stream that can be read: a rank of a member (`setup` and `run` share a stream)."""

    path: str
    rank: int
    location: str


class LogReader(Protocol):
    def streams(self, ref: JobRef) -> Observation[Sequence[LogStream]]: ...

    def read(self, ref: JobRef, stream: LogStream, offset: int) -> Observation[LogChunk]: ...
