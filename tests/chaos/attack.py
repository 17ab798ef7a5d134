"""An attack: a run is begun, its driver killed at chosen moments and resumed, until it has ended.

Moments are drawn from one seeded generator. `ANY` spreads the kills over the whole of a run: each
comes after a random part of what a quiet run takes. The others wait for an event outside the
driver, so that the narrow places are hit as well.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from chaos import checks
from chaos.server import Door
from chaos.world import POLL_SECONDS, Driver, World
from npa.errors import StorageError
from npa.orchestration.local import layout, procfs, records

EVENT_SECONDS_MAX = 3.0  # an event that does not come by then: the kill comes all the same
AFTER_EVENT_SECONDS = 0.004
STEPS_MAX = 60  # of one attack: a run that does not end by then never will


class Moment(Enum):
    """What a kill waits for."""

    ANY = "any time"
    START = "while it starts"
    LAUNCH = "right after a launch"
    COMMIT = "in a commit"
    STAGE = "as a stage begins"


class Also(Enum):
    """What else goes wrong in a scenario."""

    NOTHING = "nothing"
    OUTAGE = "store down"
    SHIM = "shim killed"
    RANK = "rank killed"


@dataclass
class Story:
    """What happened, for the report and for a failure's reproduction."""

    kills: Counter[str] = field(default_factory=Counter)
    also: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    executed: Counter[str] = field(default_factory=Counter)
    result: dict[str, object] = field(default_factory=dict)
    resumed: int = 0

    def tell(self, text: str) -> None:
        self.lines.append(text)

    @property
    def killed(self) -> int:
        return sum(self.kills.values())


@dataclass
class Attack:
    """One run under attack. `quiet_seconds` is how long it takes when nobody disturbs it.

    `kills` is how many of its drivers are killed at most.
    """

    world: World
    dice: random.Random
    quiet_seconds: float
    moments: tuple[Moment, ...] = tuple(Moment)
    also: Also = Also.NOTHING
    door: Door | None = None
    kills: int = 1

    def carry_out(self) -> Story:
        """Kill up to `kills` drivers of the run, then let it end, and check everything."""
        story = Story()
        driver = self.world.submit()
        for _ in range(STEPS_MAX):
            if story.killed < self.kills:
                moment = self.dice.choice(self.moments)
                with self._trouble(story):
                    struck = self._strike(driver, moment)
                if struck:
                    story.kills[moment.value] += 1
                    story.tell(f"driver {self.world.drivers} killed {moment.value}")
                    story.wrong += self._check(checks.AFTER_A_KILL)
                    driver = self._go_on(story)
                    continue
            code = driver.end()
            story.tell(f"driver {self.world.drivers} ended with {code}")
            if code == 0:
                break
            if not self._may_try_again(driver, code):
                story.wrong.append(f"{driver.log.name} ended with {code}: {driver.said[-400:]}")
                break
            driver = self._go_on(story)
        else:
            story.wrong.append(f"the run did not end in {STEPS_MAX} drivers")
        story.wrong += self._check(checks.AT_THE_END)
        story.executed = checks.executed(self.world)
        with contextlib.suppress(StorageError):
            story.result = checks.artifacts(self.world, checks.fold(self.world.frames()))
        return story

    def _check(self, those: tuple[Callable[[World], list[str]], ...]) -> list[str]:
        if self.door is not None:
            self.door.open()
        return [text for check in those for text in check(self.world)]

    def _go_on(self, story: Story) -> Driver:
        """A resume; a submit if the run has not begun at all."""
        story.resumed += 1
        return self.world.resume() if self.world.frames() else self.world.submit()

    def _may_try_again(self, driver: Driver, code: int) -> bool:
        """With the store away a driver may give up at its start, if it says so in a typed error."""
        return self.also is Also.OUTAGE and code in (1, 2) and "error" in driver.said

    # -- the kill ----------------------------------------------------------------------------------

    def _strike(self, driver: Driver, moment: Moment) -> bool:
        match moment:
            case Moment.ANY:
                self._sleep(driver, self.dice.uniform(0.0, 2 * self.quiet_seconds / self.kills))
            case Moment.START:
                self._sleep(driver, self.dice.uniform(0.0, 0.6))
            case Moment.LAUNCH:
                self._event(driver, self._job_count)
            case Moment.COMMIT:
                self._event(driver, self._write_count)
            case Moment.STAGE:
                self._event(driver, self._trace_size)
        return driver.kill()

    def _sleep(self, driver: Driver, seconds: float) -> None:
        end = time.monotonic() + seconds
        while driver.alive and (left := end - time.monotonic()) > 0:
            time.sleep(min(0.01, left))

    def _event(self, driver: Driver, count: Callable[[], int]) -> None:
        """Wait until `count` has grown a few times, and then a moment more."""
        wanted = self.dice.randint(1, 6)
        end = time.monotonic() + EVENT_SECONDS_MAX
        seen = count()
        while driver.alive and wanted and time.monotonic() < end:
            if (now := count()) != seen:
                seen, wanted = now, wanted - 1
            else:
                time.sleep(POLL_SECONDS)
        time.sleep(self.dice.uniform(0.0, AFTER_EVENT_SECONDS))

    def _job_count(self) -> int:
        return _entries(str(self.world.jobs))

    def _write_count(self) -> int:
        """Names in the journal's folder (a temporary file counts), or connections to the store."""
        if self.door is not None:
            return self.door.passed
        return _entries(str(self.world.home.runs / self.world.run_id / "npa-workflow/journal"))

    def _trace_size(self) -> int:
        try:
            return self.world.trace.stat().st_size
        except FileNotFoundError:
            return 0

    # -- what else ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _trouble(self, story: Story) -> Iterator[None]:
        """Other trouble around a kill: before it, and over it."""
        match self.also:
            case Also.OUTAGE if self.door is not None and self.dice.random() < 0.7:
                pause = self.dice.uniform(0.0, 1.0)
                self._outage_after(self.dice.uniform(0.0, self.quiet_seconds / self.kills))
                story.also[self.also.value] += 1
                story.tell(f"store down for {pause:.2f} s")
                yield
                time.sleep(pause)
                self.door.open()
            case Also.SHIM | Also.RANK if self.dice.random() < 0.7:
                yield
                if self._kill_some(shim=self.also is Also.SHIM):
                    story.also[self.also.value] += 1
                    story.tell(self.also.value)
            case _:
                yield

    def _outage_after(self, seconds: float) -> None:
        assert self.door is not None
        time.sleep(seconds)
        self.door.shut()

    def _kill_some(self, *, shim: bool) -> bool:
        """SIGKILL one shim or one rank that lives now; False if there is none."""
        pids = self._shims() if shim else list(self.world.tasks())
        for pid in self.dice.sample(pids, len(pids)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _shims(self) -> list[int]:
        if not self.world.jobs.exists():
            return []
        found = []
        for folder in sorted(self.world.jobs.iterdir()):
            claim = records.read_claim(str(folder)) if folder.is_dir() else None
            if claim is not None and claim.kind == layout.SHIM and procfs.is_alive(claim.who):
                found.append(claim.who.pid)
        return found


def _entries(folder: str) -> int:
    try:
        return sum(1 for _ in os.scandir(folder))
    except FileNotFoundError:
        return 0
