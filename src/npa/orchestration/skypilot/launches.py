"""What this host knows of launches that it made: files beside the session, one pair a launch key.

    <key>.json   written before anything is sent: the job's name, digest, and task name -> step path
    <key>.rows   the bridge's observations of the POST, each fsynced (see bridge.py)

So a crash of any process leaves on disk how far the launch got at most.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from npa.errors import EngineError
from npa.orchestration.skypilot.record import write_private


class Reached(Enum):
    """How far a launch got, as far as this host can tell."""

    UNKNOWN = "unknown"  # no file: another host's, or none was ever begun
    PREPARED = "prepared"  # nothing had been sent
    POSTING = "posting"  # the POST may have been sent; no answer was seen
    ACCEPTED = "accepted"  # the server gave a request ID
    ENDED = "ended"  # the server's request ended, well or not


class Trace(Struct, frozen=True):
    """`at` is when it got there; after `not_after` no bridge makes the POST any more."""

    reached: Reached
    request_id: str = ""
    job_ids: tuple[int, ...] = ()
    at: float = 0.0
    not_after: float = 0.0

    def late_possible(self, now: float) -> bool:
        """May a job of it still appear?"""
        match self.reached:
            case Reached.UNKNOWN | Reached.POSTING | Reached.ACCEPTED:
                return True
            case Reached.PREPARED:  # its bridge may live on without its driver
                return now <= self.not_after
            case Reached.ENDED:
                return False
            case _:
                assert_never(self.reached)


class Launches(Struct, frozen=True):
    folder: Path

    def prepare(
        self, key: str, name: str, digest: str, paths: Mapping[str, str], not_after: float
    ) -> Path:
        """Note the launch, before anything is sent. Returns where the bridge writes its rows."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = {"name": name, "digest": digest, "paths": dict(paths), "not_after": not_after}
        write_private(self._path(key, "json"), json.dumps(document, sort_keys=True).encode())
        return self._path(key, "rows")

    def paths(self, key: str) -> Mapping[str, str]:
        """Task name -> step path of a launch of this host; empty if it is not known here."""
        paths = (self._note(key) or {}).get("paths")
        return paths if isinstance(paths, dict) else {}

    def trace(self, key: str) -> Trace:
        """How far the launch got. Doubt reads as the later possibility."""
        note = self._note(key)
        if note is None:
            return Trace(Reached.UNKNOWN)
        trace = Trace(Reached.PREPARED, not_after=float(note.get("not_after", 0.0)))
        try:
            lines = self._path(key, "rows").read_bytes().splitlines()
        except OSError:
            return trace
        for line in lines:
            try:
                trace = _next(trace, json.loads(line))
            except (ValueError, KeyError, TypeError):  # torn by a crash: something was beginning
                if trace.reached is Reached.PREPARED:
                    trace = replace(trace, reached=Reached.POSTING)
        return trace

    def _note(self, key: str) -> dict[str, Any] | None:
        try:
            document = json.loads(self._path(key, "json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) else None

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """The owner-only lock on one logical launch. Raises EngineError (LAUNCH_LOCKED)."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._path(key, "lock"), flags, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EngineError(
                    "another driver is launching this very job",
                    not_done="nothing was launched",
                    hint="wait for it to end, then look at the run's status",
                    code="LAUNCH_LOCKED",
                ) from None
            yield
        finally:
            os.close(handle)

    def _path(self, key: str, suffix: str) -> Path:
        if not key.isalnum():
            raise ValueError(f"{key!r} is not a launch key")
        return self.folder / f"{key}.{suffix}"


def _next(trace: Trace, row: Mapping[str, Any]) -> Trace:
    at = float(row["at"])
    match row["row"]:
        case "posting":
            return replace(trace, reached=Reached.POSTING, at=at)
        case "request":
            return replace(
                trace, reached=Reached.ACCEPTED, request_id=str(row["request_id"]), at=at
            )
        case "result":
            ids = tuple(int(n) for n in row["job_ids"])
            return replace(trace, reached=Reached.ENDED, job_ids=ids, at=at)
        case "error":
            ended = trace.reached is Reached.ACCEPTED and str(row["code"]) not in _NOT_AN_END
            return replace(trace, reached=Reached.ENDED, at=at) if ended else trace
        case _:
            raise ValueError(row["row"])


# With these only our look at the request ended; with all others the request itself did.
_NOT_AN_END = ("unreachable", "busy", "interrupted", "request_unknown", "http", "unknown")
