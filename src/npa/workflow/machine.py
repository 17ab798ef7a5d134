"""The machine under the walk: frames that open, advance and end. `Walk` is its public side.

`_todo` holds nodes to enter and children that are done, last in first out; nothing recurses. An
error while something is made fails the walk with a reason instead of leaving it half way.
"""

from __future__ import annotations

from typing import assert_never

from npa.errors import UsageError
from npa.workflow.asks import Ask, AskDecision, AskItems, Batch, BatchKind, Ended, Gate, Items
from npa.workflow.context import Context
from npa.workflow.decisions import (
    DECISIONS,
    GATE_NONE,
    Due,
    first_match,
    gate_answer,
    predicate_holds,
)
from npa.workflow.frames import Frame, Item, Place, Scope, child_place, item_labels, place_of
from npa.workflow.graph import Graph, Node, NodeKind
from npa.workflow.meaning import State
from npa.workflow.step import Step
from npa.workflow.steps import StepBuilder

GROUP_BOUND_MAX = 64  # tasks of one job group, the format's own limit

_ROOT = Node(-1, NodeKind.CHAIN, -1)
DONE = -1  # in `_todo`: the child at this slot has ended


class Machine:
    """State and moves of a walk. Subclasses feed it answers and then call `_settle`."""

    def __init__(self, graph: Graph, context: Context) -> None:
        self.graph = graph
        self.context = context
        self.ended: Ended | None = None
        self._builder = StepBuilder(graph, context)
        self._open: dict[str, Ask] = {}
        self._fresh: list[str] = []
        self._pending: dict[str, tuple[Frame, int, str]] = {}
        self._left: dict[str, int] = {}
        self._questions: dict[str, Frame] = {}
        self._withdrawn: set[str] = set()
        self._visited: set[int] = set()
        self._failing = ""
        self._todo: list[tuple[Frame, int, int]] = []
        self._root = Frame(None, 0, _ROOT, "", Scope(None))
        self._answers: dict[str, str] = {}
        self._enter_state(graph.initial)
        self._settle()

    def _settle(self) -> None:
        if self._failing:
            self._todo.clear()
        while self._todo and not self._failing:
            frame, slot, node = self._todo.pop()
            try:
                if node == DONE:
                    self._child_done(frame, slot)
                else:
                    self._enter(frame, slot, self.graph.nodes[node])
            except UsageError as error:
                when = "after" if node == DONE else "at"
                self._fail(f"{when} '{child_place(frame, slot).path}': {error.message}")
        if self._failing and not self._pending and self.ended is None:
            self.ended = Ended("", self._failing)

    def _fail(self, reason: str) -> None:
        self._failing = self._failing or reason
        self._todo.clear()
        for key in self._questions:
            del self._open[key]
            self._withdrawn.add(key)
        self._questions.clear()

    def _enter(self, parent: Frame, slot: int, node: Node) -> None:
        self._visited.add(node.state)
        if not node.has_steps:
            self._todo.append((parent, slot, DONE))
            return
        if node.kind is NodeKind.STEP:
            self._open_step(parent, slot, node)
            return
        state = self.graph.states[node.state]
        frame = Frame(parent, slot, node, state.name, _scope_for(parent, slot))
        match node.kind:
            case NodeKind.SEQUENCE:
                self._todo.append((frame, 0, node.children[0]))
            case NodeKind.LOOP:
                frame.bound = self._builder.loop_max(state)
                self._next_iteration(frame)
            case NodeKind.GROUP:
                bound = self._builder.concurrency(state)
                frame.bound = min(bound or GROUP_BOUND_MAX, len(node.children))
                self._open_batch(frame)
            case NodeKind.WINDOW:
                self._open_window(frame, len(node.children))
            case NodeKind.FOREACH:
                self._open_foreach(frame, state)
            case NodeKind.CHAIN | NodeKind.STEP | NodeKind.ROUTE:
                raise AssertionError(f"{node.kind} makes no frame")
            case _:
                assert_never(node.kind)

    def _child_done(self, frame: Frame, slot: int) -> None:
        """A child ended; climb as long as that ends its parent too."""
        while True:
            match frame.node.kind:
                case NodeKind.CHAIN:
                    self._branch()
                    return
                case NodeKind.SEQUENCE:
                    frame.position = slot + 1
                    if frame.position < len(frame.node.children):
                        child = frame.node.children[frame.position]
                        self._todo.append((frame, frame.position, child))
                        return
                case NodeKind.LOOP:
                    if self._ask_until(frame):
                        return
                    if frame.position < frame.bound:
                        self._next_iteration(frame)
                        return
                case NodeKind.GROUP:
                    frame.open -= 1
                    if frame.open:
                        return
                    if frame.position < len(frame.node.children):
                        self._open_batch(frame)
                        return
                case NodeKind.WINDOW | NodeKind.FOREACH:
                    frame.open -= 1
                    self._fill_window(frame)
                    if frame.open:
                        return
                    self._merge(frame)
                case NodeKind.STEP | NodeKind.ROUTE:
                    raise AssertionError(f"{frame.node.kind} has no children")
                case _:
                    assert_never(frame.node.kind)
            assert frame.parent is not None  # noqa: S101  only the chain has none
            frame, slot = frame.parent, frame.slot

    def _frame_done(self, frame: Frame) -> None:
        assert frame.parent is not None  # noqa: S101  only the chain has none
        self._todo.append((frame.parent, frame.slot, DONE))

    # Steps and batches.

    def _build(self, frame: Frame, slot: int, node: Node, place: Place, scope: Scope) -> Step:
        looped = frame.node.kind is NodeKind.LOOP
        step = self._builder.build(node.state, place, scope, slot if looped else None)
        if self._builder.decides(node.state):
            self._note_writer(frame, slot, node.state, step)
        return step

    def _note_writer(self, frame: Frame, slot: int, state: int, step: Step) -> None:
        """Tell the loops around, and the chain, that this step wrote what they may ask for."""
        slots = [slot]
        at: Frame | None = frame
        while at is not None:
            order = tuple(reversed(slots))
            chain = at.parent is None
            wanted = at.position if chain else self.graph.writers.get(at.node.state, -1)
            loops = chain or at.node.kind is NodeKind.LOOP
            if loops and wanted == state and order >= at.writer[0]:
                at.writer = (order, step.path, step.decision_uri)
            slots.append(at.slot)
            at = at.parent

    def _open_step(self, frame: Frame, slot: int, node: Node) -> None:
        place = child_place(frame, slot)
        step = self._build(frame, slot, node, place, _scope_for(frame, slot))
        kind = BatchKind.WINDOW if place.window else BatchKind.SERIAL
        self._pending[place.path] = (frame, slot, place.path)
        self._ask(place.path, Batch(kind, place.window, (step,), place.bound))

    def _open_batch(self, frame: Frame) -> None:
        first = frame.position
        frame.position = min(first + frame.bound, len(frame.node.children))
        frame.open = frame.position - first
        steps = []
        for slot in range(first, frame.position):
            node = self.graph.nodes[frame.node.children[slot]]
            self._visited.add(node.state)
            steps.append(self._build(frame, slot, node, child_place(frame, slot), frame.scope))
        key = steps[0].path
        for slot, step in enumerate(steps, first):
            self._pending[step.path] = (frame, slot, key)
        self._left[key] = len(steps)
        group = place_of(frame).path
        self._ask(key, Batch(BatchKind.GROUP, group, tuple(steps), frame.bound))

    def _ask(self, key: str, ask: Ask) -> None:
        self._open[key] = ask
        self._fresh.append(key)

    # Windows: parallel members and items that run on their own.

    def _open_window(self, frame: Frame, count: int) -> None:
        state = self.graph.states[frame.node.state]
        frame.bound = min(self._builder.concurrency(state) or count, count)
        self._fill_window(frame)

    def _open_foreach(self, frame: Frame, state: State) -> None:
        spec = state.foreach
        assert spec is not None  # noqa: S101  only such states compile to FOREACH
        if spec.items is not None:
            items = self._builder.inline_items(state, frame.scope)
            self._fan_out(frame, items, item_labels(items))
            return
        key = f"{place_of(frame).path}?items"
        self._questions[key] = frame
        self._ask(key, AskItems(key, self._builder.items_uri(state, frame.scope), spec.max_items))

    def _fan_out(self, frame: Frame, items: Items, labels: tuple[str, ...]) -> None:
        frame.items, frame.labels = items, labels
        if items:
            self._open_window(frame, len(items))
        else:
            self._frame_done(frame)

    def _fill_window(self, frame: Frame) -> None:
        foreach = frame.node.kind is NodeKind.FOREACH
        total = len(frame.items) if foreach else len(frame.node.children)
        more = min(frame.bound - frame.open, total - frame.position)
        state = self.graph.states[frame.node.state]
        opened = []
        for slot in range(frame.position, frame.position + more):
            item = None
            if foreach and state.foreach is not None:
                item = Item(state.foreach.as_, frame.items[slot], slot)
            frame.inner[slot] = Scope(frame.scope, item)
            opened.append((frame, slot, frame.node.children[0 if foreach else slot]))
        frame.position += more
        frame.open += more
        self._todo.extend(reversed(opened))

    def _merge(self, frame: Frame) -> None:
        for inner in frame.inner.values():  # in declared order: that is how members open
            frame.scope.absorb(inner)

    # Loops.

    def _next_iteration(self, frame: Frame) -> None:
        frame.position += 1
        frame.scope.loops[frame.name] = frame.position
        frame.writer = ((), "", "")
        self._todo.append((frame, frame.position, frame.node.children[0]))

    def _ask_until(self, frame: Frame) -> bool:
        """Ask what ends the loop. False if it only counts."""
        state = self.graph.states[frame.node.state]
        loop = state.loop
        if loop is None or not (loop.until or loop.gate):
            return False
        key = f"{child_place(frame, frame.position).path}?until"
        _, path, uri = frame.writer
        gates: tuple[Gate, ...] = ()
        if loop.gate is not None:
            gates = (Gate(*self._builder.gate(state, loop.gate, frame.scope)),)
        elif not uri:
            uri = self._builder.fallback_decision_uri(state, frame.scope)
        self._ask_decision(frame, key, path, uri, gates)
        return True

    def _ask_decision(
        self, frame: Frame, key: str, writer: str, uri: str, gates: tuple[Gate, ...]
    ) -> None:
        options: tuple[str, ...] = DECISIONS
        if gates:
            options = (*(gate_answer(number) for number in range(len(gates))), GATE_NONE)
        uris = (uri,) if uri and not gates else ()
        self._questions[key] = frame
        self._ask(key, AskDecision(key, writer, uris, gates, options))

    def _loop_decided(self, frame: Frame, answer: str) -> None:
        loop = self.graph.states[frame.node.state].loop
        assert loop is not None  # noqa: S101  only looped states ask
        if loop.gate is None:
            frame.scope.decision = answer
            over = predicate_holds(loop.until, answer)
        else:
            over = answer == gate_answer(0)
        if over or frame.position >= frame.bound:
            self._frame_done(frame)
        else:
            self._next_iteration(frame)

    # The chain: `next`, transitions, terminal states.

    def _enter_state(self, state: int) -> None:
        root = self._root
        root.position, root.name = state, self.graph.states[state].name
        root.writer = ((), "", "")
        self._answers.clear()
        self._todo.append((root, 0, self.graph.entry[state]))

    def _branch(self) -> None:
        """The chain's current state has ended: go on, ask, or end."""
        number = self._root.position
        state = self.graph.states[number]
        if state.terminal:
            self.ended = Ended(state.name)
            return
        group = bool(state.sequence or state.parallel)
        if state.transitions and not group:
            target = self._first_match(state)
            if target is None:
                return
            if target:
                self._enter_state(self.graph.index[target])
                return
        if self.graph.next[number] >= 0:
            self._enter_state(self.graph.next[number])
        elif state.transitions and not group:
            seen = self._answers.get("decision") or self._answers.get("gate") or "no decision"
            self._fail(f"nothing matches after '{state.name}' ({seen}), and it has no `next`")
        else:
            self._fail(f"the run ended after '{state.name}', which is not a terminal state")

    def _first_match(self, state: State) -> str | None:
        """The target of the first transition that holds, "" for none; None if an answer is due."""
        live = [t for t in state.transitions if not t.if_ or self._builder.flag(state, t.if_)]
        known = self._answers
        match = first_match(live, known.get("decision", ""), known.get("gate", ""))
        if match is Due.DECISION and self._recall_decision(state):
            match = first_match(live, known["decision"], known.get("gate", ""))
        if match is Due.DECISION:
            return None
        if match is Due.GATES:
            specs = [t.gate for t in live if t.gate is not None]
            gates = tuple(Gate(*self._builder.gate(state, g, self._root.scope)) for g in specs)
            word = "gate" if any(t.when for t in live) else "next"
            self._ask_decision(self._root, f"{state.name}?{word}", self._root.writer[1], "", gates)
            return None
        return match

    def _recall_decision(self, state: State) -> bool:
        """Use the decision read last if no artifact is declared; else ask, and answer False."""
        scope = self._root.scope
        _, path, uri = self._root.writer
        uri = uri or self._builder.fallback_decision_uri(state, scope)
        if not uri and scope.decision:
            self._answers["decision"] = scope.decision
            return True
        self._ask_decision(self._root, f"{state.name}?next", path, uri, ())
        return False


def _scope_for(parent: Frame, slot: int) -> Scope:
    """Members of a window have their own scope; everything else shares its frame's."""
    if parent.node.kind in (NodeKind.WINDOW, NodeKind.FOREACH):
        return parent.inner[slot]
    return parent.scope
