"""An independent reading of the journal, and what was so when something happened.

Frames are read as plain JSON when they are written, without the production codec. For each launch,
cancel, payload start and end the facts of that moment are kept; `invariants` judges them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npa.orchestration.engine import ExactJob, Job
from npa.orchestration.journal.chain import FOLDER
from npa.orchestration.journal.frame import parse
from npa.orchestration.state import RunState

if TYPE_CHECKING:
    from simulation.provider import Pod, Row
    from simulation.scenarios import Scenario
    from simulation.world import Process, World

PERSON = -1


@dataclass(slots=True)
class Try:
    """One attempt, as the journal's JSON has it."""

    wave: str
    number: int
    cause: str
    parent: str
    name: str
    paths: tuple[str, ...]
    reopened: int  # how often the run had been reopened when it was reserved
    intents: int = 0
    native_id: str = ""
    cancels: list[str] = field(default_factory=list)
    ended: dict[str, Any] | None = None

    @property
    def free(self) -> bool:
        """It ended without a launch and is charged to no budget: its driver died over it."""
        return self.ended is not None and (self.ended["result"], self.ended["klass"]) == (
            "refused",
            "",
        )


@dataclass(slots=True)
class LaunchFact:
    pid: int
    key: str
    intended: bool  # its intent was durable
    number: int
    check_age: float  # seconds since its own process saw a good preflight; 0: none was due


@dataclass(slots=True)
class CancelFact:
    pid: int
    exact: ExactJob
    recorded: tuple[str, ...]  # IDs that the journal held
    intended: bool
    seen: object  # what this process was last told of the job


@dataclass(slots=True)
class EndFact:
    """An attempt ended in the journal."""

    pid: int
    key: str
    body: dict[str, Any]
    seen: object
    refused: bool
    writers: dict[str, tuple[str, ...]]  # path -> writers of its declared outputs ("" is absent)


@dataclass(slots=True)
class StartFact:
    key: str
    path: str
    missing: tuple[str, ...]  # needed paths that had not ended well


@dataclass(slots=True)
class BirthFact:
    key: str
    live_before: tuple[str, ...]  # keys of other attempts of the wave with a live row


@dataclass(slots=True)
class OverFact:
    kind: str
    pid: int
    live: tuple[int, ...]  # rows that were live
    open: tuple[str, ...]  # attempts without an end


