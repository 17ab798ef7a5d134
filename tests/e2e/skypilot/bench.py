"""A bench for whole runs: the command line over a home, a bucket and the bed, and what it left.

What SkyPilot and Slurm say is read from their own database and their own command, never through
the code under test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npa.observation import Found
from npa.orchestration.journal.chain import Journal
from npa.orchestration.skypilot import ownership, procfs, record
from npa.orchestration.skypilot.record import Kind, State
from npa.orchestration.skypilot.session import Session
from npa.orchestration.skypilot.spec import SessionSpec
from s3server import S3

HEAD = """\
apiVersion: npa.workflow/v0.0.1
kind: Workflow
metadata: {name: bed}
resources:
  one: {cpus: 1}
  gang: {cpus: 1, num_nodes: 2, accelerators: "H100:2"}
"""
# What payloads do with the run's store. `put` only creates, so a payload that ran twice would fail.
STORE = """\
import os, sys, time
from npa.observation import Found
from npa.storage import CreateOutcome, open_store
from npa.target.credentials import storage_access

store = open_store(os.environ["NPA_RUN_URI"], storage_access().options)
verb, name, *words = sys.argv[1:]
if verb == "put" and store.create(name, " ".join(words).encode()) is not CreateOutcome.CREATED:
    sys.exit(f"{name} is there already")
deadline = time.monotonic() + 300
while verb in ("get", "wait"):
    seen = store.get(name)
    if isinstance(seen, Found):
        print(seen.value.data.decode())
        break
    if verb == "get" or time.monotonic() > deadline:
        sys.exit(f"{name} is not there: {seen}")
    time.sleep(1)
"""
IDS = "SELECT spot_job_id FROM job_info UNION SELECT spot_job_id FROM spot"
ROWS = """
SELECT s.spot_job_id, i.name, s.task_name, s.status, i.schedule_state, s.recovery_count,
       s.start_at, s.end_at
