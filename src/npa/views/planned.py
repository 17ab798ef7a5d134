"""What of a run is still to come, as far as its own plan and its recorded answers tell. Pure.

The plan is walked with the answers that the journal has; from there on every way is looked at. A
step that lies on all of them is certain, any other may run. Nothing is claimed that a decision, a
loop or the items of a `foreach` can still change: such a count is "at most", or is not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from msgspec import Struct

from npa.orchestration.state import RunState
from npa.workflow.asks import Ask, AskDecision, AskItems, Batch
from npa.workflow.plan import PLAN_STEPS_MAX
from npa.workflow.walk import AnswerMismatch, Walk

STEPS_MAX = PLAN_STEPS_MAX  # on all ways together; a larger run cannot be planned at all
WAYS_MAX = 20_000  # stretches between two decisions
_PRIME = (1 << 61) - 1
"""Ways are counted modulo this, as there may be 2 to the power of all decisions."""


class PlannedStep(Struct, frozen=True):
    """A step that has not started. `at_most` is above 1 for items that nobody has read yet."""

    path: str
    certain: bool
    at_most: int = 1


class Planned(Struct, frozen=True):
    """`total` counts all steps of the run and is a bound unless `exact`; None if there is none.

    `too_large`: there is more than is counted, and nothing is said of it.
    """

    done: int
    total: int | None
    exact: bool
    steps: tuple[PlannedStep, ...]
    too_large: bool = False


class _Stretch(Struct):
    """Steps up to a decision or the end; `ways` are the indices of what may follow."""

    steps: dict[str, int]  # path -> how many it stands for, at most
    unread: set[str]  # of them, those that stand for items nobody has read
    ways: tuple[int, ...] = ()
    fails: bool = False  # the run ends here, and not well


class _TooLarge(Exception):
    """There is more to walk than a look may cost."""


def planned(walk: Walk, state: RunState) -> Planned | None:
    """What is planned, by a walk at its start; None when the plan does not fit the journal."""
    try:
        ours = _replay(walk, state)
        stretches = _ahead(walk, STEPS_MAX - len(ours))
    except AnswerMismatch:
        return None
    except _TooLarge:
        done = sum(
            _fresh(path, state) and state.success_of(path) is not None for path in state.latest
        )
        return Planned(done, None, exact=False, steps=(), too_large=True)
    done = sum(_fresh(path, state) and state.success_of(path) is not None for path in ours)
    waiting = {path: 1 for path in ours if not _fresh(path, state)}
    stretches[0].steps = {**waiting, **stretches[0].steps}
    order = _backwards(stretches)
    if order is None:  # a way leads back: there is no longest one
        first = stretches[0]
        steps = tuple(
            PlannedStep(path, path not in first.unread, most) for path, most in first.steps.items()
        )
        return Planned(done, None, exact=False, steps=steps)
    certain = _certain(stretches, order)
    longest = {p: n for p, n in _longest(stretches, order).items() if not _fresh(p, state)}
    steps = tuple(PlannedStep(path, path in certain, most) for path, most in longest.items())
    total = len(ours) - len(waiting) + sum(longest.values())
    return Planned(done, total, exact=all(step.certain for step in steps), steps=steps)


def _fresh(path: str, state: RunState) -> bool:
    """Has this step started, and was not set to run again since?"""
    attempt = state.latest.get(path)
    return attempt is not None and state.stale.get(path, 0) <= attempt.reserved_n


def _replay(walk: Walk, state: RunState) -> list[str]:
    """Walk as far as the journal's answers lead; the paths of all steps on the way."""
    paths: list[str] = []
    waiting = deque[Ask](walk.frontier())
    walk.take_new()
    while waiting:
        match waiting.popleft():
            case Batch(steps=steps):
                for step in steps:
                    paths.append(step.path)
                    walk.finished(step.path)
                if len(paths) > STEPS_MAX:
                    raise _TooLarge
            case AskDecision(key=key, writer=writer):
                known = state.decisions.get(key)
                wrote = state.latest.get(writer)
                key_of_writer = wrote.key if wrote is not None else ""
                if known is not None and known.writer_key == key_of_writer:
                    walk.decided(key, known.value)
            case AskItems(key=key):
                if key in state.expansions:
                    walk.expanded(key, state.expansions[key].items)
        waiting.extend(walk.take_new())
    return paths


