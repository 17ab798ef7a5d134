"""Properties of generated workflows: walks end, paths are unique, order is no matter."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from changed import replace
from npa.workflow.asks import AskDecision, AskItems, Batch
from npa.workflow.meaning import ForeachSpec, LoopSpec, State, TransitionSpec
from npa.workflow.walk import Walk
from workflow.hand_made import leaf, run_all, walk_of

DECISIONS = ("promote_checkpoint", "loop_back_to_inner_loop")
Answer = tuple[str, str, object]


@st.composite
def workflows(draw: st.DrawFn) -> tuple[State, ...]:
    """A chain of branches over groups that hold only states of a lower level, so none is cyclic."""
    count = draw(st.integers(1, 4))
    states: list[State] = [
        leaf(
            f"leaf{number}",
            writes_decision=draw(st.booleans()),
            outputs=(f"s3://b/leaf{number}",),
        )
        for number in range(count)
    ]
    for number in range(draw(st.integers(1, 5))):
        states.append(_group(draw, f"group{number}", states))
    chain = []
    length = draw(st.integers(1, 4))
    for number in range(length):
        body = draw(st.sampled_from(states[::-1]))
        later = [f"top{other}" for other in range(number + 1, length)]
        chain.append(_link(draw, f"top{number}", body, later))
    return (*chain, *states)


def _group(draw: st.DrawFn, name: str, states: list[State]) -> State:
    members = tuple(
        state.name for state in draw(st.lists(st.sampled_from(states), min_size=1, max_size=3))
    )
    until = draw(st.sampled_from(("", "promote_checkpoint", "loop_back")))
    loop = draw(st.sampled_from((None, LoopSpec(draw(st.integers(1, 3)), until))))
    match draw(st.sampled_from(("sequence", "parallel", "foreach"))):
        case "sequence":
            return State(name, sequence=members, loop=loop)
        case "parallel":
            distinct = tuple(dict.fromkeys(members))
            mode = draw(st.sampled_from(("group", "window")))
            bound = draw(st.sampled_from((None, 1, 2)))
            return State(name, parallel=distinct, parallel_mode=mode, max_concurrency=bound)
        case _:
            items = draw(st.sampled_from((None, ("x", "y", "x"))))
            fan = ForeachSpec(items, "s3://b/items.json", "it", 8)
            return leaf(name, foreach=fan, loop=loop, text="work {{item.it}}")


def _link(draw: st.DrawFn, name: str, body: State, later: list[str]) -> State:
    if not later:
        return replace(body, name=name, terminal=True)
    following = draw(st.sampled_from(later))
    if draw(st.booleans()) and not (body.sequence or body.parallel):
        other = draw(st.sampled_from(later))
        branch = (
            TransitionSpec(following, when="promote_checkpoint"),
            TransitionSpec(other, when="loop_back"),
        )
        return replace(body, name=name, transitions=branch)
    return replace(body, name=name, next=following)


def _answers(walk: Walk) -> list[tuple[str, str]]:
    """All that may be answered now, in a fixed order."""
    possible: list[tuple[str, str]] = []
    for ask in walk.frontier():
        match ask:
            case Batch():
                possible += [("step", s.path) for s in ask.steps if walk.awaits(s.path)]
            case AskDecision():
                possible.append(("decision", ask.key))
            case AskItems():
                possible.append(("items", ask.key))
    return sorted(possible)


def _give(walk: Walk, kind: str, key: str) -> None:
    """One answer; what is answered depends on the key alone, never on the order."""
    match kind:
        case "step":
            walk.finished(key)
        case "decision":
            walk.decided(key, DECISIONS[sum(key.encode()) % 2])
        case _:
            walk.expanded(key, ("a", "b"))


def _run(walk: Walk, order: random.Random) -> tuple[list[tuple[str, str]], dict[str, str]]:
    log: list[tuple[str, str]] = []
    built: dict[str, str] = {}
    while walk.ended is None:
        for ask in walk.take_new():
            if isinstance(ask, Batch):
                built.update((step.path, repr(step)) for step in ask.steps)
            else:
                built[ask.key] = repr(ask)
        kind, key = order.choice(_answers(walk))
        _give(walk, kind, key)
        log.append((kind, key))
    return log, built


@settings(max_examples=120, deadline=None)
@given(states=workflows(), seeds=st.tuples(st.integers(0, 999), st.integers(0, 999)))
def test_answers_in_any_legal_order_lead_to_the_same_steps_and_the_same_end(
    states: tuple[State, ...], seeds: tuple[int, int]
) -> None:
    one, two = walk_of(*states), walk_of(*states)
    log_one, built_one = _run(one, random.Random(seeds[0]))
    log_two, built_two = _run(two, random.Random(seeds[1]))
    assert built_one == built_two
    assert sorted(log_one) == sorted(log_two)
    assert (one.ended, one.skipped(), one.position()) == (two.ended, two.skipped(), two.position())


@settings(max_examples=120, deadline=None)
@given(states=workflows())
def test_a_walk_always_ends_and_no_path_comes_twice(states: tuple[State, ...]) -> None:
    walk = walk_of(*states)
    paths = run_all(walk, decide=lambda ask: DECISIONS[sum(ask.key.encode()) % 2])
    assert len(paths) == len(set(paths))
    assert walk.ended is not None
    assert walk.ended.terminal


@settings(max_examples=60, deadline=None)
@given(states=workflows(), seed=st.integers(0, 999), part=st.floats(0.1, 0.9))
def test_a_walk_fed_from_a_journal_and_a_copied_walk_equal_the_live_one(
    states: tuple[State, ...], seed: int, part: float
) -> None:
    log, _ = _run(walk_of(*states), random.Random(seed))
    cut = int(len(log) * part)
    live, fed = walk_of(*states), walk_of(*states)
    for kind, key in log[:cut]:
        _give(live, kind, key)
        live.take_new()
    for kind, key in log[:cut]:
        _give(fed, kind, key)
    copy = live.copy()
    for walk in (live, fed, copy):
        assert walk.frontier() == live.frontier()
    for kind, key in log[cut:]:
        _give(copy, kind, key)
    assert copy.ended is not None
    for kind, key in log[cut:]:
        _give(live, kind, key)
    assert (copy.ended, copy.skipped()) == (live.ended, live.skipped())


@settings(max_examples=60, deadline=None)
@given(states=workflows(), seed=st.integers(0, 999), fail_at=st.integers(0, 20))
def test_after_a_failure_only_open_steps_end_and_the_walk_ends_badly(
    states: tuple[State, ...], seed: int, fail_at: int
) -> None:
    walk = walk_of(*states)
    order = random.Random(seed)
    for _ in range(fail_at):
        if walk.ended is None:
            _give(walk, *order.choice(_answers(walk)))
    if walk.ended is not None:
        return
    open_steps = [key for kind, key in _answers(walk) if kind == "step"]
    if not open_steps:
        return
    walk.take_new()
    failing = order.choice(open_steps)
    walk.failed(failing)
    for path in open_steps:
        if path != failing:
            walk.finished(path)
    assert walk.take_new() == ()
    assert walk.ended is not None
    assert walk.ended.reason == f"step '{failing}' failed"
