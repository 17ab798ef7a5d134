"""`make simulate`: long drawn schedules, a report of one line and a table; or the replay of one.

python -m simulation --seeds 2000 --faults 200
python -m simulation --exhaustive
python -m simulation --replay 'chain:3:kill-after,5:outage'
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from simulation import choices, explore, invariants, scenarios
from simulation.choices import Plan, Scripted
from simulation.duel import Duel, duel, play_two
from simulation.explore import Tally
from simulation.invariants import Played, check_all
from simulation.play import Stage, drive_to_the_end, play
from simulation.scenarios import Scenario
from simulation.world import Violation, World

RATE = 0.1
CHUNK = 50  # seeds of one task of a worker
PAIR_SHARDS = 16
SWITCH_SHARDS = 8


@dataclass(frozen=True, slots=True)
class Work:
    """One task of a worker: `kind` is drawn, calm (no person), two, singles, pairs or duel."""

    scenario: str
    kind: str
    first: int  # the first seed, or the shard
    count: int  # seeds, or shards
    faults: int


def calm(scenario: Scenario, plan: Plan) -> Played:
    """Play without a person who cancels or leaves."""
    return play(scenario, plan, person_faults=False)


PLAYERS: dict[str, Callable[[Scenario, Plan], Played]] = {
    "drawn": play,
    "calm": calm,
    "two": play_two,
    "singles": play,
    "pairs": explore.distinct_only,
    "duel": duel,
}


def do(work: Work) -> tuple[Work, Tally]:
    scenario, player = scenarios.BY_NAME[work.scenario], PLAYERS[work.kind]
    if work.kind in ("singles", "pairs", "duel"):
        tally = explore.all_schedules(
            scenario, work.faults, shard=work.first, shards=work.count, player=player
        )
    else:
        seeds = range(work.first, work.first + work.count)
        tally = explore.drawn(scenario, seeds, budget=work.faults, rate=RATE, player=player)
    return work, tally


def drawn_work(seeds: int, start: int, faults: int) -> list[Work]:
    """Every seed with every scenario; by turns with a person, without one, and with two drivers."""
    kinds = ("drawn", "calm", "two")
    return [
        Work(
            scenario.name,
            kinds[(first // CHUNK) % 3],
            first,
            min(CHUNK, start + seeds - first),
            faults,
        )
        for scenario in scenarios.ALL
        for first in range(start, start + seeds, CHUNK)
    ]


def exhaustive_work() -> list[Work]:
    """All single faults, all pairs of the smallest, all interleavings of the smallest."""
    return [
        *(Work(s.name, "singles", 0, 1, 1) for s in scenarios.ALL),
        *(
            Work(s.name, "pairs", shard, PAIR_SHARDS, 2)
            for s in scenarios.SMALLEST
            for shard in range(PAIR_SHARDS)
        ),
        *(Work("single", "duel", shard, SWITCH_SHARDS, 3) for shard in range(SWITCH_SHARDS)),
        *(Work(name, "duel", 0, 1, 2) for name in ("chain", "local", "cancelled")),
    ]


def report(works: list[Work], workers: int, seeds: str) -> int:
    began, total = time.monotonic(), Tally()
    rows: dict[tuple[str, str], Tally] = {}
    with ProcessPoolExecutor(workers) as pool:
        for work, tally in pool.map(do, works):
            total.add(tally)
            rows.setdefault((work.scenario, work.kind), Tally()).add(tally)
    seconds = time.monotonic() - began
    print(f"{'scenario':14} {'kind':8} {'schedules':>9} {'faults':>8} {'violations':>10}  endings")
    for (name, kind), tally in rows.items():
        endings = " ".join(f"{k} {v}" for k, v in sorted(tally.endings.items()))
        count = f"{tally.schedules:9} {tally.faults:8} {len(tally.failures):10}"
        print(f"{name:14} {kind:8} {count}  {endings}")
    for failure in total.failures:
        print(failure)
    print(
        f"{total.schedules} schedules, {total.faults} faults, {len(invariants.ALL)} invariants, "
        f"{len(total.failures)} violations, seeds {seeds}, commit {commit()}, "
        f"{total.schedules / seconds:.0f}/s with {workers} workers"
    )
    return 1 if total.failures else 0


def commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def replay(text: str) -> int:
    """Play one schedule and print the journal, what was done and seen, and the verdict."""
    name, _, rest = text.partition(":")
    two = name.endswith("+two")
    plan = Scripted(choices.read(rest))
    stage = Stage(
        scenarios.BY_NAME[name.removesuffix("+two")],
        World(plan, person_faults=not two, switches=two),
    )
    verdict = "every invariant holds"
    try:
        if two:
            Duel(stage).run()
            stage.world.switch = lambda: None
        drive_to_the_end(stage)
        check_all(stage.played)
    except Violation as violation:
        verdict = str(violation)
    for key in sorted(stage.world.store):
        raw = json.loads(stage.world.store[key])
        if "entries" not in raw:
            print(f"{key} {raw}")
            continue
        for entry in raw["entries"]:
            body = {k: v for k, v in entry["body"].items() if k not in ("parts", "request")}
            print(f"{raw['n']:4} {raw['by']:7} {entry['kind']:18} {json.dumps(body)[:160]}")
    print("\n".join(stage.world.watch.log))
    print(f"{choices.write(plan.taken)}: {verdict}")
    return 0 if verdict.startswith("every") else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--replay", default="")
    options = parser.parse_args()
    if options.replay:
        return replay(options.replay)
    if options.exhaustive:
        return report(exhaustive_work(), options.workers, "none")
    works = drawn_work(options.seeds, options.start, options.faults)
    return report(works, options.workers, f"{options.start}..{options.start + options.seeds - 1}")


if __name__ == "__main__":
    sys.exit(main())
