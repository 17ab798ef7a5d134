"""The world of one schedule: the clocks, the points at which faults happen, and who is alive.

Virtual time moves only while somebody waits (and a hair at each point, so that stamps differ). All
drivers share it; the wall clock may jump, the monotonic one never does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from simulation.choices import Plan
from simulation.faults import KILL_BETWEEN, Op, kinds_at

if TYPE_CHECKING:
    from npa.orchestration.driver import Driver
    from simulation.person import Person
    from simulation.provider import Provider
    from simulation.watch import Watch

T = TypeVar("T")

EPOCH = 1_000_000.0
POINT_SECONDS = 0.001
POINTS_MAX = 3000
"""More points than this after the last fault of a schedule: something does not end."""
JUMP_SECONDS = 4000.0
SLEEP_SECONDS = 40.0
OUTAGE_CALLS = 4


class Killed(BaseException):
    """The driver's process died here."""


class Endless(BaseException):
    """The schedule does not end."""


class Violation(AssertionError):
    """An invariant does not hold. `number` is the one of the list in `invariants`."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"invariant {number}: {what}")
        self.number = number


@dataclass(slots=True)
class Process:
    """One driver process. `last` is what it was last told of each attempt, by job name."""

    pid: int
    driver: Driver | None = None
    alive: bool = True
    dies_next: bool = False
    acked: int = 0  # the newest frame of its own that it knows to be written
    last: dict[str, object] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)  # launch replies, by attempt key


class World:
    """Everything outside the drivers."""

    store: dict[str, bytes]
    provider: Provider
    watch: Watch
    person: Person

    def __init__(self, plan: Plan, *, person_faults: bool = True, switches: bool = False) -> None:
        self.plan = plan
        self.mono = 0.0
        self.wall = EPOCH
        self.point = 0
        self.calm_since = 0
        self.process = Process(0)
        self.processes: dict[int, Process] = {}
        self.trace: list[Op] = []
        self.down: dict[str, int] = {}  # outages: calls that still fail, by what is down
        self.space = True
        self.natures: list[str] = []
        self.switch: Callable[[], None] = lambda: None
        self._kinds = {op: kinds_at(op, person=person_faults, switch=switches) for op in Op}

    # -- clocks (of every driver) --------------------------------------------------------------

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def advance(self, seconds: float) -> None:
        self.mono += seconds
        self.wall += seconds
        self.provider.advance(self.mono)

    # -- processes -----------------------------------------------------------------------------

    def start_process(self) -> Process:
        process = Process(len(self.processes) + 1)
        self.processes[process.pid] = process
        self.process = process
        return process

    def next_nature(self) -> str:
        """How the next job behaves, if the scenario says so."""
        return self.natures.pop(0) if self.natures else ""

    # -- points --------------------------------------------------------------------------------

    def enter(self, op: Op) -> str:
        """A call of kind `op` leaves the driver: what goes wrong with it ("" for nothing).

        Raises Killed (before the effect) and Endless.
        """
        if self.process.dies_next:
            raise Killed
        self.point += 1
        if self.point - self.calm_since > POINTS_MAX:
            raise Endless
        self.trace.append(op)
        self.mono += POINT_SECONDS
        self.wall += POINT_SECONDS
        fault = self.plan.pick(self.point, op, self._kinds[op])
        if not fault:
            return ""
        self.calm_since = self.point
        return self._general(fault)

    def _general(self, fault: str) -> str:
        """Carry out the faults that can happen at every call; hand back the others."""
        match fault:
            case "kill-before":
                raise Killed
            case "kill-after":
                self.process.dies_next = True
            case "cancel":
                self.person.cancel("a person asked")
            case "ctrl-c":
                self._driver().request_cancel("interrupted by Ctrl-C")
            case "cancel+ctrl-c":
                self.person.cancel("a person asked")
                self._driver().request_cancel("interrupted by Ctrl-C")
            case "stop":
                self._driver().request_stop()
            case "switch":
                self.switch()
            case _:
                return fault
        return ""

    def _driver(self) -> Driver:
        assert self.process.driver is not None
        return self.process.driver

    def act(self, fault: str, effect: Callable[[], T]) -> T:
        """Let an effect happen; die before its reply if that is the fault."""
        result = effect()
        if fault == KILL_BETWEEN:
            raise Killed
        return result

    def is_down(self, what: str, fault: str) -> bool:
        """Does this call fail for being unable to reach `what`?"""
        left = self.down.get(what, 0)
        if left:
            self.down[what] = left - 1
            return True
        if fault in ("outage", "burst"):
            self.down[what] = OUTAGE_CALLS - 1
            return True
        return fault == "unavailable"
