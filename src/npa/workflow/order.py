"""What is reached, and what comes before what: the order that the file itself imposes.

Groups are flattened into a graph of starts and ends. In it a parallel group is a chain like a
sequence (all its members ran when it is over), and a loop runs once (its first iteration is the
one that matters). Everything is iterative; a question costs O(log n).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field
from msgspec.structs import replace

from npa.workflow.meaning import State, Workflow

_CYCLES_MAX = 20


class Before(Enum):
    """Has the one state run when the other starts?"""

    ALWAYS = "always"
    SOMETIMES = "sometimes"  # on some paths only
    NEVER = "never"
    TOGETHER = "together"  # members of one parallel group
    UNKNOWN = "unknown"  # unreachable, or a state that stands in several places


class Reach(Struct, frozen=True):
    """`top` are states reached by `initial`, `next` and `goto`; `members` through a group."""

    top: frozenset[str]
    members: frozenset[str]

    def __contains__(self, name: str) -> bool:
        return name in self.top or name in self.members

    def only_member(self, name: str) -> bool:
        """Is the state driven by a group alone, so that its own ways out are never taken?"""
        return name in self.members and name not in self.top


def group_members(state: State) -> tuple[str, ...]:
    """Members of a group in order, () for a leaf."""
    return state.parallel or state.sequence


def live_targets(state: State) -> tuple[str, ...]:
    """States that may follow when this one is reached by the chain (not as a member)."""
    if state.terminal:
        return ()
    targets = [] if group_members(state) else [t.goto for t in state.transitions]
    if state.next:
        targets.append(state.next)
    return tuple(dict.fromkeys(targets))


def state_targets(state: State) -> tuple[str, ...]:
    """Every state that this one leads to or holds, whether that way is ever taken or not."""
    ways = [transition.goto for transition in state.transitions]
    return (*([state.next] if state.next else []), *ways, *state.sequence, *state.parallel)


def with_names(workflow: Workflow, meant: Mapping[str, str]) -> Workflow:
    """With each name in `meant` replaced, wherever one state leads to another or holds it.

    A state never leads to itself by that: such a name stays.
    """

    def mend(state: State) -> State:
        if not any(meant.get(name) for name in state_targets(state)):
            return state

        def named(name: str) -> str:
            found = meant.get(name)
            return found if found and found != state.name else name

        return replace(
            state,
            next=named(state.next),
            transitions=tuple(replace(one, goto=named(one.goto)) for one in state.transitions),
            sequence=tuple(map(named, state.sequence)),
            parallel=tuple(map(named, state.parallel)),
        )

    return replace(
        workflow,
        initial=meant.get(workflow.initial) or workflow.initial,
        states={name: mend(state) for name, state in workflow.states.items()},
    )


def reach(workflow: Workflow) -> Reach:
    """Everything that a run may enter."""
    states = workflow.states
    top = {workflow.initial} & states.keys()
    pending = list(top)
    members: set[str] = set()
    inside: list[str] = []
    while pending:
        state = states[pending.pop()]
        inside.extend(group_members(state))
        for name in live_targets(state):
            if name in states and name not in top:
                top.add(name)
                pending.append(name)
    while inside:
        name = inside.pop()
        if name in states and name not in members:
            members.add(name)
            inside.extend(group_members(states[name]))
    return Reach(frozenset(top), frozenset(members))


def find_cycles(edges: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """A closed path for each back edge of a depth-first walk, up to 20; iterative."""
    done: set[str] = set()
    cycles: list[list[str]] = []
    for root in edges:
        if root in done:
            continue
        path: list[str] = [root]
        on_path = {root: 0}
        pending = [iter(edges[root])]
        while pending:
            target = next(pending[-1], None)
            if target is None:
                pending.pop()
                name = path.pop()
                del on_path[name]
                done.add(name)
            elif target in on_path:
                cycles.append([*path[on_path[target] :], target])
                if len(cycles) >= _CYCLES_MAX:
                    return cycles
            elif target not in done and target in edges:
                on_path[target] = len(path)
                path.append(target)
                pending.append(iter(edges[target]))
    return cycles


def group_edges(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(m for m in group_members(state) if m in workflow.states)
        for name, state in workflow.states.items()
    }


class Order(Struct):
    """The order of a workflow without cycles. Build it with `order_of`."""

    index: dict[str, int]
    shared: frozenset[str]
    parent: dict[str, str]
    parallel: frozenset[str]
    in_parallel: frozenset[str]
    depth: list[int] = field(default_factory=list)
    dominator: list[int] = field(default_factory=list)
    jump: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)

    def before(self, first: str, second: str) -> Before:
        """Has `first` ended when `second` starts?"""
        if first == second:
            return Before.NEVER
        if first in self.shared or second in self.shared:
            return Before.UNKNOWN
        end, start = 2 * self.index[first] + 1, 2 * self.index[second]
        if self.rank[end] < 0 or self.rank[start] < 0:
            return Before.UNKNOWN
        if self._together(first, second):
            return Before.TOGETHER
        if self._dominates(end, start):
            return Before.ALWAYS
        return Before.NEVER if self.rank[end] > self.rank[start] else Before.SOMETIMES

    def ancestors(self, name: str) -> list[str]:
        """Enclosing groups from inside out (the first place of a state that has several)."""
        found = []
        while name in self.parent:
            name = self.parent[name]
            found.append(name)
        return found

    def _together(self, first: str, second: str) -> bool:
        if first not in self.in_parallel or second not in self.in_parallel:
            return False
        branch = {}
        child = first
        for group in self.ancestors(first):
            branch[group] = child
            child = group
        child = second
        for group in self.ancestors(second):
            if group in branch:
                return group in self.parallel and branch[group] != child
            child = group
        return False

    def _dominates(self, node: int, other: int) -> bool:
        while self.depth[other] > self.depth[node]:
            far = self.jump[other]
            other = far if self.depth[far] >= self.depth[node] else self.dominator[other]
        return other == node

    def _meet(self, a: int, b: int) -> int:
        """The nearest node that dominates both."""
        if self.depth[a] < self.depth[b]:
            a, b = b, a
        while self.depth[a] > self.depth[b]:
            far = self.jump[a]
            a = far if self.depth[far] >= self.depth[b] else self.dominator[a]
        while a != b:
            if self.jump[a] != self.jump[b]:
                a, b = self.jump[a], self.jump[b]
            else:
                a, b = self.dominator[a], self.dominator[b]
        return a

    def _settle(self, node: int, dominator: int) -> None:
        self.dominator[node] = dominator
        self.depth[node] = self.depth[dominator] + 1
        far = self.jump[dominator]
        even = (
            self.depth[dominator] - self.depth[far] == self.depth[far] - self.depth[self.jump[far]]
        )
        self.jump[node] = self.jump[far] if even else dominator


def order_of(workflow: Workflow, reached: Reach) -> Order:
    """The order of a workflow. Needs groups and ways out without cycles."""
    states = workflow.states
    index = {name: number for number, name in enumerate(states)}
    parent: dict[str, str] = {}
    shared = set(reached.top & reached.members)
    for name, state in states.items():
        for member in group_members(state):
            if member in parent or member == name:
                shared.add(member)
            elif member in states:
                parent[member] = name
    order = Order(
        index=index,
        shared=frozenset(_with_inner(workflow, shared)),
        parent=parent,
        parallel=frozenset(name for name, s in states.items() if s.parallel),
        in_parallel=frozenset(
            _with_inner(workflow, {m for s in states.values() for m in s.parallel})
        ),
    )
    _number(order, _flattened(workflow, order), 2 * index[workflow.initial])
    return order


def _with_inner(workflow: Workflow, names: set[str]) -> set[str]:
    """The names and all that stands inside them."""
    found = {name for name in names if name in workflow.states}
    pending = list(found)
    while pending:
        for member in group_members(workflow.states[pending.pop()]):
            if member in workflow.states and member not in found:
                found.add(member)
                pending.append(member)
    return found


def _flattened(workflow: Workflow, order: Order) -> list[list[int]]:
    """Successors of starts (2 i) and ends (2 i + 1)."""
    following: list[list[int]] = [[] for _ in range(2 * len(order.index))]
    for name, state in workflow.states.items():
        number = order.index[name]
        last = 2 * number
        seen: set[str] = set()
        for member in group_members(state):
            if order.parent.get(member) == name and member not in seen:
                seen.add(member)
                following[last].append(2 * order.index[member])
                last = 2 * order.index[member] + 1
        following[last].append(2 * number + 1)
        if name in order.parent:
            continue
        for target in live_targets(state):
            if target in order.index and target not in order.parent:
                following[2 * number + 1].append(2 * order.index[target])
    return following


def _number(order: Order, following: list[list[int]], root: int) -> None:
    """Topological ranks and dominators of everything that the root reaches."""
    count = len(following)
    waiting = [0] * count
    seen = [False] * count
    seen[root] = True
    pending = [root]
    while pending:
        for target in following[pending.pop()]:
            waiting[target] += 1
            if not seen[target]:
                seen[target] = True
                pending.append(target)
    order.depth = [0] * count
    order.dominator = [-1] * count
    order.jump = [root] * count
    order.rank = [-1] * count
    order.dominator[root] = root
    ready = [root]
    for rank, node in enumerate(ready):  # grows while it is read
        order.rank[node] = rank
        for target in following[node]:
            known = order.dominator[target]
            meet = node if known < 0 else order._meet(known, node)
            order.dominator[target] = meet
            waiting[target] -= 1
            if waiting[target] == 0:
                order._settle(target, meet)
                ready.append(target)
