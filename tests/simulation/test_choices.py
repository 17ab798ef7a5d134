"""The generators that everything else here rests on."""

from __future__ import annotations

import itertools

import pytest

from simulation import choices, explore, faults, scenarios
from simulation.choices import Drawn, Enumerated, Exhaustive, Scripted
from simulation.faults import KINDS, Op, kinds_at
from simulation.play import play


def test_every_sequence_of_choices_comes_up_once() -> None:
    generator = Exhaustive()
    seen = [tuple(generator.choose(n) for n in (2, 3, 2)) for _ in generator.runs()]
    assert seen == list(itertools.product(range(2), range(3), range(2)))


def test_choices_may_depend_on_earlier_choices() -> None:
    generator = Exhaustive()
    seen = []
    for _ in generator.runs():
        first = generator.choose(3)
        seen.append((first, *(generator.choose(2) for _ in range(first))))
    assert sorted(seen) == sorted(set(seen))
    assert len(seen) == 1 + 2 + 4


def test_a_prefix_is_never_changed() -> None:
    generator = Exhaustive((1,))
    seen = [(generator.choose(3), generator.choose(2)) for _ in generator.runs()]
    assert seen == [(1, 0), (1, 1)]


def test_a_budget_bounds_the_faults_of_a_run() -> None:
    generator, seen = Exhaustive(), []
    for _ in generator.runs():
        plan = Enumerated(generator, 2)
        for point in range(1, 5):
            plan.pick(point, Op.READ, ("x",))
        seen.append(tuple(point for point, _ in plan.taken))
    assert sorted(seen) == sorted(
        pick for n in (0, 1, 2) for pick in itertools.combinations(range(1, 5), n)
    )


def test_a_seed_is_a_schedule() -> None:
    def draw() -> list[choices.Fault]:
        plan = Drawn(7, budget=5, rate=0.3)
        for point in range(100):
            plan.pick(point, Op.READ, ("a", "b", "c"))
        return plan.taken

    assert draw() == draw()
    assert len(draw()) == 5


def test_a_schedule_is_read_as_it_was_written() -> None:
    schedule = ((3, "kill-before"), (12, "lost-reply"))
    assert choices.read(choices.write(schedule)) == schedule
    assert choices.read(choices.write(())) == ()


def test_a_schedule_replays_exactly() -> None:
    drawn = play(scenarios.CHAIN, Drawn(11, budget=4, rate=0.1))
    again = play(scenarios.CHAIN, Scripted(drawn.world.plan.taken))
    assert again.world.plan.taken == drawn.world.plan.taken
    assert again.world.store == drawn.world.store


def test_single_faults_are_all_kinds_at_all_points() -> None:
    calm = play(scenarios.SINGLE, Scripted())
    expected = sum(len(kinds_at(op)) for op in calm.world.trace)
    assert explore.all_schedules(scenarios.SINGLE, 1).schedules == expected + 1


def test_shards_split_the_work_and_lose_nothing() -> None:
    whole = explore.all_schedules(scenarios.GANG, 1).schedules
    parts = [explore.all_schedules(scenarios.GANG, 1, shard=i, shards=3) for i in range(3)]
    assert sum(p.schedules - 1 for p in parts) == whole - 1


@pytest.mark.parametrize("op", list(Op))
def test_every_kind_of_fault_is_met_by_some_scenario(op: Op) -> None:
    met = {op for s in scenarios.ALL for op in play(s, Scripted()).world.trace}
    late = {Op.CANCEL, Op.PREFLIGHT}  # only a fault or a person makes them happen
    assert op in met | late
    assert len(set(KINDS[op])) == len(KINDS[op])


def test_twins_are_left_out_of_pairs_only() -> None:
    every = {kind for op in Op for kind in kinds_at(op)}
    assert every > faults.TWINS
    assert every - faults.TWINS == faults.DISTINCT
