"""Looking at a run: its journal, and a fresh look at its live jobs by exact name and ID."""

from __future__ import annotations

import time
from collections.abc import Mapping

from npa.cli.host import reading_host
from npa.errors import NpaError
from npa.observation import Observation, Unavailable
from npa.orchestration.engine import JobRef, JobStatus
from npa.orchestration.runs import Host, OpenRun, driver_alive, open_run
from npa.orchestration.state import Attempt
from npa.views.status import Liveness, RunView, view_run


def open_for_reading(name: str) -> tuple[Host, OpenRun]:
    """A run and the host that reads it. Raises RunError and StorageError."""
    host = reading_host()
    return host, open_run(host, name)


def ref_of(attempt: Attempt) -> JobRef:
    """How the job of an attempt is found again."""
    return JobRef(attempt.name, attempt.key, attempt.native_id)


def look(host: Host, run: OpenRun, *, cached: bool = False) -> RunView:
    """The run as it is now; with `cached`, only as it is recorded."""
    return view_run(
        run_id=run.place.run_id,
        run_uri=run.place.run_uri,
        workflow=run.place.workflow or _workflow_name(run),
        state=run.state,
        live=None if cached else _live(host, run),
        driver=_liveness(run),
        as_of=time.time(),
    )


def _live(host: Host, run: OpenRun) -> Mapping[str, Observation[JobStatus]]:
    refs = [ref_of(attempt) for attempt in run.state.open_attempts()]
    if not refs:
        return {}
    try:
        engine = host.engine(run.request, host.home)
    except NpaError as error:  # another machine, say: cannot see, which is no reason to fail
        unseen = Unavailable(error.code, error.message, run.request.engine, time.time())
        return dict.fromkeys((ref.name for ref in refs), unseen)
    try:
        return engine.glance(refs)
    finally:
        engine.close()


def _liveness(run: OpenRun) -> Liveness:
    view = run.state.driver
    if view is None:
        return Liveness.NONE
    match driver_alive(view):
        case True:
            return Liveness.ALIVE
        case False:
            return Liveness.DEAD
        case None:
            return Liveness.UNKNOWN


def _workflow_name(run: OpenRun) -> str:
    """Of a run that was opened by its URI: what the file said, without reading it again."""
    path = str(run.state.request.get("spec_path", ""))
    return path.rpartition("/")[2].removesuffix(".yaml")


__all__ = ["look", "open_for_reading", "ref_of"]
