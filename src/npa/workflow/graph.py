"""The graph: a checked workflow compiled to immutable arrays.

Every state becomes one to three nodes, from outside in: FOREACH over LOOP over its body. The body
is a STEP, a ROUTE (a state that only routes), a SEQUENCE, a GROUP (a parallel group that launches
as batches) or a WINDOW (a parallel group of which each member runs on its own). The walk visits
nodes; views look at states and edges. Nothing here recurses, so 10,000 nested groups compile.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum

from msgspec import Struct

from npa.errors import UsageError
from npa.workflow.meaning import State, Workflow

# A reference to another state's output: `{{state.NAME.uri}}`; NAME ends at the first dot.
_STATE_TOKEN = re.compile(r"\{\{\s*state\.([^.\s}|]+)\.")


class GraphError(UsageError):
    """The workflow cannot be a graph: a name without a state, or a group that contains itself."""

    code = "WORKFLOW_GRAPH"


class NodeKind(Enum):
    CHAIN = "chain"  # the file itself: states joined by next and goto; never in `Graph.nodes`
    STEP = "step"
    ROUTE = "route"
    SEQUENCE = "sequence"
    GROUP = "group"
    WINDOW = "window"
    LOOP = "loop"
    FOREACH = "foreach"


class Node(Struct, frozen=True):
    """One thing that the walk enters. `labels` name the children in paths (`grade`, `grade#2`)."""

    index: int
    kind: NodeKind
    state: int
    children: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    has_steps: bool = True


class EdgeKind(Enum):
    NEXT = "next"
    GOTO = "goto"
    MEMBER = "member"


class Edge(Struct, frozen=True):
    """`source` and `target` are indexes into `Graph.states`; `label` says when it is taken."""

    source: int
    target: int
    kind: EdgeKind
    label: str = ""


class Graph(Struct, frozen=True):
    """A compiled workflow.

    `entry[s]` is the outermost node of state `s`; `next[s]` its successor (-1: none);
    `writers` maps a state with `until` to the state whose decision ends it; `referenced` are the
    states whose outputs some token mentions; `repeated` those that may be entered more than once.
    """

    workflow: Workflow
    states: tuple[State, ...]
    index: Mapping[str, int]
    nodes: tuple[Node, ...]
    entry: tuple[int, ...]
    initial: int
    next: tuple[int, ...]
    edges: tuple[Edge, ...]
    writers: Mapping[int, int]
    referenced: frozenset[str]
    repeated: frozenset[int]

    def ways_out(self) -> tuple[tuple[int, ...], ...]:
        """For each state the states that one may pass to next: `next` and every `goto`."""
        out: list[list[int]] = [[] for _ in self.states]
        for edge in self.edges:
            if edge.kind is not EdgeKind.MEMBER:
                out[edge.source].append(edge.target)
        return tuple(tuple(targets) for targets in out)

    def members(self, state: int) -> tuple[int, ...]:
        """Member states of a group in declared order, () for a leaf."""
        spec = self.states[state]
        return tuple(self.index[name] for name in spec.sequence or spec.parallel)


def compile_graph(workflow: Workflow) -> Graph:
    """Compile a workflow. Raises GraphError for unknown names and groups that contain themselves.

    A workflow that passed `check` never raises here.
    """
    states = tuple(workflow.states.values())
    index = {state.name: number for number, state in enumerate(states)}
    members = [_resolve(index, s, s.sequence or s.parallel, "member") for s in states]
    order = _inside_out(states, members)
    has_steps = _with_steps(states, members, order)
    entry = _entries(states)
    return Graph(
        workflow=workflow,
        states=states,
        index=index,
        nodes=tuple(_nodes(states, members, entry, has_steps)),
        entry=tuple(entry),
        initial=_initial(index, workflow),
        next=tuple(_resolve(index, s, (s.next,), "`next`")[0] if s.next else -1 for s in states),
        edges=tuple(_edges(states, members, index)),
        writers=_writers(states, members),
        referenced=frozenset(_references(workflow)),
        repeated=_repeated(states, members),
    )


def _initial(index: Mapping[str, int], workflow: Workflow) -> int:
    if workflow.initial not in index:
        raise GraphError(f"`initial` names no state: '{workflow.initial}'")
    return index[workflow.initial]


def _resolve(
    index: Mapping[str, int], state: State, names: tuple[str, ...], what: str
) -> tuple[int, ...]:
    for name in names:
        if name not in index:
            raise GraphError(f"{what} of state '{state.name}' names no state: '{name}'")
    return tuple(index[name] for name in names)


def is_leaf(state: State) -> bool:
    """Does the state run a command of its own?"""
    return not state.parallel and not state.sequence and bool(state.tool_ref or state.run)


def _inside_out(states: tuple[State, ...], members: list[tuple[int, ...]]) -> list[int]:
    """States ordered so that members come before their groups."""
    parents: list[list[int]] = [[] for _ in states]
    waiting = [len(group) for group in members]
    for parent, group in enumerate(members):
        for member in group:
            parents[member].append(parent)
    ready = deque(state for state, count in enumerate(waiting) if count == 0)
    order: list[int] = []
    while ready:
        state = ready.popleft()
        order.append(state)
        for parent in parents[state]:
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    if len(order) < len(states):
        name = next(states[s].name for s, count in enumerate(waiting) if count)
        raise GraphError(f"group '{name}' contains itself")
    return order


def _with_steps(
    states: tuple[State, ...], members: list[tuple[int, ...]], order: list[int]
) -> list[bool]:
    """Can the state ever hand out a step? A loop over nothing must not spin."""
    result = [False] * len(states)
    for number in order:
        state = states[number]
        empty = state.foreach is not None and state.foreach.items == ()
        inside = is_leaf(state) or any(result[member] for member in members[number])
        result[number] = inside and not empty
    return result


def _entries(states: tuple[State, ...]) -> list[int]:
    """Index of the outermost node of each state; its inner nodes stand just before it."""
    entries = []
    count = 0
    for state in states:
        count += 1 + (state.loop is not None) + (state.foreach is not None)
        entries.append(count - 1)
    return entries


def _nodes(
    states: tuple[State, ...],
    members: list[tuple[int, ...]],
    entry: list[int],
    has_steps: list[bool],
) -> Iterator[Node]:
    plain = [is_leaf(state) and state.loop is None and state.foreach is None for state in states]
    count = 0
    for number, state in enumerate(states):
        steps = has_steps[number]
        kind = _body_kind(state, all(plain[member] for member in members[number]))
        children = tuple(entry[member] for member in members[number])
        labels = unique_labels(state.parallel or state.sequence)
        yield Node(count, kind, number, children, labels, steps)
        count += 1
        if state.loop is not None:
            yield Node(count, NodeKind.LOOP, number, (count - 1,), has_steps=steps)
            count += 1
        if state.foreach is not None:
            yield Node(count, NodeKind.FOREACH, number, (count - 1,), has_steps=steps)
            count += 1


def _body_kind(state: State, only_plain_members: bool) -> NodeKind:
    """Groups launch together only if every member is one step; else each runs on its own."""
    if state.parallel:
        together = state.parallel_mode == "group" and only_plain_members
        return NodeKind.GROUP if together else NodeKind.WINDOW
    if state.sequence:
        return NodeKind.SEQUENCE
    return NodeKind.STEP if is_leaf(state) else NodeKind.ROUTE


def unique_labels(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names made unique: the second `grade` of a list is `grade#2`."""
    if len(set(names)) == len(names):
        return names
    seen: dict[str, int] = {}
    labels = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        labels.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(labels)


