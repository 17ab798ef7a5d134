"""Two drivers of one run, interleaved at the granularity of external calls.

Each driver runs in a thread of its own, but only the one that holds the baton moves: the world
hands it over at a point where the schedule says `switch`, and when a driver ends. So every
interleaving is deterministic and replays exactly. The first switch starts the second driver, which
takes over.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from simulation.choices import Only, Plan
from simulation.faults import SWITCH
from simulation.invariants import Invariant, Played, check_all
from simulation.play import Stage, drive_once, drive_to_the_end
from simulation.scenarios import Scenario
from simulation.world import Process, World

SWITCHES = frozenset({SWITCH})
WAIT_SECONDS_MAX = 60.0  # of real time, for the other thread: longer is a deadlock


@dataclass(slots=True)
class Corner:
    """One driver's thread, and its turn."""

    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    process: Process | None = None
    done: bool = False
    error: BaseException | None = None


class Duel:
    """Hands the baton between two drivers of one stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._corners = (Corner(), Corner())
        self._at = 0
        self._over = threading.Semaphore(0)
        stage.world.switch = self._switch

    def run(self) -> None:
        """Until both have ended. Raises what either raised."""
        self._begin(0)
        assert self._over.acquire(timeout=WAIT_SECONDS_MAX), "the duel does not end"
        for corner in self._corners:
            if corner.thread is not None:
                corner.thread.join(WAIT_SECONDS_MAX)
            if corner.error is not None:
                raise corner.error

    def _begin(self, number: int) -> None:
        corner = self._corners[number]
        corner.thread = threading.Thread(target=self._drive, args=(number,), daemon=True)
        corner.turn.release()
        corner.thread.start()

    def _drive(self, number: int) -> None:
        corner = self._corners[number]
        corner.turn.acquire()
        try:
            drive_once(self._stage, rival=True, take_over=number > 0)
        except BaseException as error:  # handed to the test's own thread
            corner.error = error
        corner.done = True
        self._finished(number)

    def _finished(self, number: int) -> None:
        other = self._corners[1 - number]
        if other.thread is not None and not other.done:
            self._hand_over(1 - number)
        else:
            self._over.release()

    def _switch(self) -> None:
        """The driver that moves stops here; the other one goes on, or begins."""
        here, there = self._corners[self._at], 1 - self._at
        if self._corners[there].done:
            return
        here.process = self._stage.world.process
        if self._corners[there].thread is None:
            self._at = there
            self._begin(there)
        else:
            self._hand_over(there)
        assert here.turn.acquire(timeout=WAIT_SECONDS_MAX), "the baton was lost"

    def _hand_over(self, number: int) -> None:
        corner = self._corners[number]
        assert corner.process is not None
        self._at = number
        self._stage.world.process = corner.process
        corner.turn.release()


def play_two(scenario: Scenario, plan: Plan) -> Played:
    """Two drivers, then as many as it takes. Raises Violation."""
    stage = Stage(scenario, World(plan, person_faults=False, switches=True))
    Duel(stage).run()
    stage.world.switch = lambda: None
    drive_to_the_end(stage)
    check_all(stage.played)
    return stage.played


def play_two_for(invariant: Invariant, scenario: Scenario, plan: Plan) -> Played:
    """As `play_two`, asking one invariant only."""
    stage = Stage(scenario, World(plan, person_faults=False, switches=True))
    Duel(stage).run()
    stage.world.switch = lambda: None
    drive_to_the_end(stage)
    stage.played.state = stage.world.watch.shadow
    invariant(stage.played)
    return stage.played


def duel(scenario: Scenario, plan: Plan) -> Played:
    """`play_two` with nothing but switches."""
    return play_two(scenario, Only(plan, SWITCHES))
