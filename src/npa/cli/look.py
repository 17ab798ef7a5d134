"""Looking at a run: its journal, and a fresh look at its live jobs by exact name and ID."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import assert_never

from npa.cli.exit_codes import ExitCode
from npa.cli.host import reading_host
from npa.cli.output import Output
from npa.cli.progress import span
from npa.errors import NpaError, StorageError
from npa.observation import Observation, Unavailable
from npa.orchestration.engine import JobRef, JobStatus
from npa.orchestration.journal.entries import Held
from npa.orchestration.registry import AmbiguousRun, RunPlace
from npa.orchestration.runs import Host, OpenRun, driver_alive, open_run
from npa.orchestration.state import Attempt
from npa.views.status import Liveness, RunView, view_run

CANDIDATES_MAX = 10  # of the runs that a start of an ID may mean


def open_for_reading(name: str) -> tuple[Host, OpenRun]:
    """A run and the host that reads it. Raises what `open_known` raises."""
    host = reading_host()
    return host, open_known(host, name)


def open_known(host: Host, name: str) -> OpenRun:
    """The run that a person named. Raises RunError, StorageError, UsageError.

    Of several that may be meant, the newest are named with their state and their age.
    """
    try:
        return open_run(host, name)
    except AmbiguousRun as error:
        lines = [error.message]
        for place in error.places[:CANDIDATES_MAX]:
            age = span(max(time.time() - place.created_at, 0))
            lines.append(f"  {place.run_id}  {recorded_word(host, place)}  begun {age} ago")
        if len(error.places) > CANDIDATES_MAX:
            lines.append(f"  and {len(error.places) - CANDIDATES_MAX} more")
        error.message = "\n".join(lines)
        raise


def recorded_word(host: Host, place: RunPlace) -> str:
    """The recorded state in one word; UNKNOWN when its journal cannot be read."""
    try:
        run = open_run(host, place.run_id)
    except NpaError as error:
        return "NOT_BEGUN" if error.code == "RUN_NOT_FOUND" else "UNKNOWN"
    return view_run(
        run_id=place.run_id,
        run_uri=place.run_uri,
        workflow=place.workflow,
        state=run.state,
        live=None,
        driver=Liveness.UNKNOWN,
        as_of=time.time(),
    ).status


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


UNDRIVEN_SECONDS = 60.0  # for the driver of a run that has just begun; the detached wait as long


class Rest(Enum):
    """Whether a run still moves, as far as can be seen without asking its jobs."""

    MOVES = "moves"  # a driver drives it, or may
    OVER = "over"
    HELD = "held"
    DEAD = "dead"  # its driver is gone and did not say so
    LEFT = "left"  # its driver left it in order, to be resumed
    UNDRIVEN = "undriven"  # no driver has taken it, and one had the time to


def rest_of(run: OpenRun) -> Rest:
    """Does the run move? A driver that cannot be seen from this machine may be at work.

    A driver that is gone may have ended the run first: the journal is read on before that is said.
    """
    rest = _rest_of(run)
    if rest is Rest.DEAD:
        with suppress(StorageError):  # cannot see: what was seen before stands
            run.state.apply(run.journal.refresh())
        rest = _rest_of(run)
    return rest


def _rest_of(run: OpenRun) -> Rest:
    state = run.state
    if state.lifecycle.over:
        return Rest.OVER
    if state.held:
        return Rest.HELD
    if state.driver is None:
        young = time.time() - state.created_at < UNDRIVEN_SECONDS
        return Rest.MOVES if young else Rest.UNDRIVEN
    if state.driver.released:
        return Rest.LEFT
    return Rest.DEAD if _liveness(run) is Liveness.DEAD else Rest.MOVES


def tell_rest(output: Output, run: OpenRun, rest: Rest) -> None:
    """Why a run that is not over goes no further, and the command that comes next."""
    run_id = run.place.run_id
    match rest:
        case Rest.MOVES | Rest.OVER:
            return
        case Rest.HELD:
            for hold in run.state.held.values():
                output.warning(held_text(hold))
                if hold.remedy:
                    output.hint(hold.remedy)
            return
        case Rest.DEAD:
            output.warning(f"the driver of {run_id} is dead; what runs goes on without one")
        case Rest.LEFT:
            output.warning(f"{run_id} was left without a driver; what runs goes on")
        case Rest.UNDRIVEN:
            output.warning(f"no driver has taken {run_id}")
        case _:
            assert_never(rest)
    output.hint(f"`npa workflow resume {run_id}` goes on with it")


def exit_code_of_rest(rest: Rest) -> ExitCode:
    """Of a command that looked at a run that is not over: does it go on by itself?"""
    match rest:
        case Rest.MOVES | Rest.OVER:
            return ExitCode.OK
        case Rest.HELD:
            return ExitCode.HELD
        case Rest.DEAD | Rest.LEFT | Rest.UNDRIVEN:
            return ExitCode.PARTIAL
        case _:
            assert_never(rest)


def held_text(hold: Held) -> str:
    """A hold in one sentence."""
    return f"{hold.subject or 'the run'} is held: {hold.reason} ({hold.code})"


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


__all__ = [
    "Rest",
    "exit_code_of_rest",
    "held_text",
    "look",
    "open_for_reading",
    "open_known",
    "recorded_word",
    "ref_of",
    "rest_of",
    "tell_rest",
]
