"""The end of a run on SkyPilot: its logs are kept, then its API server is stopped by proof."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from npa.errors import NpaError
from npa.orchestration.engine import JobRef
from npa.orchestration.skypilot.kept_logs import KeptLogs
from npa.orchestration.skypilot.log_reader import SkyPilotLogs
from npa.orchestration.skypilot.session import Session

if TYPE_CHECKING:
    from npa.orchestration.skypilot.engine import SkyPilotEngine
    from npa.orchestration.state import RunState


def settle(engine: SkyPilotEngine, state: RunState | None) -> str:
    """Stop the session of a run that is over, or (None) of one that was never begun.

    Best effort: what it cannot do is said in the answer, and "" means that nothing of it is left.
    A session that has launched anything is never stopped for a run that was not begun.
    """
    session = engine.session
    if not isinstance(session, Session):
        return ""
    launched = any(engine.launches.folder.glob("*.json"))
    if state is None and launched:
        return ""
    try:
        if state is not None and launched:
            _keep_logs(engine, session, state)
        engine.close()
        session.stop()
    except (NpaError, OSError) as error:
        return str(error)
    return ""


def _keep_logs(engine: SkyPilotEngine, session: Session, state: RunState) -> None:
    folder = session.spec.root / "logs"
    kept = KeptLogs(folder, engine.launches, time.time)
    if kept.complete():
        return
    live = SkyPilotLogs(engine.bridge, engine.launches, kept.aside(), time.time)
    session.prove()
    KeptLogs(folder, engine.launches, time.time, live).keep(
        JobRef(a.name, a.key, a.native_id) for a in state.attempts.values()
    )
