"""What SkyPilot kept of a run's secrets is gone when the run is over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from npa.orchestration.skypilot.forgetting import forget

VALUE = "a-secret-value"


def fill(home: Path) -> Path:
    """A home as 0.12.2 leaves it: the same value in every place where it was found."""
    state = home / ".sky"
    for name in (
        "api_server/requests.db",
        "api_server/requests.db-wal",
        "api_server/clients/npa-1/tasks/1.yaml",
        "api_server/clients/npa-1/1_translated.yaml",
        "managed_jobs/job-1.yaml",
    ):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(f"TOKEN: {VALUE}")
    database = state / "spot_jobs.db"
    with closing(sqlite3.connect(database)) as jobs:
        jobs.execute("PRAGMA journal_mode = WAL")
        jobs.execute(
            "CREATE TABLE job_info (spot_job_id INTEGER, name TEXT, dag_yaml_content TEXT)"
        )
        for number in range(50):
            row = (number, f"job-{number}", VALUE * 500)
            jobs.execute("INSERT INTO job_info VALUES (?, ?, ?)", row)
        jobs.commit()
    return database


def holders(home: Path) -> list[str]:
    found = [path for path in home.rglob("*") if path.is_file()]
    return [path.name for path in found if VALUE.encode() in path.read_bytes()]


@pytest.mark.req("A-11")
def test_no_file_of_skypilot_holds_a_value_and_its_jobs_are_still_counted(tmp_path: Path) -> None:
    database = fill(tmp_path)
    assert len(holders(tmp_path)) >= 6
    for _ in range(2):
        forget(tmp_path)
        assert holders(tmp_path) == []
    with closing(sqlite3.connect(database)) as jobs:
        counted = jobs.execute("SELECT count(*), max(name) FROM job_info").fetchone()
    assert counted == (50, "job-9")


def test_a_link_is_removed_and_what_it_points_to_is_not(tmp_path: Path) -> None:
    fill(tmp_path / "home")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text(VALUE)
    (tmp_path / "home/.sky/api_server/clients/link").symlink_to(outside)
    forget(tmp_path / "home")
    assert (outside / "kept").exists()


def test_a_session_that_never_started_a_server_has_nothing_to_forget(tmp_path: Path) -> None:
    forget(tmp_path)
    assert list(tmp_path.iterdir()) == []
