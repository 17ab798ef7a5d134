"""The secrets of a run that is over, taken out of what SkyPilot keeps in the session's folder.

0.12.2 writes the values that a task gets into its database of requests (which it empties at each
start of the server), into its database of managed jobs, and into files beside both. Nothing of it
is read again once every job has ended; the rows themselves stay, so that job IDs go on counting.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_WHOLE = ("api_server/requests.db*", "api_server/clients/**/*", "managed_jobs/*")
_JOBS = "spot_jobs.db"
_COLUMNS = ("dag_yaml_content", "env_file_content", "original_user_yaml_content")


def forget(home: Path) -> None:
    """Take them out. The server and its controllers must have stopped. May be repeated.

    Raises OSError and sqlite3.Error if something cannot be removed.
    """
    state = home / ".sky"
    for pattern in _WHOLE:
        for path in state.glob(pattern):
            if not path.is_dir() or path.is_symlink():
                path.unlink(missing_ok=True)
    database = state / _JOBS
    if database.exists():
        _empty(database)


def _empty(database: Path) -> None:
    with closing(sqlite3.connect(database, timeout=10.0, isolation_level=None)) as jobs:
        jobs.execute("PRAGMA secure_delete = ON")
        found = jobs.execute("PRAGMA table_info(job_info)").fetchall()
        for column in sorted({str(row[1]) for row in found} & set(_COLUMNS)):
            jobs.execute(f"UPDATE job_info SET {column} = NULL")  # noqa: S608 - names from above
        jobs.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        jobs.execute("VACUUM")  # free pages keep what was in them
        jobs.execute("PRAGMA wal_checkpoint(TRUNCATE)")
