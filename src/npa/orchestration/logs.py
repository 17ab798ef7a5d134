"""How logs of a job are read: by member and rank, from a byte offset, while it runs or after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from npa.observation import Observation
from npa.orchestration.engine import JobRef


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes as the task wrote them (no line limit, `\\r` and binary kept); `ended`: no more."""

    data: bytes
    next_offset: int
    ended: bool


@dataclass(frozen=True, slots=True)
class LogStream:
    """One stream that can be read: a rank of a member (`setup` and `run` share a stream)."""

    path: str
    rank: int
    location: str


class LogReader(Protocol):
    def streams(self, ref: JobRef) -> Observation[Sequence[LogStream]]: ...

    def read(self, ref: JobRef, stream: LogStream, offset: int) -> Observation[LogChunk]: ...