class Watch:
    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario
        self.author = 0  # PERSON while a person writes
        self.tries: dict[str, Try] = {}
        self.latest: dict[str, str] = {}  # path -> key
        self.declared: dict[str, tuple[str, ...]] = {}
        self.launches: list[LaunchFact] = []
        self.cancels: list[CancelFact] = []
        self.ends: list[EndFact] = []
        self.starts: list[StartFact] = []
        self.births: list[BirthFact] = []
        self.overs: list[OverFact] = []
        self.reopened = 0
        self.problems: list[tuple[int, str]] = []
        self.shadow = RunState()
        self.preflights: dict[int, float] = {}  # process -> when its last good one was
        self.recoveries: list[str] = []  # attempts that replace one that had been launched
        self.vouched: set[str] = set()
        self.log: list[str] = []  # what was done and seen, in order, in words

    # -- the journal ---------------------------------------------------------------------------

    def wrote(self, key: str, data: bytes) -> None:
        if not key.startswith(FOLDER):
            return
        raw = json.loads(data)
        for entry in raw["entries"]:
            self._entry(entry["kind"], entry["body"])
        try:
            self.shadow.apply([parse(data)])
        except Exception as error:
            self.problems.append((11, f"frame {raw['n']} does not follow: {error}"))

    def _entry(self, kind: str, body: dict[str, Any]) -> None:
        pid = self.author or self._world.process.pid
        match kind:
            case "reserved":
                if self.overs and not self._open_again():
                    self.problems.append((7, "an attempt was reserved after the end"))
                self.tries[body["key"]] = Try(
                    body["wave"],
                    body["number"],
                    body["cause"],
                    body.get("parent", ""),
                    body["name"],
                    tuple(body["digests"]),
                    self.reopened,
                )
                self.latest.update(dict.fromkeys(body["digests"], body["key"]))
                self.log.append(f"reserve {body['number']} {body['cause']}")
                if body["cause"] == "recovery":
                    self._recovery(body)
            case "intent" if body["verb"] == "launch":
                self._try(body).intents += 1
            case "intent":
                self._try(body).cancels.append(body["native_id"])
            case "outcome":
                known = self._try(body)
                if known.native_id:
                    self.problems.append((7, f"{known.name} got a second ID"))
                known.native_id = body["native_id"]
                if pid == PERSON:
                    self.vouched.add(body["key"])
            case "ended":
                self._ended(pid, body)
            case "observed" | "cancel_unverified" | "vouched":
                self._try(body)
            case "completed" | "run_failed" | "run_cancelled":
                self._over(kind, pid)
            case "reopened":
                self.reopened += 1

    def _try(self, body: dict[str, Any]) -> Try:
        known = self.tries[body["key"]]
        if known.ended is not None:
            self.problems.append((7, f"{known.name} went on after its end"))
        return known

    def _open_again(self) -> bool:
        return self.reopened > sum(1 for _ in self.overs) - 1

    def _recovery(self, body: dict[str, Any]) -> None:
        parent = self.tries.get(body.get("parent", ""))
        if parent is None or parent.ended is None:
            return
        if parent.ended["result"] != "refused" or body["parent"] in self.recoveries:
            self.recoveries.append(body["key"])

    def _ended(self, pid: int, body: dict[str, Any]) -> None:
        known = self._try(body)
        known.ended = body
        process = self._world.processes.get(pid)
        seen = process.last.get(known.name) if process is not None else None
        refused = process is not None and process.accepted.get(body["key"]) == "refused"
        artifacts = self._world.provider.artifacts
        writers = {
            path: tuple(
                artifacts[uri].writer if uri in artifacts else ""
                for uri in self.declared.get(path, ())
                if not uri.endswith("/")
            )
            for path in body["members"]
        }
        if pid == PERSON:
            self.vouched.add(body["key"])
        self.ends.append(EndFact(pid, body["key"], body, seen, refused, writers))

    def _over(self, kind: str, pid: int) -> None:
        if self.overs and not self._open_again():
            self.problems.append((7, "the run ended twice"))
        live = tuple(
            r.id for r in self._world.provider.rows if self._world.provider.live(r) and self.ours(r)
        )
        left = tuple(t.name for t in self.tries.values() if t.ended is None)
        self.overs.append(OverFact(kind, pid, live, left))

    def ours(self, row: Row) -> bool:
        """A row that a driver can know of: the one recorded, or the only one of its attempt."""
        known = self.tries.get(row.key)
        return known is not None and known.native_id in ("", str(row.id))

    # -- the engine ----------------------------------------------------------------------------

    def launching(self, process: Process, job: Job) -> None:
        for task in job.tasks:
            self.declared[task.step.path] = tuple(o.uri for o in task.step.outputs)
        known = self.tries.get(job.key)
        intended = known is not None and known.intents == 1 and known.name == job.name
        number = known.number if known is not None else 0
        checked = self.preflights.get(process.pid, float("-inf"))
        age = self._world.mono - checked if job.key in self.recoveries else 0.0
        self.log.append(f"launch {number}")
        self.launches.append(LaunchFact(process.pid, job.key, intended, number, age))

    def cancelling(self, process: Process, exact: ExactJob) -> None:
        recorded = tuple(t.native_id for t in self.tries.values() if t.name == exact.name)
        intended = any(
            exact.native_id in t.cancels for t in self.tries.values() if t.name == exact.name
        )
        seen = process.last.get(exact.name)
        self.log.append(f"cancel {exact.native_id}")
        self.cancels.append(CancelFact(process.pid, exact, recorded, intended, seen))

    def preflighted(self, at: float, *, passed: bool) -> None:
        if passed:
            self.preflights[self._world.process.pid] = at
        self.log.append("preflight" if passed else "preflight failed")

    # -- the provider --------------------------------------------------------------------------

    def born(self, row: Row) -> None:
        known = self.tries.get(row.key)
        if not self._world.provider.live(row):
            return  # its claim is taken: it ends before its payload
        wave = known.wave if known is not None else ""
        paths = set(known.paths) if known is not None else set()
        live = tuple(
            r.key
            for r in self._world.provider.rows
            if r.key != row.key
            and self._world.provider.live(r)
            and self.tries[r.key].wave == wave
            and paths & set(self.tries[r.key].paths)
        )
        self.births.append(BirthFact(row.key, live))

    def started(self, row: Row, pod: Pod) -> None:
        missing = []
        for path in self._scenario.needs.get(pod.path, ()):
            key = self.latest.get(path)
            end = self.tries[key].ended if key is not None else None
            if end is None or end["members"][path]["result"] != "succeeded":
                missing.append(path)
        self.starts.append(StartFact(row.key, pod.path, tuple(missing)))
        if self._scenario.cancel_after == len(self.starts):
            self._world.person.cancel("in mid-wave")
