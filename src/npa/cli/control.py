"""`resume`, `cancel` and the detached driver: acting on a run that exists."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import assert_never

import click

from npa.cli.exit_codes import ExitCode
from npa.cli.options import json_option, run_argument
from npa.cli.output import Output
from npa.errors import RunError, StorageError
from npa.orchestration.decide import Goal
from npa.orchestration.runs import (
    Host,
    OpenRun,
    changes,
    declare_gone,
    driver_alive,
    driver_stopped,
    refuse_if_driven,
    reopen,
    request_cancel,
)
from npa.orchestration.state import Lifecycle

CANCEL_SECONDS_MAX = 330.0  # the driver's own finite policy is 300 s
_POLL_SECONDS = 0.2


@click.command()
@run_argument
@click.option(
    "--accept-changes", metavar="REASON", help="Go on with inputs that changed, and say why."
)
@click.option(
    "--from",
    "from_states",
    metavar="STATE",
    multiple=True,
    help="Run this state again, and all that depends on it; may be repeated.",
)
@click.option(
    "--reopen", "reason", metavar="REASON", help="Let a cancelled run go on, and say why."
)
@click.option(
    "--take-over", is_flag=True, help="Replace a driver that cannot be seen from this machine."
)
@click.option(
    "--gone",
    metavar="JOB",
    multiple=True,
    help="State that nothing of a job that holds the run runs any more; its step runs again.",
)
@click.option("--detach", is_flag=True, help="Return once a driver has taken the run.")
@json_option
def resume(
    run_id: str,
    accept_changes: str | None,
    from_states: Sequence[str],
    reason: str | None,
    take_over: bool,
    gone: Sequence[str],
    detach: bool,
    as_json: bool,
) -> int:
    """Go on with a run that has no driver, from what its journal says.

    What has succeeded is checked and not run again; what still runs is picked up.
    """
    from npa.cli.detach import hand_over
    from npa.cli.driving import drive, refuse_changes

    output = Output(as_json=as_json)
    host, run = open_driving(run_id)
    refuse_if_driven(run)
    from_states = (*from_states, *_declare_gone(run, gone, reason or ""))
    lifecycle = run.state.lifecycle
    wanted = bool(accept_changes or from_states or reason)
    if lifecycle is Lifecycle.COMPLETED and not wanted:
        return _already_complete(output, run)
    if lifecycle is Lifecycle.CANCELLED and not reason:
        raise _was_cancelled(run)
    if not accept_changes:
        refuse_changes(run.place.run_id, changes(host, run))
    if lifecycle.over or wanted:
        reopen(
            host,
            run,
            reason=accept_changes or reason or "resume",
            accept_changes=bool(accept_changes),
            from_states=from_states,
        )
    if detach:
        return hand_over(output, run)
    return drive(output, host, run, take_over=take_over)


def _who() -> str:
    return f"{getpass.getuser()}@{os.uname().nodename}"


def _declare_gone(run: OpenRun, jobs: Sequence[str], reason: str) -> tuple[str, ...]:
    """Write down what a person vouches for; the states of these jobs, if nothing is live now."""
    names: list[str] = []
    for job in jobs:
        declare_gone(run, job, reason=reason, by=_who())
        ended = next(a for a in run.state.attempts.values() if a.name == job)
        names.extend(ended.states)
    return () if run.state.live else tuple(names)


def _already_complete(output: Output, run: OpenRun) -> int:
    output.line(f"{run.place.run_id} is complete; nothing was done")
    output.document(
        {"run_id": run.place.run_id, "status": "succeeded", "terminal": run.state.terminal}
    )
    output.hint("`--from STATE` runs a state again")
    return ExitCode.OK


def _was_cancelled(run: OpenRun) -> RunError:
    cancel = run.state.cancel
    return RunError(
        f"run `{run.place.run_id}` was cancelled"
        + (f": {cancel.reason}" if cancel and cancel.reason else ""),
        not_done="nothing was launched",
        hint="a cancelled run goes on only when somebody says why",
        next_command=f"npa workflow resume {run.place.run_id} --reopen REASON",
        code="RUN_CANCELLED",
    )


@click.command("drive-detached", hidden=True)
@run_argument
def drive_detached(run_id: str) -> int:
    """Drive a run as a process of its own. Started by `--detach`."""
    from npa.cli.driving import drive

    output = Output()
    host, run = open_driving(run_id)
    return drive(output, host, run)


def open_driving(run_id: str) -> tuple[Host, OpenRun]:
    """A run, and the host with all that its driver needs. Raises what opening a run raises."""
    from npa.cli.host import host_for, reading_host
    from npa.cli.look import open_known

    run = open_known(reading_host(), run_id)
    return host_for(run.request), run


@click.command()
@run_argument
@click.option("--reason", default="", help="Why; it is shown by `status`.")
@click.option(
    "--gone",
    metavar="JOB",
    multiple=True,
    help="State that nothing of a job that holds the run runs any more.",
)
@json_option
def cancel(run_id: str, reason: str, gone: Sequence[str], as_json: bool) -> int:
    """Cancel a run and prove it: every job is seen to have ended, by its exact ID.

    Exits with 0 when nothing of the run is left, with 2 when that could not be verified.
    """
    from npa.cli.look import open_for_reading

    output = Output(as_json=as_json)
    _, run = open_for_reading(run_id)
    if run.state.lifecycle.over:
        return _tell_cancelled(output, run, "terminal", ())
    before = tuple(run.state.live)
    _declare_gone(run, gone, reason)
    request_cancel(run, reason, _who())
    view = run.state.driver
    alive = driver_alive(view) if view is not None and not view.released else False
    if alive is False:
        _drive_to_the_end(output, run)
    else:
        _wait_for_the_driver(output, run)
    return _tell_cancelled(output, run, _outcome_of(run, before), before)


def _drive_to_the_end(output: Output, run: OpenRun) -> None:
    """Nobody drives the run: do it here, with cancelled as the goal."""
    from npa.cli.driving import run_driver
    from npa.cli.spec import tools_of
    from npa.orchestration.hosts import make_host

    host = make_host(tools_of([Path(path) for path in run.request.catalogs]))
    run_driver(output, host, run, goal=Goal.CANCELLED)


def _wait_for_the_driver(output: Output, run: OpenRun) -> None:
    """The run's own driver cancels it: wait until its journal says so."""
    output.note(f"asked the driver of {run.place.run_id} to cancel it")
    view = run.state.driver
    if view is not None and driver_stopped(view):
        output.warning(f"that driver, process {view.pid}, is stopped by a signal and hears nothing")
        output.hint(f"`kill -CONT {view.pid}` lets it go on and cancel the run")
    deadline = time.monotonic() + CANCEL_SECONDS_MAX
    while not run.state.lifecycle.over and not run.state.held and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        with suppress(StorageError):  # cannot see: look again until the deadline
            run.state.apply(run.journal.refresh())