def _ahead(start: Walk, budget: int) -> list[_Stretch]:
    """Every way from here on; stretch 0 begins where the walk stands."""
    stretches = [_Stretch({}, set())]
    known = {_place(start): 0}
    waiting = deque([(0, start)])
    while waiting:
        index, walk = waiting.popleft()
        stretch = stretches[index]
        question = _run(walk, stretch, budget)
        budget -= len(stretch.steps)
        ways: list[int] = []
        for answer in question.options if question is not None else ():
            branch = walk.copy()
            branch.decided(question.key if question is not None else "", answer)
            place = _place(branch)
            if place not in known:
                known[place] = len(stretches)
                stretches.append(_Stretch({}, set()))
                waiting.append((known[place], branch))
            ways.append(known[place])
        stretch.ways = tuple(dict.fromkeys(ways))
        stretch.fails = walk.ended is not None and bool(walk.ended.reason)
        if len(stretches) > WAYS_MAX:
            raise _TooLarge
    return stretches


def _place(walk: Walk) -> tuple[str, ...]:
    """Walks at one place go on alike."""
    if walk.ended is not None:
        return (walk.ended.terminal, walk.ended.reason)
    return walk.position()


def _run(walk: Walk, stretch: _Stretch, budget: int) -> AskDecision | None:
    """Go on until only decisions are open, of which the first is the answer."""
    waiting = deque[Ask](walk.frontier())
    walk.take_new()
    limits: dict[str, int] = {}
    while waiting:
        match waiting.popleft():
            case Batch(steps=steps):
                for step in steps:
                    most = next((n for head, n in limits.items() if step.path.startswith(head)), 1)
                    stretch.steps[step.path] = most
                    if most > 1 or "[*]" in step.path:
                        stretch.unread.add(step.path)
                    walk.finished(step.path)
                if len(stretch.steps) > budget:
                    raise _TooLarge
            case AskItems(key=key, max_items=most):
                limits[f"{key.removesuffix('?items')}[*]"] = most
                walk.expand_unknown(key)
            case AskDecision():
                pass
        waiting.extend(walk.take_new())
    return next((ask for ask in walk.frontier() if isinstance(ask, AskDecision)), None)


def _backwards(stretches: list[_Stretch]) -> list[int] | None:
    """The stretches, each after all that may follow it; None if a way leads back."""
    order: list[int] = []
    mark: dict[int, bool] = {}  # True once done, False while what follows is looked at
    stack = [0]
    while stack:
        at = stack[-1]
        if at not in mark:
            mark[at] = False
            for way in stretches[at].ways:
                if mark.get(way) is False:
                    return None
                if way not in mark:
                    stack.append(way)
            continue
        stack.pop()
        if not mark[at]:
            mark[at] = True
            order.append(at)
    return order


def _certain(stretches: list[_Stretch], order: list[int]) -> frozenset[str]:
    """The steps that lie on every way from stretch 0 to an end that is no failure.

    A step is on all ways if as many ways lead through it as there are. No way has a step twice.
    """
    onward: dict[int, int] = {}  # ways from a stretch to a good end
    for at in order:
        stretch = stretches[at]
        good = sum(onward[way] for way in stretch.ways) if stretch.ways else not stretch.fails
        onward[at] = good % _PRIME
    if not onward[0]:
        return frozenset(stretches[0].steps.keys() - stretches[0].unread)
    leading = dict.fromkeys(order, 0)  # ways from stretch 0 to a stretch
    leading[0] = 1
    through: dict[str, int] = {}
    for at in reversed(order):
        stretch = stretches[at]
        for way in stretch.ways:
            leading[way] = (leading[way] + leading[at]) % _PRIME
        ways = leading[at] * onward[at]
        for path in stretch.steps.keys() - stretch.unread:
            through[path] = (through.get(path, 0) + ways) % _PRIME
    return frozenset(path for path, ways in through.items() if ways == onward[0])


def _longest(stretches: list[_Stretch], order: list[int]) -> Mapping[str, int]:
    """The steps of the way with the most of them."""
    weight: dict[int, int] = {}
    for at in order:
        after = max((weight[way] for way in stretches[at].ways), default=0)
        weight[at] = sum(stretches[at].steps.values()) + after
    steps: dict[str, int] = {}
    at = 0
    while True:
        steps.update(stretches[at].steps)
        if not stretches[at].ways:
            return steps
        at = max(stretches[at].ways, key=lambda way: weight[way])
