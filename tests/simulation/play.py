"""One schedule, from the genesis to the end of the run, through kills, holds and resumes."""

from __future__ import annotations

from dataclasses import dataclass, field

from npa.cli.driving import exit_code_of_ending
from npa.errors import DrivenElsewhere, JournalCorrupt, NpaError, StorageError, StoreFull
from npa.orchestration.claims import StoredClaims
from npa.orchestration.decide import Goal
from npa.orchestration.driver import Driver, Ending, Identity, Outcome, Plan, Snapshot
from npa.orchestration.driver import World as Outside
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Journal
from npa.orchestration.seal import seal_of
from npa.orchestration.state import DriverView
from npa.orchestration.taskenv import JobSettings, build_job
from npa.target.secret import Secret
from simulation import choices
from simulation.invariants import ALL, CANARY, NUMBERS, Invariant, Played, check_all
from simulation.person import Person
from simulation.provider import Provider
from simulation.scenarios import TARGET, Scenario
from simulation.store import ROOT, SimArtifacts, SimStorage
from simulation.watch import Watch
from simulation.world import Endless, Killed, Process, Violation, World

RESTARTS_MAX = 300
HOLDS_MAX = 6
RESTART_SECONDS = 1.0


@dataclass(slots=True)
class Stage:
    """A world made ready for one scenario, and the drivers on it."""

    scenario: Scenario
    world: World
    played: Played = field(init=False)
    sees_processes: bool = True  # false: drivers of this host cannot see those before

    def __post_init__(self) -> None:
        world, scenario = self.world, self.scenario
        world.store = {}
        world.natures = list(scenario.natures)
        world.watch = Watch(world, scenario)
        world.provider = Provider(
            scenario.content,
            started=world.watch.started,
            born=world.watch.born,
            store=world.store,
        )
        world.person = Person(world)
        self.played = Played(world, scenario)
        prepared = scenario.prepared
        parts = prepared.parts(TARGET)
        genesis = e.Genesis(seal_of(parts), parts, prepared.request.to_json())
        journal = Journal(SimStorage(world, faulty=False), world.now, by="submit", readers=1)
        journal.append([genesis], epoch=0)

    def driver(self, process: Process, *, goal: Goal = Goal.COMPLETE) -> Driver:
        """A driver of a new process, wired to this world."""
        world, prepared = self.world, self.scenario.prepared
        settings = JobSettings(
            run_id="r",
            run_uri=ROOT,
            workflow="sim",
            workdir="",
            secrets={"TOKEN": Secret(CANARY)},
        )
        journal = Journal(SimStorage(world), world.now, by=f"p{process.pid}", readers=1)
        claims = StoredClaims(SimStorage(world), f"p{process.pid}")
        driver = Driver(
            Outside(journal, self.scenario.engine(world), SimArtifacts(world), world, claims),
            Plan(
                run_id="r",
                new_walk=prepared.new_walk,
                downstream=prepared.downstream,
                build_job=lambda attempt, steps: build_job(settings, attempt, steps),
            ),
            self.scenario.policy,
            Identity("host", "boot", process.pid, process.pid),
            goal=goal,
            is_alive=self._is_alive,
            observer=lambda snapshot: self._shown(process, snapshot),
        )
        process.driver = driver
        return driver

    def _is_alive(self, view: DriverView) -> bool | None:
        if not self.sees_processes:
            return None
        known = self.world.processes.get(view.pid)
        return known is not None and known.alive

    def _shown(self, process: Process, snapshot: Snapshot) -> None:
        """After each tick: the live state is the fold of what is written."""
        self.played.shown.extend(snapshot.waits.values())
        shadow = self.world.watch.shadow
        if "" in snapshot.waits:
            return  # a frame is under way, nothing may be concluded
        if snapshot.state.n > shadow.n:
            raise Violation(11, f"the driver is at frame {snapshot.state.n} of {shadow.n}")
        if snapshot.state.n == shadow.n and snapshot.state != shadow:
            raise Violation(11, "the live state is not the fold of the journal")
        if snapshot.state.n < process.acked:
            raise Violation(11, "the driver has missed a frame")

    def ended(self, outcome: Outcome) -> None:
        """A driver's `run` returned."""
        self.played.endings.append(outcome.ending.value)
        self.played.exit_codes.append(int(exit_code_of_ending(outcome, interrupted=False)))
        self.played.shown.extend(f"{h.code} {h.reason}" for h in outcome.holds.values())
        if outcome.ending in (Ending.COMPLETED, Ending.FAILED, Ending.CANCELLED):
            rows = self.world.provider.rows
            ours = tuple(
                r.id for r in rows if self.world.provider.live(r) and self.world.watch.ours(r)
            )
            self.played.live_after_done.append(ours)


def play(scenario: Scenario, plan: choices.Plan, *, person_faults: bool = True) -> Played:
    """Play one schedule to its end and check every invariant. Raises Violation."""
    stage = Stage(scenario, World(plan, person_faults=person_faults))
    drive_to_the_end(stage)
    check_all(stage.played)
    return stage.played


def play_for(invariant: Invariant, scenario: Scenario, plan: choices.Plan) -> Played:
    """As `play`, asking one invariant only. Raises Violation if that one does not hold."""
    number = ALL.index(invariant)
    stage = Stage(scenario, World(plan))
    try:
        drive_to_the_end(stage)
    except Violation as violation:
        if NUMBERS[number] == violation.number:
            raise
    except (NpaError, AssertionError, LookupError):
        pass  # the runtime broke in another way
    stage.played.state = stage.world.watch.shadow
    invariant(stage.played)
    return stage.played


def drive_to_the_end(stage: Stage) -> None:
    """Start drivers, as `resume` does, until the run is over."""
    holds = 0
    for _ in range(RESTARTS_MAX):
        outcome = drive_once(stage)
        if outcome is None or outcome.ending is Ending.STOPPED:
            stage.world.advance(RESTART_SECONDS)
            continue
        if outcome.ending is not Ending.HELD:
            return
        holds += 1
        if holds > HOLDS_MAX:
            raise Violation(14, f"the remedies of {outcome.holds} do not end it")
        stage.world.person.apply(outcome.holds)
    raise Violation(14, "the run is resumed again and again")


def drive_once(stage: Stage, *, rival: bool = False, take_over: bool = False) -> Outcome | None:
    """One driver process from start to end; None if it died or could not go on.

    `rival`: there is another one, so being refused for it is a good end too.
    """
    world = stage.world
    process = world.start_process()
    try:
        outcome = stage.driver(process).run(take_over=take_over)
    except Killed:
        return None
    except StoreFull:
        world.space = True  # a person made room
        return None
    except (DrivenElsewhere, JournalCorrupt) as error:
        if rival and isinstance(error, DrivenElsewhere):
            return None
        raise Violation(14, f"a resumed driver refused: {error.message}") from error
    except StorageError:
        return None  # it could not even begin
    except Endless as error:
        raise Violation(14, "the driver goes on for ever") from error
    finally:
        process.alive = False
    stage.ended(outcome)
    return outcome
