"""One session of a real SkyPilot on the bed, for all tests of this folder."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from e2e.skypilot.bench import Bench, clear_session, managed_jobs
from npa.observation import Found
from npa.orchestration.engine import Job, JobRef, JobStatus, Task
from npa.orchestration.skypilot.client import Answer, BridgeClient, Reply
from npa.orchestration.skypilot.connect import connect
from npa.orchestration.skypilot.engine import SkyPilotEngine
from npa.orchestration.skypilot.record import Kind
from npa.orchestration.skypilot.spec import SessionSpec
from npa.workflow.step import Command, Step
from s3server import S3

BED_JSON = Path("/run/npa-bed/bed.json")
# Each is half a minute of a machine; the digits pipeline has steps of its own and is not counted.
JOBS_MAX = 12
UNCOUNTED = "digits"
TOO_MANY_JOBS = 9  # exit status; no other of pytest's
COUNTS = BED_JSON.with_name("managed-jobs.jsonl")  # written by every worker
CONFIG: Mapping[str, object] = {
    "allowed_clouds": ["slurm"],
    "jobs": {"controller": {"consolidation_mode": True}},
    "provision": {"install_conda": False},
    "slurm": {"provision_timeout": 600},
}


@pytest.fixture(scope="session")
def bed() -> Mapping[str, Any]:
    if not BED_JSON.exists():
        pytest.skip("the bed is not up: `make e2e-skypilot` brings it up and runs these tests")
    return json.loads(BED_JSON.read_text())


@pytest.fixture(scope="session")
def make_spec(bed: Mapping[str, Any]) -> Callable[[Path], SessionSpec]:
    def make(root: Path) -> SessionSpec:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)
        catalog = root / "home/.sky/catalogs/v8/common"
        catalog.mkdir(parents=True)
        for table in Path(bed["catalog"]).glob("*.csv"):
            shutil.copy(table, catalog)
        return SessionSpec(
            root=root,
            kind=Kind.RUN,
            interpreter=Path(bed["sky_bin"]).parent.resolve() / "python",
            env=dict(os.environ),
            sky_config=CONFIG,
            links={".slurm/config": Path(bed["slurm_ssh_config"])},
        )

    return make


@dataclass(frozen=True)
class Documents:
    """A rendering made by hand: these tests are about the engine, not about the renderer."""

    text: str
    task_names: Mapping[str, str]
    secrets: tuple[str, ...] = ()


def task_document(name: str, run: str, more: str = "") -> str:
    body = "\n".join("  " + line for line in run.splitlines())
    return f"name: {name}\nresources: {{infra: slurm/bed, cpus: 1{more}}}\nrun: |\n{body}\n"


@dataclass
class World:
    """An engine, and the documents that it is to render for each job."""

    engine: SkyPilotEngine
    spec: SessionSpec
    documents: dict[str, Documents] = field(default_factory=dict)

    def job(self, name: str, *tasks: str, paths: Mapping[str, str]) -> Job:
        execution = "parallel" if len(tasks) > 1 else "serial"
        header = f"name: {name}\nexecution: {execution}\n"
        text = "---\n".join([header, *tasks])
        self.documents[name] = Documents(text, paths)
        steps = tuple(
            Task(Step(path=path, state=path, command=Command(argv=("true",)))) for path in paths
        )
        return Job(name=name, key=name.encode().hex(), tasks=steps)

    def single(self, name: str, run: str, more: str = "") -> Job:
        return self.job(name, task_document("only", run, more), paths={"only": "only"})

    def ref(self, job: Job, native_id: str = "") -> JobRef:
        return JobRef(job.name, job.key, native_id)

    def until(
        self, job: Job, what: Callable[[JobStatus], bool], seconds: float = 240.0
    ) -> JobStatus:
        """Look until `what` holds of the job. Looks are as rare as the engine makes them."""
        deadline = time.monotonic() + seconds
        last: object = None
        while time.monotonic() < deadline:
            last = self.engine.observe([self.ref(job)])[job.name]
            if isinstance(last, Found) and what(last.value):
                return last.value
            self.engine.wait(1.0)
        raise AssertionError(f"{job.name} after {seconds:.0f} s: {last}")


@pytest.fixture(scope="session")
def world(
    make_spec: Callable[[Path], SessionSpec],
    bed: Mapping[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    spec = make_spec(tmp_path_factory.mktemp("world") / "session")
    made: World

    def render(job: Job) -> Documents:
        return made.documents[job.name]

    made = World(connect(spec, render, infra=("slurm/bed",)), spec)
    made.engine.bridge = recording(made.engine.bridge)
    try:
        yield made
    finally:
        made.engine.close()
        count_jobs({"world": managed_jobs(spec.root)})
        clear_session(spec.root, bed)
        write_recording(made)


class Recorder(BridgeClient):
    """A bridge that keeps what the queue answered, for the recordings that unit tests replay."""

    kept: list[dict[str, Any]] = msgspec.field(default_factory=list)

    def call(self, op: str, seconds: float, **fields: Any) -> Reply:
        reply = super().call(op, seconds, **fields)
        if op in ("queue", "gpus", "check", "cancel"):
            value = reply.value if isinstance(reply, Answer) else {"refused": str(reply)}
            self.kept.append({"op": op, "t": round(time.monotonic(), 1), "value": value})
        return reply


def recording(bridge: BridgeClient) -> Recorder:
    return Recorder(bridge.argv, bridge.environment, bridge.cwd, bridge.log)


def kept_of(world: World) -> list[dict[str, Any]]:
    bridge = world.engine.bridge
    return bridge.kept if isinstance(bridge, Recorder) else []


def write_recording(world: World) -> None:
    """With NPA_RECORD=FILE: one answer a line; answers that say nothing new are left out."""
    target = os.environ.get("NPA_RECORD")
    if not target:
        return
    kept, last = [], None
    for entry in kept_of(world):
        if entry["op"] != "queue" or entry["value"] != last:
            kept.append(json.dumps(entry, sort_keys=True))
        if entry["op"] == "queue":
            last = entry["value"]
    Path(target).write_text("\n".join(kept) + "\n")


@pytest.fixture
def bench(tmp_path: Path, s3: S3, bed: Mapping[str, Any]) -> Iterator[Bench]:
    made = Bench(tmp_path, s3, bed)
    yield made
    try:
        count_jobs(made.managed_jobs())
    finally:
        made.clear()


# -- what it took ------------------------------------------------------------------------------


COUNTS_HERE = pytest.StashKey[bool]()  # not where a larger suite only collects this folder


def count_jobs(sessions: Mapping[str, int]) -> None:
    with COUNTS.open("a") as file:
        for session, jobs in sessions.items():
            file.write(json.dumps([session, jobs]) + "\n")


def counted(config: pytest.Config) -> list[tuple[str, int]]:
    """Session and its jobs; nothing in a worker, which knows only its own."""
    if not config.stash.get(COUNTS_HERE, False) or not COUNTS.exists():
        return []
    return [
        (str(name), int(jobs)) for name, jobs in map(json.loads, COUNTS.read_text().splitlines())
    ]


def without_digits(found: list[tuple[str, int]]) -> int:
    return sum(jobs for name, jobs in found if name != UNCOUNTED)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.stash[COUNTS_HERE] = True
        COUNTS.unlink(missing_ok=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    ran = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if ran and without_digits(counted(session.config)) > JOBS_MAX:
        session.exitstatus = TOO_MANY_JOBS  # which no second try mends


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests measured, of which nothing is asserted as it depends on the machine, and how
    many managed jobs each session made, which has a limit."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "measured" and report.when == "call":
                terminalreporter.write_line(f"measured: {value}")
    found = counted(terminalreporter.config)
    if found:
        used = without_digits(found)
        told = ", ".join(f"{name} {jobs}" for name, jobs in found)
        word = ": TOO MANY" if used > JOBS_MAX else ""
        terminalreporter.write_line(f"managed jobs of each session: {told}")
        terminalreporter.write_line(f"without {UNCOUNTED}: {used}, at most {JOBS_MAX}{word}")
