"""`npa skypilot stop`: end the API server of a run that is over, when its own end could not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from npa.cli.exit_codes import ExitCode
from npa.cli.options import json_option, run_argument
from npa.cli.output import Output
from npa.errors import NpaError, RunError, UsageError

if TYPE_CHECKING:
    from npa.orchestration.runs import Host, OpenRun


@click.command()
@run_argument
@json_option
def stop(run_id: str, as_json: bool) -> int:
    """Stop the API server of a run that is over. Its jobs and its results stay as they are.

    A run's end does this by itself; the command is for what it could not let go of. Logs that are
    not copied yet are copied first, as far as they can be read.
    """
    from npa.orchestration.skypilot.afterwards import end_session

    output = Output(as_json=as_json)
    run_id, root, said = _stop_run(run_id)
    was_running = end_session(root)
    output.line(f"{run_id}: its API server is stopped; nothing of it runs any more")
    if said:
        output.warning(said)
    output.document({"status": "ok", "run_id": run_id, "was_running": was_running, "left": said})
    return ExitCode.OK


def _stop_run(run_id: str) -> tuple[str, Path, str]:
    """The whole ID, the session's folder, and what an orderly end could not do.

    Raises RunError, UsageError.
    """
    from npa.cli.host import reading_host
    from npa.cli.look import open_known
    from npa.orchestration.submission import SESSIONS

    host = reading_host()
    begun = host.home.path / SESSIONS / run_id
    try:
        run = open_known(host, run_id)
    except RunError as error:
        if error.code != "RUN_NOT_FOUND" or not _never_launched(begun):
            raise
        return run_id, begun, ""  # its submission ended before the run began
    run_id = run.place.run_id
    if run.request.engine != "skypilot":
        raise UsageError(
            f"run `{run_id}` has no API server: its engine is `{run.request.engine}`",
            not_done="nothing was stopped",
        )
    if not run.state.lifecycle.over:
        raise RunError(
            f"run `{run_id}` is not over, and needs its API server",
            not_done="nothing was stopped",
            next_command=f"npa workflow cancel {run_id}",
            code="RUN_LIVE",
        )
    return run_id, Path(str(run.request.engine_options["session"])), _in_order(host, run)


def _never_launched(root: Path) -> bool:
    return root.is_dir() and not any((root / "launches").glob("*.json"))


def _in_order(host: Host, run: OpenRun) -> str:
    from npa.orchestration.runs import settle

    try:
        return settle(host.engine(run.request, host.home), run.state)
    except NpaError as error:
        return error.message
