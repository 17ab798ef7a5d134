"""A driver as a process of its own: it outlives the command and the terminal that started it."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from npa.cli.exit_codes import ExitCode
from npa.cli.output import Output
from npa.errors import EngineError, StorageError
from npa.orchestration.runs import OpenRun
from npa.target.home import Home, private_folder

BEGIN_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.05
DRIVER_COMMAND = "drive-detached"
_TAIL_BYTES = 4096


def hand_over(output: Output, run: OpenRun) -> int:
    """Start the driver of a run that has begun, wait until it drives, and say where to look.

    Raises EngineError if the driver ended or did not begin in time; the run itself exists.
    """
    run_id = run.place.run_id
    log = driver_log(run_id)
    pid = start_driver(run_id, log)
    _wait_until_driven(run, pid, log)
    output.line(run_id)
    output.document(
        {
            "status": "submitted",
            "workflow": run.place.workflow,
            "run_id": run_id,
            "run_prefix_uri": run.place.run_uri,
            "driver_pid": pid,
            "driver_log": str(log),
        }
    )
    output.hint(f"`npa workflow status {run_id} --watch` follows it")
    return ExitCode.OK


def driver_log(run_id: str) -> Path:
    """Where a detached driver writes its progress: private, on this host only."""
    return private_folder(Home.find().jobs / run_id) / "driver.log"


def start_driver(run_id: str, log: Path) -> int:
    """Start the driver in a session of its own and return its pid.

    It gets our environment, and nothing but the run's ID in argv. It is not our child in the sense
    of being waited for: it is meant to outlive us.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "npa.cli.main", "workflow", DRIVER_COMMAND, run_id],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _wait_until_driven(run: OpenRun, pid: int, log: Path) -> None:
    """Return when the journal names that process as its driver, or the run is already over."""
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        with suppress(StorageError):  # cannot see: look again until the deadline
            run.state.apply(run.journal.refresh())
        driver = run.state.driver
        if run.state.lifecycle.over or (driver is not None and driver.pid == pid):
            return
        if ended:
            code = os.waitstatus_to_exitcode(status)
            raise _not_begun(run, f"its driver ended with {code}", log)
        time.sleep(_POLL_SECONDS)
    raise _not_begun(run, f"its driver did not begin within {BEGIN_SECONDS_MAX:.0f} s", log)


def _not_begun(run: OpenRun, what: str, log: Path) -> EngineError:
    said = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    return EngineError(
        f"run `{run.place.run_id}` was created, but {what}",
        not_done="nothing is known to have been launched",
        hint=f"the driver's last words in {log}: {said[-1] if said else 'none'}",
        next_command=f"npa workflow resume {run.place.run_id}",
        code="DRIVER_NOT_BEGUN",
    )
