"""The graph as pictures in text: Mermaid, DOT and JSON. `npa.workflow.svg` draws the same model.

A drawing holds one box for each state at each place where a group lists it; a group that is listed
again is drawn once and named where it comes again. Boxes may carry a status, as words and a tone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from npa.workflow.graph import EdgeKind, Graph, NodeKind, is_leaf
from npa.workflow.meaning import State

INDENT_MAX = 20  # levels


class Tone(Enum):
    """How a status looks; its text always says the same in words."""

    NEUTRAL = "neutral"
    RUNNING = "running"
    GOOD = "good"
    BAD = "bad"
    MUTED = "muted"


class Status(Struct, frozen=True):
    """What a view knows of a state: `text` such as "succeeded" or "2 of 4 running"."""

    text: str
    tone: Tone = Tone.NEUTRAL


class Shape(Enum):
    STEP = "step"
    ROUTE = "route"
    SEQUENCE = "sequence"
    PARALLEL = "parallel"


class Box(Struct, frozen=True):
    """One state at one place. `parent` is an index, -1 at the top; `notes` are short lines."""

    name: str
    shape: Shape
    parent: int = -1
    notes: tuple[str, ...] = ()
    initial: bool = False
    terminal: bool = False
    status: Status | None = None
    children: tuple[int, ...] = ()


class Line(Enum):
    NEXT = "next"
    GOTO = "goto"
    ORDER = "order"  # from one member of a sequence to the next
    AGAIN = "again"  # a loop


class Arrow(Struct, frozen=True):
    source: int
    target: int
    line: Line
    label: str = ""


class Drawing(Struct, frozen=True):
    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def draw(graph: Graph, statuses: Mapping[str, Status] | None = None) -> Drawing:
    """Lay out what is in the picture; where it stands is left to the format."""
    known = statuses or {}
    top = _top_states(graph)
    boxes: list[Box] = []
    children: list[list[int]] = []
    unfolded: set[int] = set()
    at_top: dict[int, int] = {}
    stack = [(state, -1) for state in reversed(top)]
    while stack:
        number, parent = stack.pop()
        index = len(boxes)
        box = _box(graph, number, parent, known)
        members = graph.members(number)
        if members and number in unfolded:
            members = ()
            box = replace(box, shape=Shape.ROUTE, notes=("drawn above",))
        boxes.append(box)
        children.append([])
        if parent >= 0:
            children[parent].append(index)
        else:
            at_top[number] = index
        unfolded.add(number)
        stack.extend((member, index) for member in reversed(members))
    boxes = [replace(box, children=tuple(children[i])) for i, box in enumerate(boxes)]
    arrows = (*_joined(_chain_arrows(graph, at_top)), *_inner_arrows(graph, boxes))
    return Drawing(graph.workflow.name, tuple(boxes), arrows)


def _top_states(graph: Graph) -> list[int]:
    """States that the chain reaches, and those that nothing reaches, in file order."""
    out = graph.ways_out()
    reached = {graph.initial}
    stack = [graph.initial]
    while stack:
        at = stack.pop()
        for target in () if graph.states[at].terminal else out[at]:
            if target not in reached:
                reached.add(target)
                stack.append(target)
    listed = {member for number in range(len(graph.states)) for member in graph.members(number)}
    return [n for n in range(len(graph.states)) if n in reached or n not in listed]


def _box(graph: Graph, number: int, parent: int, statuses: Mapping[str, Status]) -> Box:
    state = graph.states[number]
    shape = Shape.ROUTE
    if state.parallel:
        shape = Shape.PARALLEL
    elif state.sequence:
        shape = Shape.SEQUENCE
    elif is_leaf(state):
        shape = Shape.STEP
    return Box(
        name=state.name,
        shape=shape,
        parent=parent,
        notes=tuple(_notes(graph, state)),
        initial=parent < 0 and number == graph.initial,
        terminal=parent < 0 and state.terminal,
        status=statuses.get(state.name),
    )


def _notes(graph: Graph, state: State) -> Iterator[str]:
    if state.tool_ref:
        yield state.tool_ref
    if state.parallel:
        bound = f", {_plain(state.max_concurrency)} at once" if state.max_concurrency else ""
        yield f"parallel: {len(state.parallel)} members{bound}"
    if state.foreach is not None:
        items = state.foreach.items
        over = f"{len(items)} items" if items is not None else "a manifest"
        yield f"for each {state.foreach.as_} of {over}"
    if state.loop is not None:
        yield loop_text(state)
    if state.writes_decision:
        yield "writes the decision"
    if graph.index[state.name] == graph.initial and state.trigger is not None:
        yield "waits for objects"


def loop_text(state: State) -> str:
    """`repeat up to 3, until promote_checkpoint`."""
    loop = state.loop
    if loop is None:
        return ""
    until = loop.until
    if loop.gate is not None:
        until = f"{loop.gate.path} {loop.gate.op} {_plain(loop.gate.value)}"
    return f"repeat up to {_plain(loop.max)}{f', until {until}' if until else ''}"


def _plain(value: object) -> str:
    return re.sub(r"[{}\s]", "", str(value))


def _chain_arrows(graph: Graph, at_top: Mapping[int, int]) -> Iterator[Arrow]:
    for edge in graph.edges:
        if edge.source not in at_top or edge.target not in at_top:
            continue
        state = graph.states[edge.source]
        group = bool(state.sequence or state.parallel)
        if edge.kind is EdgeKind.MEMBER or state.terminal or (edge.kind is EdgeKind.GOTO and group):
            continue
        source, target = at_top[edge.source], at_top[edge.target]
        if edge.kind is EdgeKind.GOTO:
            yield Arrow(source, target, Line.GOTO, edge.label)
        else:
            otherwise = "otherwise" if state.transitions and not group else ""
            yield Arrow(source, target, Line.NEXT, otherwise)


def _joined(arrows: Iterator[Arrow]) -> Iterator[Arrow]:
    """Ways that lead from one state to the same other one are one arrow with both labels."""
    joined: dict[tuple[int, int], Arrow] = {}
    for arrow in arrows:
        pair = (arrow.source, arrow.target)
        before = joined.get(pair)
        label = f"{before.label} / {arrow.label}" if before is not None else arrow.label
        joined[pair] = replace(arrow, label=label)
    yield from joined.values()


def _inner_arrows(graph: Graph, boxes: list[Box]) -> Iterator[Arrow]:
    for index, box in enumerate(boxes):
        if box.shape is Shape.SEQUENCE:
            for before, after in zip(box.children, box.children[1:], strict=False):
                yield Arrow(before, after, Line.ORDER)
        state = graph.states[graph.index[box.name]]
        if state.loop is not None and (box.children or box.shape is Shape.STEP):
            if box.shape is Shape.SEQUENCE:
                yield Arrow(box.children[-1], box.children[0], Line.AGAIN, loop_text(state))
            else:
                yield Arrow(index, index, Line.AGAIN, loop_text(state))


# Mermaid.

_MERMAID_CLASSES = {
    Tone.NEUTRAL: "fill:#f4f5f7,stroke:#57606a,color:#1f2328",
    Tone.RUNNING: "fill:#ddf4ff,stroke:#0969da,color:#0a3069",
    Tone.GOOD: "fill:#dafbe1,stroke:#1a7f37,color:#0f5323",
    Tone.BAD: "fill:#ffebe9,stroke:#cf222e,color:#82071e",
    Tone.MUTED: "fill:#ffffff,stroke:#afb8c1,color:#57606a,stroke-dasharray:4 3",
}


def mermaid(drawing: Drawing) -> str:
    """A Mermaid flowchart."""
    lines = ["flowchart TD"]
    for index, depth, closes in _nested(drawing):
        box = drawing.boxes[index]
        pad = _indent(depth)
        if closes:
            lines.append(f"{pad}end")
        elif box.children:
            lines.append(f'{pad}subgraph s{index}["{_mermaid_text(box, " · ")}"]')
            lines.append(f"{pad}  direction {'LR' if box.shape is Shape.PARALLEL else 'TB'}")
        else:
            opens, shuts = ("{{", "}}") if box.shape is Shape.ROUTE else ("[", "]")
            if box.terminal:
                opens, shuts = "([", "])"
            lines.append(f'{pad}s{index}{opens}"{_mermaid_text(box, "<br>")}"{shuts}')
    for arrow in drawing.arrows:
        line = "-.->" if arrow.line is Line.AGAIN else "-->"
        label = f'|"{_mermaid_escape(arrow.label)}"|' if arrow.label else ""
        lines.append(f"  s{arrow.source} {line}{label} s{arrow.target}")
    tones: dict[Tone, list[str]] = {}
    for index, box in enumerate(drawing.boxes):
        if box.status is not None:
            tones.setdefault(box.status.tone, []).append(f"s{index}")
    for tone, names in tones.items():
        lines.append(f"  classDef {tone.value} {_MERMAID_CLASSES[tone]}")
        lines.append(f"  class {','.join(names)} {tone.value}")
    return "\n".join(lines) + "\n"


def _nested(drawing: Drawing) -> Iterator[tuple[int, int, bool]]:
    """(box, depth, is this its end) in an order that nests; ends are told for groups only."""
    tops = [index for index, box in enumerate(drawing.boxes) if box.parent < 0]
    stack = [(index, 0, False) for index in reversed(tops)]
    while stack:
        index, depth, closes = stack.pop()
        yield index, depth, closes
        children = drawing.boxes[index].children
        if children and not closes:
            stack.append((index, depth, True))
            stack.extend((child, depth + 1, False) for child in reversed(children))


def _indent(depth: int) -> str:
    """Of nested text; bounded, or a deep file would be mostly blanks."""
    return "  " * min(depth + 1, INDENT_MAX)


def box_lines(box: Box) -> tuple[str, ...]:
    """What is written in a box: its name, its notes, its status in words."""
    status = (f"[{box.status.text}]",) if box.status is not None else ()
    return (box.name, *box.notes, *status)


def _mermaid_text(box: Box, separator: str) -> str:
    return separator.join(_mermaid_escape(line) for line in box_lines(box))


def _mermaid_escape(text: str) -> str:
    """Entity codes for what Mermaid would read as syntax."""
    return re.sub(r'[#"<>&|`\x00-\x1f]', lambda m: f"#{ord(m.group())};", text)


# DOT.

_DOT_TONES = {
    Tone.NEUTRAL: ("#f4f5f7", "#57606a"),
    Tone.RUNNING: ("#ddf4ff", "#0969da"),
    Tone.GOOD: ("#dafbe1", "#1a7f37"),
    Tone.BAD: ("#ffebe9", "#cf222e"),
    Tone.MUTED: ("#ffffff", "#afb8c1"),
}


def dot(drawing: Drawing) -> str:
    """A Graphviz digraph; groups are clusters."""
    lines = [
        f"digraph {_dot_quote(drawing.title)} {{",
        "  compound=true; rankdir=TB;",
        '  node [shape=box, style="rounded,filled", fillcolor="#f4f5f7", fontname="Helvetica"];',
        '  edge [fontname="Helvetica", fontsize=10];',
    ]
    for index, depth, closes in _nested(drawing):
        box = drawing.boxes[index]
        pad = _indent(depth)
        fill, stroke = _DOT_TONES[box.status.tone if box.status else Tone.NEUTRAL]
        look = f'fillcolor="{fill}", color="{stroke}"'
        label = _dot_quote("\n".join(box_lines(box)))
        if closes:
            lines.append(f"{pad}}}")
        elif box.children:
            lines.append(f"{pad}subgraph cluster_s{index} {{")
            lines.append(f'{pad}  label={label}; style="rounded"; color="{stroke}";')
        else:
            peripheries = ", peripheries=2" if box.terminal else ""
            lines.append(f"{pad}s{index} [label={label}, {look}{peripheries}];")
    first, last = _corners(drawing)
    for arrow in drawing.arrows:
        attributes = [f"label={_dot_quote(arrow.label)}"] if arrow.label else []
        if arrow.line is Line.AGAIN:
            attributes.append("style=dashed, constraint=false")
        if drawing.boxes[arrow.source].children:
            attributes.append(f"ltail=cluster_s{arrow.source}")
        if drawing.boxes[arrow.target].children:
            attributes.append(f"lhead=cluster_s{arrow.target}")
        tail = f" [{', '.join(attributes)}]" if attributes else ""
        lines.append(f"  s{last[arrow.source]} -> s{first[arrow.target]}{tail};")
    return "\n".join([*lines, "}"]) + "\n"


def _corners(drawing: Drawing) -> tuple[list[int], list[int]]:
    """The first and the last leaf of each box: where DOT ties an edge of a cluster."""
    first = list(range(len(drawing.boxes)))
    last = list(range(len(drawing.boxes)))
    for index in range(len(drawing.boxes) - 1, -1, -1):  # children stand after their parent
        children = drawing.boxes[index].children
        if children:
            first[index], last[index] = first[children[0]], last[children[-1]]
    return first, last


def _dot_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# JSON.


def graph_json(graph: Graph, statuses: Mapping[str, Status] | None = None) -> dict[str, object]:
    """States and edges by name; the same for programs as the pictures are for people."""
    known = statuses or {}
    return {
        "workflow": graph.workflow.name,
        "api_version": graph.workflow.api_version,
        "initial": graph.workflow.initial,
        "states": [_state_json(graph, number, known) for number in range(len(graph.states))],
        "edges": [
            {
                "source": graph.states[edge.source].name,
                "target": graph.states[edge.target].name,
                "kind": edge.kind.value,
                "label": edge.label,
            }
            for edge in graph.edges
        ],
    }


def _state_json(graph: Graph, number: int, statuses: Mapping[str, Status]) -> dict[str, object]:
    state = graph.states[number]
    entry = graph.nodes[graph.entry[number]]
    body = graph.nodes[graph.entry[number] - (state.loop is not None) - (state.foreach is not None)]
    document: dict[str, object] = {
        "name": state.name,
        "kind": body.kind.value,
        "description": state.description,
        "tool_ref": state.tool_ref,
        "members": [graph.states[member].name for member in graph.members(number)],
        "loop": loop_text(state),
        "foreach": entry.kind is NodeKind.FOREACH,
        "terminal": state.terminal,
        "writes_decision": state.writes_decision,
    }
    status = statuses.get(state.name)
    if status is not None:
        document["status"] = {"text": status.text, "tone": status.tone.value}
    return document
