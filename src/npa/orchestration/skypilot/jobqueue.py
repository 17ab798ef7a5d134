"""The queue of a session: one call for all jobs, never more often than every three seconds.

Each call starts a Python that imports SkyPilot, more than a second of a core. So a queue in which
nothing moves is asked less and less often, down to every twelve seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import assert_never

from msgspec import Struct, field

from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.skypilot.client import Answer, Broken, Refused, Reply
from npa.orchestration.skypilot.rows import SOURCE, Row, SchemaError, Snapshot, parse

GAP_SECONDS = 3.0  # a call starts a Python on the controller's side
GAP_SECONDS_MAX = 12.0
GAP_GROWTH = 1.5
CALL_SECONDS_MAX = 90.0  # the first one after a server's start took 40 s under load
CONTROLLER_NOT_UP = "controller_not_up"  # a cause; with `:` and SkyPilot's word where it has one
# SkyPilot's own sentence is "No in-progress managed jobs.", which it cannot know.
CONTROLLERS = {
    "stopped": "the jobs controller is stopped, and its queue can be read only when it runs again",
    "init": "the jobs controller is being started, or was left half made",
}
BROKEN_MAX = 3  # calls without an answer, then the bridge is ended and started again


class Clock(Struct, frozen=True):
    """The times that an engine reads, so that tests can turn them."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Queue(Struct):
    """`ask` makes the call, `recover` replaces a bridge that does not answer."""

    ask: Callable[[], Reply]
    recover: Callable[[], None]
    clock: Clock = field(default_factory=Clock)
    _asked: float = float("-inf")
    _gap: float = GAP_SECONDS
    _last: Observation[Snapshot] | None = None
    _most: int = 0
    _broken: int = 0

    def snapshot(self, not_before: float = 0.0, *, eager: bool = False) -> Observation[Snapshot]:
        """The whole queue, asked at or after `not_before`, at most GAP_SECONDS_MAX old.

        `eager`: at most GAP_SECONDS old, for who waits for something that has to come.
        """
        age = self.clock.monotonic() - self._asked
        if (
            age < (GAP_SECONDS if eager else self._gap)
            and self._last is not None
            and self._fresh(self._last, not_before)
        ):
            return self._last
        if age < GAP_SECONDS:
            self.clock.sleep(GAP_SECONDS - age)
        self._asked = self.clock.monotonic()
        as_of = self.clock.now()
        before, self._last = self._last, self._read(self.ask(), as_of)
        still = self._rows(before) == self._rows(self._last)
        self._gap = min(self._gap * GAP_GROWTH, GAP_SECONDS_MAX) if still else GAP_SECONDS
        return self._last

    @staticmethod
    def _rows(seen: Observation[Snapshot] | None) -> tuple[Row, ...] | None:
        return seen.value.rows if isinstance(seen, Found) else None

    @staticmethod
    def _fresh(last: Observation[Snapshot], not_before: float) -> bool:
        match last:
            case Found(as_of=as_of):
                return as_of >= not_before
            case Unavailable() | Absent() | Ambiguous():
                return False
            case _:
                assert_never(last)

    def _read(self, reply: Reply, as_of: float) -> Observation[Snapshot]:
        match reply:
            case Answer(value=value):
                self._broken = 0
                return self._parsed(value, as_of)
            case Refused(code=code, message=message, controller=controller):
                self._broken = 0
                cause = f"{code}:{controller.lower()}" if controller else code
                detail = CONTROLLERS.get(controller.lower(), message[:300])
                return Unavailable(cause, detail, SOURCE, as_of)
            case Broken(cause=cause, detail=detail):
                self._broken += 1
                if self._broken >= BROKEN_MAX:
                    self._broken = 0
                    self.recover()
                return Unavailable(cause, detail, SOURCE, as_of)
            case _:
                assert_never(reply)

    def _parsed(self, value: object, as_of: float) -> Observation[Snapshot]:
        try:
            snapshot = parse(value, as_of)  # type: ignore[arg-type]
        except SchemaError as error:
            return Unavailable("schema", str(error), SOURCE, as_of)
        if snapshot.total < self._most:
            # SkyPilot never forgets a job: this is another state, or half of one.
            detail = f"{snapshot.total} jobs where there were {self._most}"
            return Unavailable("queue_shrank", detail, SOURCE, as_of)
        self._most = snapshot.total
        return Found(snapshot, SOURCE, as_of)
