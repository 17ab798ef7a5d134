"""An engine over the stand-in bridge, a session that is none and a clock that tests turn."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from npa.observation import Observation
from npa.orchestration.engine import Job, JobRef, JobStatus, Task
from npa.orchestration.skypilot.client import BridgeClient
from npa.orchestration.skypilot.engine import SkyPilotEngine
from npa.orchestration.skypilot.jobqueue import GAP_SECONDS_MAX, Clock
from npa.orchestration.skypilot.launches import Launches
from npa.orchestration.skypilot.ownership import Owned
from npa.orchestration.skypilot.procfs import Process
from npa.orchestration.skypilot.refusals import Refusal, refuse
from npa.workflow.step import Command, Step

STANDIN = Path(__file__).with_name("standin_bridge.py")
KEY = "abcdef0123"


@dataclass
class VirtualClock:
    at: float = 1_000_000.0

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    def clock(self) -> Clock:
        return Clock(now=lambda: self.at, monotonic=lambda: self.at, sleep=self.sleep)


@dataclass
class FakeSession:
    """Proves a server of ours; `gone` says that there is none, `fault` that it is not ours."""

    starts: int = 0
    boot: int = 1
    gone: bool = False
    fault: Refusal | None = None

    def start(self) -> Owned:
        if self.fault is not None:
            raise refuse(self.fault, "as told")
        self.starts += 1
        if self.gone:
            self.gone = False
            self.boot += 1
        return self.owned()

    def prove(self) -> Owned:
        if self.gone:
            raise refuse(Refusal.NOT_RUNNING, "it is gone")
        if self.fault is not None:
            raise refuse(self.fault, "as told")
        return self.owned()

    def owned(self) -> Owned:
        process = Process(pid=100 + self.boot, start_ticks=1, ppid=1, sid=100 + self.boot, uid=0)
        return Owned("http://127.0.0.1:20001", "marker", process, "boot")


@dataclass(frozen=True)
class Documents:
    text: str
    task_names: Mapping[str, str]
    secrets: tuple[str, ...] = ()


@dataclass
class World:
    path: Path
    engine: SkyPilotEngine
    session: FakeSession
    time: VirtualClock
    secrets: tuple[str, ...] = field(default=())

    def read(self) -> dict[str, Any]:
        return json.loads(self.path.read_text())

    def change(self, **more: Any) -> None:
        self.path.write_text(json.dumps(self.read() | more))

    def fault(self, **faults: Any) -> None:
        self.change(faults=self.read()["faults"] | faults)

    def rows(self, **more: Any) -> None:
        """Change every row of the queue."""
        self.change(jobs=[row | more for row in self.read()["jobs"]])

    def look(self, name: str = "job", key: str = KEY, native: str = "") -> Observation[JobStatus]:
        self.time.sleep(GAP_SECONDS_MAX)  # so that it is a fresh one
        return self.engine.observe([JobRef(name, key, native)])[name]

    @property
    def posts(self) -> int:
        return int(self.read()["posts"])


def job(name: str = "job", key: str = KEY, **more: Any) -> Job:
    step = Step(path="a", state="a", command=Command(argv=("true",)))
    return Job(name=name, key=key, tasks=(Task(step, **more),))


@pytest.fixture(name="world")
def engine_world(tmp_path: Path) -> Iterator[World]:
    path = tmp_path / "world.json"
    path.write_text(json.dumps({"jobs": [], "faults": {}, "requests": {}, "posts": 0}))
    session, virtual = FakeSession(), VirtualClock()
    made: World

    def render(wanted: Job) -> Documents:
        text = f"name: {wanted.name}\n---\nname: task-a\n"
        return Documents(text, {"a": "task-a"}, made.secrets)

    engine = SkyPilotEngine(
        session=session,
        bridge=BridgeClient(
            argv=(sys.executable, "-I", "-u", str(STANDIN), str(path)),
            environment=dict,
            cwd=tmp_path,
            log=tmp_path / "bridge.log",
        ),
        launches=Launches(tmp_path / "launches"),
        render=render,
        facts={"skypilot": "0.12.2"},
        infra=("slurm/bed",),
        clock=virtual.clock(),
    )
    made = World(path, engine, session, virtual)
    yield made
    engine.bridge.restart()
