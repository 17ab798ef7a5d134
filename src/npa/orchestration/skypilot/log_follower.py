"""A part of the bridge: one log of a task, copied into a file for as long as it is written.

As bridge.py, it is run by SkyPilot's own interpreter and imports nothing of npa.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

FIRST_SECONDS_MAX = 10.0  # for the first bytes of a log: `sky` is imported, and the node is asked
QUIET_SECONDS = 0.5


class Follower:
    """One log that is copied into a file, in a thread that nobody waits for."""

    def __init__(self, path: str, job_id: int, task: Any) -> None:
        self.failed = False
        self._what = (path, job_id, task)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def settle(self) -> None:
        """Wait until what was written before has come: it is there and grows no more, or it has
        ended, or FIRST_SECONDS_MAX have passed."""
        deadline = time.monotonic() + FIRST_SECONDS_MAX
        size, since = 0, time.monotonic()
        while self.thread.is_alive() and time.monotonic() < deadline:
            self.thread.join(0.1)
            try:
                now = os.stat(self._what[0]).st_size  # noqa: PTH116
            except OSError:
                now = 0
            if now != size:
                size, since = now, time.monotonic()
            elif size and time.monotonic() - since > QUIET_SECONDS:
                return

    def _run(self) -> None:
        from sky import jobs

        path, job_id, task = self._what
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(path, flags, 0o600), "w", buffering=1, newline="") as sink:
                jobs.tail_logs(job_id=job_id, follow=True, task=task, output_stream=sink)
        except BaseException as error:
            self.failed = True
            print(f"log of job {job_id}: {type(error).__name__}", file=sys.stderr)  # noqa: T201
