"""A driver as a process of its own: it outlives the command and the terminal that started it."""

from __future__ import annotations

import os
import subprocess
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
    process = start_driver(run_id, log)
    _wait_until_driven(run, process, log)
    output.line(run_id)
    output.document(
        {
            "status": "submitted",
            "workflow": run.place.workflow,
            "run_id": run_id,
            "run_prefix_uri": run.place.run_uri,
            "driver_pid": process.pid,
            "driver_log": str(log),
        }
    )
    output.hint(f"`npa workflow status {run_id} --watch` follows it")
    return ExitCode.OK


def driver_log(run_id: str) -> Path:
    """Where a detached driver writes its progress: private, on this host only."""
    return private_folder(Home.find().jobs / run_id) / "driver.log"


def start_driver(run_id: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the driver in a session of its own. It gets our environment and nothing in argv."""
    command = [sys.executable, "-m", "npa.cli.main", "workflow", DRIVER_COMMAND, run_id]
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _wait_until_driven(run: OpenRun, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the journal names that process as its driver, or the run is already over."""
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        with suppress(StorageError):  # cannot see: look again until the deadline
            run.state.apply(run.journal.refresh())
        driver = run.state.driver
        if run.state.lifecycle.over or (driver is not None and driver.pid == process.pid):
            return
        if ended:
            raise _not_begun(run, f"its driver ended with {process.returncode}", log)
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
