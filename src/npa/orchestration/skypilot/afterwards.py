"""The end of a run on SkyPilot: its logs are kept, its API server is stopped by proof, and what it
kept of secrets is forgotten."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from npa.errors import NpaError
from npa.orchestration.engine import JobRef
from npa.orchestration.skypilot import record
from npa.orchestration.skypilot.aside import aside
from npa.orchestration.skypilot.forgetting import forget
from npa.orchestration.skypilot.kept_logs import KeptLogs
from npa.orchestration.skypilot.log_reader import SkyPilotLogs
from npa.orchestration.skypilot.record import write_private
from npa.orchestration.skypilot.session import Session
from npa.orchestration.skypilot.spec import SessionSpec

if TYPE_CHECKING:
    from npa.orchestration.skypilot.engine import SkyPilotEngine
    from npa.orchestration.state import RunState


LEFT_NAME = "left.json"  # in the session's folder: what stayed, and the command that ends it


def settle(engine: SkyPilotEngine, state: RunState | None) -> str:
    """Stop the session of a run that is over, or (None) of one that was never begun.

    Best effort, and it never raises: what it cannot do is said in the answer and kept in the
    session's folder; "" means that nothing of it is left. A session that has launched anything is
    never stopped for a run that was not begun, nor before its logs are kept.
    """
    session = engine.session
    if not isinstance(session, Session):
        return ""
    root = session.spec.root
    launched = any(engine.launches.folder.glob("*.json"))
    if state is None and launched:
        return ""
    try:
        said = _kept(engine, session, state) if state is not None and launched else ""
        if not said:
            engine.close()
            session.stop()
            if state is not None:
                forget(session.spec.home)
    except Exception as error:  # a run's end depends on nothing here
        said = str(error) or type(error).__name__
    _note(root, said)
    return said


def end_session(root: Path) -> bool:
    """Stop what runs from a session's folder, by its record. False if nothing was running.

    Raises EngineError (SESSION_STOP, SESSION_RECORD) if it cannot be proven stopped.
    """
    present = record.load(root)
    if present is None:
        return False
    stopped = Session(SessionSpec(root, present.kind, Path(present.interpreter), {})).stop()
    _note(root, "")
    return stopped


def _note(root: Path, said: str) -> None:
    with suppress(OSError):
        if said:
            document = {"left": said, "at": round(time.time(), 3), "command": "npa skypilot stop"}
            write_private(root / LEFT_NAME, json.dumps(document, sort_keys=True).encode())
        else:
            (root / LEFT_NAME).unlink(missing_ok=True)


def _kept(engine: SkyPilotEngine, session: Session, state: RunState) -> str:
    """Copy the logs while their server lives. Says why they are not all kept."""
    try:
        _keep_logs(engine, session, state)
    except (NpaError, OSError) as error:
        return f"the logs are not kept: {error}"
    return ""


def _keep_logs(engine: SkyPilotEngine, session: Session, state: RunState) -> None:
    folder = session.spec.root / "logs"
    kept = KeptLogs(folder, engine.launches, time.time)
    if kept.complete():
        return
    session.prove()
    with aside(folder) as own:
        own.make()
        live = SkyPilotLogs(engine.bridge, engine.launches, own.path, time.time)
        KeptLogs(folder, engine.launches, time.time, live).keep(
            JobRef(a.name, a.key, a.native_id) for a in state.attempts.values()
        )
