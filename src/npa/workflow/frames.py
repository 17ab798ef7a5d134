"""What a walk remembers: a tree of frames (groups and loops that are open) and of scopes.

A frame exists while something inside it may still happen, so a walk over 10,000 states holds a
handful. A scope holds what tokens may ask for; each member of a sliding window has its own, and
they are merged in declared order when the window ends, so that no value depends on who was faster.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from npa.workflow.graph import Node, NodeKind, unique_labels
from npa.workflow.step import Scalar


class Item(Struct, frozen=True):
    """One item of a `foreach`: its token name (`as`), its value, its 0-based index."""

    name: str
    value: Scalar
    index: int


class Scope:
    """Values that tokens may ask for: outputs of states, loop numbers, the item, the decision."""

    __slots__ = ("decision", "item", "loops", "outputs", "parent")

    def __init__(self, parent: Scope | None, item: Item | None = None) -> None:
        self.parent = parent
        self.item = item
        self.outputs: dict[str, tuple[str, ...]] = {}
        self.loops: dict[str, int] = {}
        self.decision = ""

    def find_outputs(self, state: str) -> tuple[str, ...] | None:
        """Output URIs of the state's latest step as seen from here; None if it has not run."""
        scope: Scope | None = self
        while scope is not None:
            if state in scope.outputs:
                return scope.outputs[state]
            scope = scope.parent
        return None

    def find_loops(self) -> dict[str, int]:
        """All loop numbers as seen from here; the innermost wins."""
        if self.parent is None:
            return self.loops
        found: dict[str, int] = {}
        scope: Scope | None = self
        while scope is not None:
            found = {**scope.loops, **found}
            scope = scope.parent
        return found

    def find_item(self) -> Item | None:
        """The innermost item, if any `foreach` encloses this place."""
        scope: Scope | None = self
        while scope is not None:
            if scope.item is not None:
                return scope.item
            scope = scope.parent
        return None

    def absorb(self, inner: Scope) -> None:
        """Take over what a finished member of a window left behind."""
        self.outputs.update(inner.outputs)
        self.loops.update(inner.loops)
        self.decision = inner.decision or self.decision


class Place(Struct, frozen=True):
    """Where a node stands in the run. `window` is the path of the enclosing parallel group."""

    path: str = ""
    iterations: tuple[tuple[str, int], ...] = ()
    label: str = ""
    group: str = ""
    window: str = ""
    bound: int = 1


class Frame:
    """An open group, loop or fan-out, or the chain of states itself (no parent).

    `slot` is its number within its parent; `position` what it does next (member, iteration, or the
    chain's current state); `open` counts members that have not ended; `bound` is its limit of
    open members (windows, groups) or of iterations (loops); `writer` is the latest step whose
    decision this frame may ask for: its slots (declared order), path and artifact URI.
    """

    __slots__ = (
        "bound",
        "inner",
        "items",
        "labels",
        "name",
        "node",
        "open",
        "parent",
        "place",
        "position",
        "scope",
        "slot",
        "writer",
    )

    def __init__(
        self, parent: Frame | None, slot: int, node: Node, name: str, scope: Scope
    ) -> None:
        self.parent = parent
        self.slot = slot
        self.node = node
        self.name = name
        self.scope = scope
        self.position = 0
        self.open = 0
        self.bound = 1
        self.labels: tuple[str, ...] = node.labels
        self.items: tuple[Scalar, ...] = ()
        self.inner: dict[int, Scope] = {}
        self.writer: tuple[tuple[int, ...], str, str] = ((), "", "")
        self.place: Place | None = None if parent is not None else Place()


def tail(frame: Frame, slot: int) -> str:
    """What the child at `slot` adds to the path of its frame."""
    match frame.node.kind:
        case NodeKind.CHAIN:
            return frame.name
        case NodeKind.LOOP:
            return f"[{slot}]"
        case NodeKind.FOREACH:
            return f"[{frame.labels[slot]}]"
        case _:
            return f"/{frame.labels[slot]}"


def place_of(frame: Frame) -> Place:
    """Where a frame stands. Climbs to the nearest frame that knows, and remembers the answer."""
    if frame.place is not None:
        return frame.place
    hops: list[tuple[Frame, int]] = []
    at = frame
    while at.place is None and at.parent is not None:
        hops.append((at.parent, at.slot))
        at = at.parent
    base = at.place or Place()
    frame.place = _descend(base, reversed(hops))
    return frame.place


def child_place(frame: Frame, slot: int) -> Place:
    """Where the child of `frame` at `slot` stands."""
    return _descend(place_of(frame), ((frame, slot),))


def _descend(base: Place, hops: Iterable[tuple[Frame, int]]) -> Place:
    tails = [base.path]
    iterations = list(base.iterations)
    label, group, window, bound = base.label, base.group, base.window, base.bound
    for frame, slot in hops:
        kind = frame.node.kind
        if kind is NodeKind.LOOP:
            iterations.append((frame.name, slot))
        elif kind is not NodeKind.CHAIN:
            label = frame.name
            if kind is not NodeKind.SEQUENCE:
                group, window, bound = frame.name, "".join(tails), frame.bound
        tails.append(tail(frame, slot))
    return Place("".join(tails), tuple(iterations), label, group, window, bound)


def copy_frames(open_frames: Iterable[Frame]) -> dict[int, Frame]:
    """Copies of all these frames and what encloses them, by `id` of the original."""
    frames: dict[int, Frame] = {}
    scopes: dict[int, Scope] = {}
    for leaf in open_frames:
        climb: list[Frame] = []
        at: Frame | None = leaf
        while at is not None and id(at) not in frames:
            climb.append(at)
            at = at.parent
        for old in reversed(climb):
            parent = frames[id(old.parent)] if old.parent is not None else None
            new = Frame(parent, old.slot, old.node, old.name, _copy_scope(old.scope, scopes))
            new.position, new.open, new.bound = old.position, old.open, old.bound
            new.labels, new.items, new.writer = old.labels, old.items, old.writer
            new.inner = {slot: _copy_scope(inner, scopes) for slot, inner in old.inner.items()}
            new.place = old.place
            frames[id(old)] = new
    return frames


def _copy_scope(scope: Scope, known: dict[int, Scope]) -> Scope:
    climb: list[Scope] = []
    at: Scope | None = scope
    while at is not None and id(at) not in known:
        climb.append(at)
        at = at.parent
    for old in reversed(climb):
        new = Scope(known[id(old.parent)] if old.parent is not None else None, old.item)
        new.outputs = dict(old.outputs)
        new.loops = dict(old.loops)
        new.decision = old.decision
        known[id(old)] = new
    return known[id(scope)]


def item_labels(items: tuple[Scalar, ...]) -> tuple[str, ...]:
    """Path labels of items: readable, safe in names, unique (`shard-07`, `part.json`, `a#2`)."""
    return unique_labels(tuple(_safe_label(item) for item in items))


def _safe_label(item: Scalar) -> str:
    """Text of an item: letters, digits, `.`, `_`, `-`, its last 40 characters."""
    spelt = {True: "true", False: "false", None: "null"}
    text = spelt[item] if isinstance(item, bool) or item is None else str(item)
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)
    return safe[-40:].strip("-") or "item"
