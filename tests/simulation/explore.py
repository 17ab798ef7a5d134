"""All schedules with so many faults, drawn ones, and the shrinking of one that fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from simulation import choices
from simulation.choices import Drawn, Enumerated, Exhaustive, Only, Plan, Schedule, Scripted
from simulation.faults import DISTINCT, Op
from simulation.invariants import Played
from simulation.play import play
from simulation.scenarios import Scenario
from simulation.world import Violation

Player = Callable[[Scenario, Plan], Played]


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule under which an invariant does not hold, shrunk."""

    scenario: str
    schedule: Schedule
    number: int
    what: str
    seed: int | None = None
    two: bool = False

    def __str__(self) -> str:
        two = "+two" if self.two else ""
        seed = f" (seed {self.seed})" if self.seed is not None else ""
        return (
            f"{self.scenario}{seed}: {self.what}\n"
            f"  replay: make simulate REPLAY='{self.scenario}{two}:{choices.write(self.schedule)}'"
        )


@dataclass(slots=True)
class Tally:
    """What was played."""

    schedules: int = 0
    faults: int = 0
    failures: list[Failure] = field(default_factory=list)
    endings: Counter[str] = field(default_factory=Counter)

    def count(self, played: Played) -> None:
        self.schedules += 1
        self.faults += len(played.world.plan.taken)
        self.endings[played.state.lifecycle.value] += 1

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.faults += other.faults
        self.failures.extend(other.failures)
        self.endings.update(other.endings)


def all_schedules(
    scenario: Scenario,
    budget: int,
    *,
    shard: int = 0,
    shards: int = 1,
    player: Player = play,
    failures_max: int = 1,
) -> Tally:
    """Every schedule of at most `budget` faults. Shards split the first fault among them."""
    tally = Tally()
    for number, prefix in enumerate(_first_faults(scenario, player, tally)):
        if number % shards != shard:
            continue
        _enumerate(scenario, prefix, budget, player, tally)
        if len(tally.failures) >= failures_max:
            break
    return tally


def _first_faults(scenario: Scenario, player: Player, tally: Tally) -> list[tuple[int, ...]]:
    """The choices that lead to each single fault, from the run without faults."""
    widths: list[int] = []
    plan = _Widths(widths)
    _one(scenario, plan, player, tally)
    return [
        (*(0,) * point, kind) for point, width in enumerate(widths) for kind in range(1, width + 1)
    ]


class _Widths(Scripted):
    """No fault; notes how many there could have been at each point."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self._widths = widths

    def pick(self, point: int, op: Op, kinds: object) -> str:
        self._widths.append(len(kinds))  # type: ignore[arg-type]
        return ""


def _enumerate(
    scenario: Scenario, prefix: tuple[int, ...], budget: int, player: Player, tally: Tally
) -> None:
    generator = Exhaustive(prefix)
    for _ in generator.runs():
        _one(scenario, Enumerated(generator, budget), player, tally)


def _one(
    scenario: Scenario, plan: Plan, player: Player, tally: Tally, seed: int | None = None
) -> None:
    try:
        tally.count(player(scenario, plan))
    except Violation as violation:
        tally.schedules += 1
        tally.faults += len(plan.taken)
        schedule = shrink(scenario, tuple(plan.taken), violation.number, player)
        tally.failures.append(
            Failure(
                scenario.name,
                schedule,
                violation.number,
                str(violation),
                seed,
                two=player.__module__.endswith("duel"),
            )
        )


def drawn(
    scenario: Scenario,
    seeds: Iterable[int],
    *,
    budget: int,
    rate: float,
    player: Player = play,
    failures_max: int = 1,
) -> Tally:
    """One long schedule for each seed."""
    tally = Tally()
    for seed in seeds:
        _one(scenario, Drawn(seed, budget=budget, rate=rate), player, tally, seed)
        if len(tally.failures) >= failures_max:
            break
    return tally


def distinct_only(scenario: Scenario, plan: Plan) -> Played:
    """`play` with distinct faults only."""
    return play(scenario, Only(plan, DISTINCT))


def shrink(scenario: Scenario, schedule: Schedule, number: int, player: Player = play) -> Schedule:
    """Leave out faults as long as the same invariant still fails."""
    smaller = True
    while smaller:
        smaller = False
        size = max(1, len(schedule) // 2)
        while size:
            start = 0
            while start < len(schedule):
                candidate = schedule[:start] + schedule[start + size :]
                if _fails(scenario, candidate, number, player):
                    schedule, smaller = candidate, True
                else:
                    start += size
            size //= 2
    return schedule


def _fails(scenario: Scenario, schedule: Schedule, number: int, player: Player) -> bool:
    try:
        player(scenario, Scripted(schedule))
    except Violation as violation:
        return violation.number == number
    return False