def _outcome_of(run: OpenRun, before: Sequence[str]) -> str:
    """The public word for what the cancellation came to."""
    match run.state.lifecycle:
        case Lifecycle.CANCELLED:
            return "cancelled"
        case Lifecycle.COMPLETED | Lifecycle.FAILED:
            return "no_cancellation_needed"
        case Lifecycle.NEW | Lifecycle.RUNNING:
            ended = any(not run.state.attempts[key].open for key in before)
            return "partial_cancellation" if ended else "verification_failed"
        case _:
            assert_never(run.state.lifecycle)


_SENTENCES = {
    "terminal": "was over already; nothing was done",
    "cancelled": "is cancelled: nothing of it runs any more",
    "no_cancellation_needed": "ended before it was cancelled",
    "partial_cancellation": "is cancelled in part: not every job was seen to have ended",
    "verification_failed": "was asked to stop and was not seen to",
}


def _tell_cancelled(output: Output, run: OpenRun, outcome: str, before: Sequence[str]) -> int:
    attempts = [run.state.attempts[key] for key in before]
    verified = outcome in ("terminal", "cancelled", "no_cancellation_needed")
    left = [attempt for attempt in attempts if attempt.open]
    output.document(
        {
            "run_id": run.place.run_id,
            "outcome": outcome,
            "status": run.state.lifecycle.value,
            "reason": run.state.cancel.reason if run.state.cancel else "",
            "verification": "verified" if verified else "unverified",
            "message": f"{run.place.run_id} {_SENTENCES[outcome]}",
            "cancelled_job_ids": [a.native_id for a in attempts if not a.open],
            "jobs": [
                {
                    "job": attempt.name,
                    "job_id": attempt.native_id,
                    "steps": list(attempt.members),
                    "ended": not attempt.open,
                }
                for attempt in attempts
            ],
        }
    )
    output.line(f"{run.place.run_id} {_SENTENCES[outcome]}")
    for attempt in left:
        output.line(f"  {attempt.name}  {attempt.native_id or 'ID not known'}")
    if not verified:
        output.hint("the same command may be repeated; it looks again and asks again")
    return ExitCode.OK if verified else ExitCode.UNVERIFIED