FROM spot s JOIN job_info i ON s.spot_job_id = i.spot_job_id ORDER BY s.spot_job_id, s.task_id
"""


@dataclass(frozen=True)
class Row:
    """One task of one managed job, as SkyPilot itself has written it down."""

    job_id: int
    job: str
    task: str
    status: str
    schedule: str
    recoveries: int
    start_at: float | None
    end_at: float | None


@dataclass
class Bench:
    """A home, a folder for pipelines and a bucket, and the command line over them."""

    folder: Path
    s3: S3
    bed: Mapping[str, Any]
    variables: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ},
            **self.s3.environment,
            "HOME": str(self.folder),
            "NPA_SKYPILOT_BIN": self.bed["sky_bin"],
            "NPA_BAKED_PYTHON": self.bed["node_python"],
            **self.variables,
        }

    # -- the command line ----------------------------------------------------------------------

    def submit(self, run_id: str, states: str, *options: str) -> subprocess.Popen[str]:
        """Start `submit` of a pipeline of these states in the background."""
        pipeline = self.folder / run_id
        pipeline.mkdir()
        (pipeline / "pipeline.yaml").write_text(HEAD + states)
        (pipeline / "store.py").write_text(STORE)
        return self.submit_file(run_id, pipeline / "pipeline.yaml", *options)

    def submit_file(self, run_id: str, spec: Path, *options: str) -> subprocess.Popen[str]:
        # SkyPilot's tables of accelerators come from the internet otherwise.
        session = self.session(run_id)
        catalog = session / "home/.sky/catalogs/v8/common"
        catalog.mkdir(parents=True)
        session.chmod(0o700)
        for table in Path(self.bed["catalog"]).glob("*.csv"):
            shutil.copy(table, catalog)
        return self.npa(
            *("workflow", "submit", str(spec), "--engine", "skypilot"),
            *("--infra", self.bed["infra"], "--slurm-config", self.bed["slurm_ssh_config"]),
            # The nodes can install nothing: this names the Python that is there.
            *("--env", "NPA_BAKED_PYTHON"),
            *("--store", f"{self.s3.uri}runs/", "--run-id", run_id, "--json", *options),
        )

    def npa(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "npa.cli.main", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def ask(self, *words: str, seconds: float = 420.0) -> tuple[int, dict[str, Any]]:
        """The exit code and the document of one command."""
        code, out, err = ended(self.npa("workflow", *words, "--json"), seconds)
        assert out, err
        document: dict[str, Any] = json.loads(out)
        return code, document

    def log(self, run_id: str, step: str) -> str:
        code, out, err = ended(self.npa("workflow", "logs", run_id, step), 120)
        assert code == 0, err
        return out

    def sky(self, run_id: str, *words: str) -> str:
        """SkyPilot's own command, as a person would use it on the run's server."""
        present = self.server(run_id)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.session(run_id) / "home"),
            "SKYPILOT_API_SERVER_ENDPOINT": present.endpoint,
            "SKYPILOT_USER_ID": present.user_id,
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        }
        done = subprocess.run(
            [self.bed["sky_bin"], *words],
            env=environment,
            cwd=environment["HOME"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kill(self, driver: subprocess.Popen[str]) -> None:
        """SIGKILL, to the driver alone: its bridge and its server have sessions of their own."""
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        assert driver.returncode == -signal.SIGKILL, "it ended before it was killed"

    # -- what there is -------------------------------------------------------------------------

    def text(self, run_id: str, name: str) -> str:
        seen = self.s3.store(f"runs/{run_id}/").get(name)
        return seen.value.data.decode() if isinstance(seen, Found) else ""

    def entries(self, run_id: str) -> list[Any]:
        """The run's journal, entry by entry."""
        frames = Journal(self.s3.store(f"runs/{run_id}/"), time.time).read()
        return [entry for frame in frames for entry in frame.entries]

    def session(self, run_id: str) -> Path:
        return self.folder / ".npa/skypilot/sessions" / run_id

    def rows(self, run_id: str) -> list[Row]:
        return [Row(*found) for found in told(self.session(run_id), ROWS)]

    def statuses(self, run_id: str) -> list[tuple[str, str]]:
        return [(row.status, row.schedule) for row in self.rows(run_id)]

    def allocations(self, run_id: str) -> list[str]:
        """Slurm's own jobs of a run: SkyPilot names each after its user."""
        return allocations(self.session(run_id))

    def server(self, run_id: str) -> record.Record:
        present = record.load(self.session(run_id))
        assert present is not None
        return present

    def bridge(self, run_id: str) -> int:
        """The process of the run's bridge, 0 if there is none."""
        home = str(self.session(run_id) / "home")
        for process in procfs.mine():
            argv = procfs.command_line(process.pid)
            ours = bool(argv) and argv[-1].endswith("/skypilot/bridge.py")
            if ours and procfs.has_variable(process.pid, "HOME", home):
                return process.pid
        return 0

    # -- waiting, and the end ------------------------------------------------------------------

    def until(
        self,
        what: Callable[[], object],
        driver: subprocess.Popen[str] | None,
        seconds: float = 420.0,
        pause: float = 0.3,
    ) -> None:
        """Look until `what` holds. A driver that ends meanwhile is the end of the waiting."""
        deadline = time.monotonic() + seconds
        while not what():
            if driver is not None and driver.poll() is not None and not what():
                raise AssertionError(f"the driver ended: {driver.communicate()}")
            assert time.monotonic() < deadline, "it did not come"
            time.sleep(pause)

    def assert_nothing_is_left(self, run_id: str) -> None:
        """No server, no controller, no bridge, no row that goes on, no allocation."""
        present = self.server(run_id)
        assert present.state is State.STOPPED
        assert ownership.sight(present).all == ()
        assert self.bridge(run_id) == 0
        assert {schedule for _, schedule in self.statuses(run_id)} == {"DONE"}
        assert self.allocations(run_id) == []

    def managed_jobs(self) -> dict[str, int]:
        """How many managed jobs each session of this bench has made."""
        sessions = (self.folder / ".npa/skypilot/sessions").glob("*")
        return {session.name: managed_jobs(session) for session in sessions}

    def clear(self) -> None:
        """Whatever a failed test left: drivers, servers and their controllers, allocations."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        with ExitStack() as every:  # all of them, whatever one of them raises
            for session in (self.folder / ".npa/skypilot/sessions").glob("*"):
                every.callback(clear_session, session, self.bed)


def told(session: Path, query: str) -> list[tuple[Any, ...]]:
    """What SkyPilot's own database of managed jobs says; nothing if there is none yet."""
    database = session / "home/.sky/spot_jobs.db"
    if not database.exists():
        return []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as db:
        try:
            return list(db.execute(query))
        except sqlite3.OperationalError:  # made, and not filled yet
            return []


def managed_jobs(session: Path) -> int:
    """How many managed jobs a session has made. A job group is one, whatever it has of tasks."""
    return len(told(session, IDS))


def allocations(session: Path) -> list[str]:
    present = record.load(session)
    if present is None:
        return []
    said = subprocess.run(
        ["squeue", "-h", "-o", "%i %j"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    pairs = [line.split(maxsplit=1) for line in said.splitlines()]
    return [number for number, name in pairs if present.user_id in name]


def clear_session(root: Path, bed: Mapping[str, Any]) -> None:
    """Stop what runs from a session's folder, and free what it holds of Slurm."""
    interpreter = Path(bed["sky_bin"]).parent.resolve() / "python"
    try:
        Session(SessionSpec(root=root, kind=Kind.RUN, interpreter=interpreter, env={})).stop()
    finally:
        left = allocations(root)
        if left:
            subprocess.run(["scancel", *left], timeout=30, check=False)


def ended(process: subprocess.Popen[str], seconds: float = 540.0) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err
