"""The replacement of a launch that left a row which never answers, at every crash point."""

from __future__ import annotations

import pytest

from changed import replace
from simulation import explore
from simulation import scenarios as s
from simulation.choices import Only, Plan, Scripted, Told
from simulation.faults import Op
from simulation.invariants import Played
from simulation.play import play
from simulation.scenarios import Scenario
from simulation.world import Violation

pytestmark = pytest.mark.req("E-06")


def test_outputs_are_absent_before_the_exact_cancel_and_after_it_and_the_check_is_fresh() -> None:
    log = play(s.PHANTOM, Scripted()).world.watch.log
    cancel, reserve = log.index("cancel 1"), log.index("reserve 2 recovery")
    assert log[cancel - 2 : cancel] == ["absent", "absent"]
    assert log[cancel + 1 : reserve] == [
        "saw pending unsettled",
        "saw cancelled unsettled",
        "saw cancelled",
        "absent",
        "absent",
        "preflight",
    ]
    assert log.count("launch 2") == 1


def in_order(scenario: Scenario, plan: Plan) -> Played:
    """Play, and see that the successor came only after all that must come before it."""
    played = play(scenario, plan)
    watch = played.world.watch
    for key in watch.recoveries:
        known = watch.tries[key]
        parent = watch.tries[known.parent]
        if not parent.cancels:
            continue
        reserve = watch.log.index(f"reserve {known.number} recovery")
        cancel = max(i for i, x in enumerate(watch.log[:reserve]) if x.startswith("cancel "))
        first = watch.log.index(next(x for x in watch.log if x.startswith("cancel ")))
        before, after = watch.log[:first], watch.log[cancel:reserve]
        if "absent" not in before or "there" in before:
            raise Violation(6, "the outputs were not seen to be absent before the cancel")
        seen = [x for x in after if x.startswith("saw ")]
        if seen[-1] not in ("saw cancelled", "saw failed"):
            raise Violation(8, f"replaced on {seen[-1]}")
        if "absent" not in after[after.index(seen[-1]) :] or "there" in after:
            raise Violation(6, "the outputs were not seen to be absent after the cancel")
    return played


def test_the_order_holds_at_every_crash_point_and_under_every_single_fault() -> None:
    tally = explore.all_schedules(s.PHANTOM, 1, player=in_order)
    assert not tally.failures, "\n".join(map(str, tally.failures))


# What a crash, a person or the provider can do in the middle of the protocol.
INTERRUPTIONS = frozenset(
    {"kill-before", "kill-between", "cancel", "unavailable", "lost-reply", "raced", "ignored"}
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shard", range(8))
def test_the_order_holds_under_every_pair_of_interruptions(shard: int) -> None:
    def player(scenario: Scenario, plan: Plan) -> Played:
        return in_order(scenario, Only(plan, INTERRUPTIONS))

    tally = explore.all_schedules(s.PHANTOM, 2, shard=shard, shards=8, player=player)
    assert not tally.failures, "\n".join(map(str, tally.failures))


@pytest.mark.parametrize("fault", ["kill-before", "kill-between", "kill-after"])
def test_a_reservation_is_consumed_once_across_crashes(fault: str) -> None:
    calm = play(s.PHANTOM, Scripted()).world.trace
    for op in Op:
        for number in range(1, calm.count(op) + 1):
            if fault == "kill-between" and op not in (Op.CREATE, Op.LAUNCH, Op.CANCEL):
                continue
            watch = play(s.PHANTOM, Told({(op, number): fault})).world.watch
            recoveries = [t for t in watch.tries.values() if t.cause == "recovery" and not t.free]
            assert len(recoveries) == 1, (op, number)


def test_a_reserved_successor_that_is_found_is_adopted_whatever_the_record_says() -> None:
    played = play(s.PHANTOM, Told({(Op.LAUNCH, 2): "kill-between"}))
    assert [row.name for row in played.world.provider.rows] == [
        attempt.name for attempt in played.state.attempts.values()
    ]
    successor = list(played.state.attempts.values())[1]
    assert (successor.number, successor.adopted) == (2, True)
    assert played.state.lifecycle.value == "completed"


def test_a_success_that_races_the_cancel_counts_with_validated_outputs_only() -> None:
    won = play(s.PHANTOM, Told({(Op.CANCEL, 1): "raced"}))
    assert won.state.lifecycle.value == "completed"
    assert len(won.state.attempts) == 1
    bare = play(s.PHANTOM, Told({(Op.CANCEL, 1): "raced-bare"}))
    assert bare.state.lifecycle.value == "failed"
    assert bare.state.failure is not None
    assert bare.state.failure.code == "DECLARED_OUTPUT_MISSING"


def test_nothing_is_replaced_while_the_preflight_does_not_pass() -> None:
    played = play(s.PHANTOM, Told({(Op.PREFLIGHT, 1): "blocked"}))
    assert any(text.startswith("PREFLIGHT") for text in played.shown)
    assert played.world.watch.log.count("preflight failed") == 1
    assert played.state.lifecycle.value == "completed"  # a person logged in, and resumed


def test_a_second_phantom_exhausts_the_budget_for_good() -> None:
    twice = replace(s.PHANTOM, natures=("phantom", "phantom", "phantom"))
    played = play(twice, Scripted())
    assert played.state.failure is not None
    assert played.state.failure.code == "INFRASTRUCTURE_RECOVERY_EXHAUSTED"
    assert len(played.world.watch.launches) == 2


def test_an_arbitrary_cancelled_or_an_empty_queue_is_never_replaced() -> None:
    foreign = play(s.SINGLE, Told({(Op.LAUNCH, 1): "foreign"}))
    assert len(foreign.world.watch.launches) == 1
    vanished = play(s.SINGLE, Told({(Op.LAUNCH, 1): "vanished"}))
    assert len(vanished.world.watch.launches) == 1
    assert any(text.startswith("VANISHED") for text in vanished.shown)