def _edges(
    states: tuple[State, ...], members: list[tuple[int, ...]], index: Mapping[str, int]
) -> Iterator[Edge]:
    for number, state in enumerate(states):
        for member in members[number]:
            yield Edge(number, member, EdgeKind.MEMBER)
        for transition in state.transitions:
            (target,) = _resolve(index, state, (transition.goto,), "`goto`")
            gate = transition.gate
            measured = f"{gate.path} {gate.op} {gate.value}" if gate else ""
            parts = (transition.when, transition.if_ and f"if {transition.if_}", measured)
            label = " and ".join(part for part in parts if part) or "otherwise"
            yield Edge(number, target, EdgeKind.GOTO, label)
        if state.next:
            yield Edge(number, index[state.next], EdgeKind.NEXT)


def _writers(states: tuple[State, ...], members: list[tuple[int, ...]]) -> dict[int, int]:
    """The decision writer of each loop with `until`: the last of its members that says so.

    Direct members come first, in list order (the public rule); only if none of them writes is a
    nested group searched. A looped leaf decides for itself. A loop without a writer is left out.
    """
    found: dict[int, int] = {}
    for number, state in enumerate(states):
        if state.loop is None or state.loop.gate is not None or not state.loop.until:
            continue
        if not members[number]:
            found[number] = number
            continue
        level: tuple[int, ...] = members[number]
        seen = set(level)
        while level:
            writers = [member for member in level if states[member].writes_decision]
            if writers:
                found[number] = writers[-1]
                break
            below = dict.fromkeys(inner for member in level for inner in members[member])
            level = tuple(inner for inner in below if inner not in seen)
            seen.update(level)
    return found


def _repeated(states: tuple[State, ...], members: list[tuple[int, ...]]) -> frozenset[int]:
    """States in a loop or a fan-out, or listed by several groups."""
    listed: dict[int, int] = {}
    for group in members:
        for member in group:
            listed[member] = listed.get(member, 0) + 1
    stack = [s for s, state in enumerate(states) if state.loop or state.foreach]
    stack += [member for member, count in listed.items() if count > 1]
    found = set(stack)
    while stack:
        for member in members[stack.pop()]:
            if member not in found:
                found.add(member)
                stack.append(member)
    return frozenset(found)


def _references(workflow: Workflow) -> Iterator[str]:
    """Names that `state.NAME.…` tokens mention, anywhere that tokens are resolved."""
    for state in workflow.states.values():
        for text in texts_of(state):
            if "state." in text:
                yield from _STATE_TOKEN.findall(text)
    stack: list[object] = list(workflow.resources.values())
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield from _STATE_TOKEN.findall(value)
        elif isinstance(value, Mapping):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)


def texts_of(state: State) -> Iterator[str]:
    """Every text of a state that may hold tokens."""
    if state.run is not None:
        yield from state.run.argv
        yield state.run.shell
        yield state.run.setup
    for io in (*state.inputs, *state.outputs):
        yield io.uri
    yield from (value for value in state.params.values() if isinstance(value, str))
    yield from state.env.values()
    if state.trigger is not None:
        yield state.trigger.uri
    if state.checkpoint is not None:
        yield state.checkpoint.uri
        yield state.checkpoint.loader
    if state.foreach is not None:
        yield state.foreach.uri
    for gate in (*(t.gate for t in state.transitions), state.loop.gate if state.loop else None):
        if gate is not None:
            yield gate.uri
