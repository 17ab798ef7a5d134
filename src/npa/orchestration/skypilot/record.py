"""The session's record: written before each act, so that a crash can be understood afterwards.

`intent` (nothing was started yet) -> `starting` (a process may exist) -> `ready` -> `stopped`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path

from msgspec import structs

from npa.orchestration.skypilot.ports import Ports
from npa.orchestration.skypilot.refusals import Refusal, refuse

NAME = "session.json"
SCHEMA = "npa.skypilot.session.v1"


class Kind(Enum):
    """What a session is for, and so when it ends."""

    RUN = "run"  # lives on after the driver; ended by the last step of a clean-up
    CHECK = "check"  # ended before success is reported
    VALIDATION = "validation"  # ended once its workload is proven gone


class State(Enum):
    INTENT = "intent"
    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Record:
    """`marker` names the session in its processes' environment; `pid` 0 means not known."""

    kind: Kind
    state: State
    marker: str
    user_id: str
    interpreter: str
    ports: Ports
    boot: str
    namespace: str
    identity: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0
    start_ticks: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports.api}"

    def become(self, state: State, *, pid: int = 0, start_ticks: int = 0) -> Record:
        return replace(self, state=state, pid=pid, start_ticks=start_ticks)


def load(root: Path) -> Record | None:
    """The record, or None if the session never was. Raises EngineError (SESSION_RECORD)."""
    path = root / NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise refuse(Refusal.RECORD, f"{path} cannot be read ({type(error).__name__})") from error
    try:
        if document.pop("schema") != SCHEMA:
            raise ValueError("schema")
        return Record(
            kind=Kind(document.pop("kind")),
            state=State(document.pop("state")),
            ports=Ports(**document.pop("ports")),
            **document,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise refuse(Refusal.RECORD, f"{path} does not hold a session's record") from error


def save(root: Path, record: Record) -> None:
    """Write it whole, on disk when this returns."""
    document = asdict(record) | {
        "schema": SCHEMA,
        "kind": record.kind.value,
        "state": record.state.value,
        "ports": structs.asdict(record.ports),
    }
    write_private(root / NAME, json.dumps(document, sort_keys=True, indent=1).encode())


def write_private(path: Path, data: bytes) -> None:
    """A 0600 file that is there whole or not at all; file and folder are fsynced."""
    staged = path.with_name(f"{path.name}.new")
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
