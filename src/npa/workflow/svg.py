"""The graph as SVG, with a layered layout of our own and no program outside.

Groups are frames: a sequence is a column, a parallel group a grid. The chain of states is laid out
in layers (longest path from the start), ordered by barycentres to cross few arrows. All of it is
iterative and deterministic; sizes are in pixels at the font sizes below.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct, field

from npa.workflow.drawing import Arrow, Box, Drawing, Line, Shape, Tone, box_lines

NAME_CHAR_WIDTH = 8.3  # of the bold 13 px name, generous
NOTE_CHAR_WIDTH = 6.2  # of the 11 px notes
LINE_HEIGHT = 17.0
BOX_MIN_WIDTH = 110.0
TEXT_MAX = 64  # characters of one line; the whole is in the tooltip
PADDING = 16.0
COLUMN_GAP = 30.0
LAYER_GAP = 64.0
SIDE_GAP = 34.0
AGAIN_ROOM = 26.0  # for the loop's arrow at the right of what it repeats
SWEEPS = 6
BENDS_MAX = 20_000  # points where long arrows are led past layers; beyond that they go straight


class _Rect(Struct):
    x: float = 0.0
    y: float = 0.0
    w: float = 0.0
    h: float = 0.0

    @property
    def middle(self) -> float:
        return self.x + self.w / 2

    @property
    def bottom(self) -> float:
        return self.y + self.h


class _Point(Struct):
    """A place in a layer: a box, or a bend of a long arrow (`box` is -1)."""

    box: int
    width: float
    x: float = 0.0
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)


def svg(drawing: Drawing) -> str:
    """A standalone SVG document that follows the reader's light or dark scheme."""
    rects = [_Rect() for _ in drawing.boxes]
    looped = {a.target for a in drawing.arrows if a.line is Line.AGAIN}
    for index in range(len(drawing.boxes) - 1, -1, -1):  # children stand after their parent
        _measure(drawing, rects, looped, index)
    bends = _place_tops(drawing, rects)
    for index in range(len(drawing.boxes)):
        _place_children(drawing, rects, index)
    width = max((r.x + r.w for r in rects), default=0.0) + 2 * SIDE_GAP
    height = max((r.bottom for r in rects), default=0.0) + 2 * SIDE_GAP
    body = [
        *(_frame(box, rect) for box, rect in zip(drawing.boxes, rects, strict=True)),
        *_arrows(drawing, rects, bends),
    ]
    title = escape(_clean(drawing.title))
    states = sum(not box.children for box in drawing.boxes)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-SIDE_GAP:.0f} {-SIDE_GAP:.0f} {width:.0f} {height:.0f}" '
        'role="img" font-family="system-ui, Helvetica, Arial, sans-serif" font-size="13">'
    )
    about = f"<desc>Workflow {title}: {states} states, {len(drawing.arrows)} arrows</desc>"
    return "\n".join([head, f"<title>{title}</title>", about, _STYLE, *body, "</svg>", ""])


# Sizes, from inside out.


def _measure(drawing: Drawing, rects: list[_Rect], looped: set[int], index: int) -> None:
    box = drawing.boxes[index]
    lines = [_short(line) for line in box_lines(box)]
    widths = [
        len(line) * (NOTE_CHAR_WIDTH if n else NAME_CHAR_WIDTH) for n, line in enumerate(lines)
    ]
    text_width = max(widths) + 2 * PADDING
    text_height = len(lines) * LINE_HEIGHT + PADDING
    rect = rects[index]
    again = AGAIN_ROOM if index in looped and not box.children else 0.0
    if not box.children:
        rect.w, rect.h = max(text_width, BOX_MIN_WIDTH), text_height
        return
    inner_w, inner_h = _inner_size(drawing, rects, index)
    again = AGAIN_ROOM if any(child in looped for child in box.children) else again
    rect.w = max(inner_w + 2 * PADDING + 2 * again, text_width)
    rect.h = inner_h + text_height + PADDING


def _inner_size(drawing: Drawing, rects: list[_Rect], index: int) -> tuple[float, float]:
    children = [rects[child] for child in drawing.boxes[index].children]
    if drawing.boxes[index].shape is Shape.SEQUENCE:
        height = sum(r.h for r in children) + COLUMN_GAP * (len(children) - 1)
        return max(r.w for r in children), height
    rows = _rows(children)
    width = max(sum(r.w for r in row) + PADDING * (len(row) - 1) for row in rows)
    height = sum(max(r.h for r in row) for row in rows) + PADDING * (len(rows) - 1)
    return width, height


def _rows(children: list[_Rect]) -> list[list[_Rect]]:
    """A parallel group as a grid: up to four in a row, then about square."""
    columns = max(4, math.isqrt(len(children)))
    return [children[at : at + columns] for at in range(0, len(children), columns)]


def _place_children(drawing: Drawing, rects: list[_Rect], index: int) -> None:
    box, rect = drawing.boxes[index], rects[index]
    if not box.children:
        return
    children = [rects[child] for child in box.children]
    y = rect.y + len(box_lines(box)) * LINE_HEIGHT + PADDING
    if box.shape is Shape.SEQUENCE:
        for child in children:
            child.x, child.y = rect.middle - child.w / 2, y
            y += child.h + COLUMN_GAP
        return
    for row in _rows(children):
        x = rect.middle - (sum(r.w for r in row) + PADDING * (len(row) - 1)) / 2
        for child in row:
            child.x, child.y = x, y
            x += child.w + PADDING
        y += max(r.h for r in row) + PADDING


# The chain: layers, order, coordinates.


def _place_tops(drawing: Drawing, rects: list[_Rect]) -> dict[int, list[tuple[float, float]]]:
    """Place the boxes at the top; the bends of each long arrow, by the arrow's number."""
    tops = [index for index, box in enumerate(drawing.boxes) if box.parent < 0]
    chain = [
        (number, arrow)
        for number, arrow in enumerate(drawing.arrows)
        if arrow.line in (Line.NEXT, Line.GOTO) and arrow.source != arrow.target
    ]
    layer = _layers(tops, [arrow for _, arrow in chain])
    points = {top: _Point(top, rects[top].w) for top in tops}
    count = max(layer.values(), default=0) + 1
    layers: list[list[int]] = [[] for _ in range(count)]
    for top in tops:
        layers[layer[top]].append(top)
    bends = _lead_long_arrows(chain, layer, layers, points, len(drawing.boxes))
    _order(layers, points)
    _spread(layers, points)
    heights = [max((rects[p].h for p in row if points[p].box >= 0), default=0.0) for row in layers]
    y = 0.0
    ys = []
    for number, row in enumerate(layers):
        ys.append(y)
        for point in row:
            if points[point].box >= 0:
                rect = rects[point]
                rect.x, rect.y = points[point].x - rect.w / 2, y + (heights[number] - rect.h) / 2
        y += heights[number] + LAYER_GAP
    return {
        number: [(points[p].x, ys[at] + heights[at] / 2) for p, at in chain_bends]
        for number, chain_bends in bends.items()
    }


def _layers(tops: list[int], arrows: list[Arrow]) -> dict[int, int]:
    """Longest path from the states that nothing leads to; a cycle is cut where it is met."""
    out: dict[int, list[int]] = {top: [] for top in tops}
    waiting = dict.fromkeys(tops, 0)
    for arrow in arrows:
        out[arrow.source].append(arrow.target)
        waiting[arrow.target] += 1
    layer = dict.fromkeys(tops, 0)
    ready = deque(top for top in tops if waiting[top] == 0)
    done: set[int] = set()
    rest = iter(tops)
    while len(done) < len(tops):
        if not ready:
            ready.append(next(top for top in rest if top not in done))
        at = ready.popleft()
        if at in done:
            continue
        done.add(at)
        for target in out[at]:
            if target not in done:
                layer[target] = max(layer[target], layer[at] + 1)
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
    return layer


def _lead_long_arrows(
    chain: list[tuple[int, Arrow]],
    layer: dict[int, int],
    layers: list[list[int]],
    points: dict[int, _Point],
    first_free: int,
) -> dict[int, list[tuple[int, int]]]:
    """Give arrows over several layers a bend in each, and tie all neighbours together."""
    bends: dict[int, list[tuple[int, int]]] = {}
    free = first_free
    budget = BENDS_MAX
    for number, arrow in chain:
        before = arrow.source
        start, end = layer[arrow.source], layer[arrow.target]
        if 0 < end - start - 1 <= budget:
            budget -= end - start - 1
            for at in range(start + 1, end):
                points[free] = _Point(-1, SIDE_GAP)
                layers[at].append(free)
                bends.setdefault(number, []).append((free, at))
                points[before].below.append(free)
                points[free].above.append(before)
                before, free = free, free + 1
        if end > start:
            points[before].below.append(arrow.target)
            points[arrow.target].above.append(before)
    return bends


def _order(layers: list[list[int]], points: dict[int, _Point]) -> None:
    """Barycentre sweeps, down and up."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        place = {p: n for row in layers for n, p in enumerate(row)}
        for row in layers if down else reversed(layers):

            def barycentre(point: int, down: bool = down, place: dict[int, int] = place) -> float:
                near = points[point].above if down else points[point].below
                return sum(place[p] for p in near) / len(near) if near else place[point]

            row.sort(key=barycentre)
            place.update((p, n) for n, p in enumerate(row))


def _spread(layers: list[list[int]], points: dict[int, _Point]) -> None:
    """Draw each point to the middle of its neighbours, without overlaps."""
    for row in layers:
        x = 0.0
        for point in row:
            x += points[point].width / 2
            points[point].x = x
            x += points[point].width / 2 + SIDE_GAP
    for sweep in range(SWEEPS):
        for row in layers if sweep % 2 == 0 else reversed(layers):
            wanted = []
            for point in row:
                near = points[point].above if sweep % 2 == 0 else points[point].below
                near = near or points[point].below or points[point].above
                middle = sum(points[p].x for p in near) / len(near) if near else points[point].x
                wanted.append(middle)
            _settle_row([points[p] for p in row], wanted)
    left = min((p.x - p.width / 2 for p in points.values()), default=0.0)
    for spot in points.values():
        spot.x -= left


def _settle_row(row: list[_Point], wanted: list[float]) -> None:
    """Nearest places to the wanted ones that keep order and distance: mean of two passes."""
    rights = []
    edge = -math.inf
    for point, x in zip(row, wanted, strict=True):
        at = max(x, edge + point.width / 2)
        rights.append(at)
        edge = at + point.width / 2 + SIDE_GAP
    edge = math.inf
    for number in range(len(row) - 1, -1, -1):
        point = row[number]
        at = min(wanted[number], edge - point.width / 2)
        edge = at - point.width / 2 - SIDE_GAP
        point.x = (at + rights[number]) / 2


# What is drawn.


def _frame(box: Box, rect: _Rect) -> str:
    tone = (box.status.tone if box.status else Tone.NEUTRAL).value
    kind = "frame" if box.children else "box"
    classes = f"{kind} {tone}{' end' if box.terminal else ''}{' start' if box.initial else ''}"
    lines = box_lines(box)
    x = rect.x + PADDING if box.children else rect.middle
    anchor = "start" if box.children else "middle"
    texts = []
    for number, line in enumerate(lines):
        style = "name" if number == 0 else "status" if box.status and line == lines[-1] else "note"
        y = rect.y + PADDING / 2 + LINE_HEIGHT * (number + 0.78)
        texts.append(
            f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(_short(line))}</text>"
        )
    radius = 18 if box.terminal else 8
    shape = (
        f'<rect x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.w:.1f}" height="{rect.h:.1f}" '
        f'rx="{radius}"/>'
    )
    tip = escape(_clean(", ".join(lines)))
    label = quoteattr(_clean(box.name))
    return (
        f'<g class="{classes}" data-state={label}><title>{tip}</title>{shape}{"".join(texts)}</g>'
    )


def _arrows(
    drawing: Drawing, rects: list[_Rect], bends: dict[int, list[tuple[float, float]]]
) -> Iterator[str]:
    ports = _ports(drawing, rects)
    said: dict[int, int] = {}
    for number, arrow in enumerate(drawing.arrows):
        source, target = rects[arrow.source], rects[arrow.target]
        if arrow.line is Line.AGAIN or arrow.source == arrow.target:
            yield _again(source, target, _right_edge(drawing, rects, arrow))
            continue
        start, end = ports[number]
        if end[1] < start[1] + 1:  # back up, or beside: only a file with a cycle has these
            yield _again(source, target, _right_edge(drawing, rects, arrow))
            continue
        spots = [start, *bends.get(number, ()), end]
        yield f'<path class="{arrow.line.value}" d="{_curve(spots)}"/>' + _head(end)
        if arrow.label:
            rank = said.get(arrow.source, 0)
            said[arrow.source] = rank + 1
            yield _label(arrow.label, spots[0], spots[1], rank)


def _ports(
    drawing: Drawing, rects: list[_Rect]
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Where each arrow leaves and enters: spread over the sides, in the order of the other ends."""
    leaving: dict[int, list[int]] = {}
    entering: dict[int, list[int]] = {}
    for number, arrow in enumerate(drawing.arrows):
        if arrow.line is not Line.AGAIN:
            leaving.setdefault(arrow.source, []).append(number)
            entering.setdefault(arrow.target, []).append(number)
    starts = [(0.0, 0.0)] * len(drawing.arrows)
    ends = list(starts)
    for box, numbers in leaving.items():
        numbers.sort(key=lambda n: rects[drawing.arrows[n].target].middle)
        for place, number in enumerate(numbers, 1):
            x = rects[box].x + rects[box].w * place / (len(numbers) + 1)
            starts[number] = (x, rects[box].bottom)
    for box, numbers in entering.items():
        numbers.sort(key=lambda n: rects[drawing.arrows[n].source].middle)
        for place, number in enumerate(numbers, 1):
            x = rects[box].x + rects[box].w * place / (len(numbers) + 1)
            ends[number] = (x, rects[box].y)
    return list(zip(starts, ends, strict=True))


def _curve(spots: list[tuple[float, float]]) -> str:
    x, y = spots[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in spots[1:]:
        bend = (to_y - y) / 2
        parts.append(f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(parts)


def _head(tip: tuple[float, float]) -> str:
    x, y = tip
    return f'<path class="head" d="M{x:.1f} {y:.1f}l-4.5 -8h9z"/>'


def _right_edge(drawing: Drawing, rects: list[_Rect], arrow: Arrow) -> float:
    """How far right a loop's arrow runs: just inside the frame, or beside a box of its own."""
    frame = drawing.boxes[arrow.source].parent
    if frame >= 0 and arrow.source != arrow.target:
        return rects[frame].x + rects[frame].w - PADDING / 2
    rect, other = rects[arrow.source], rects[arrow.target]
    return max(rect.x + rect.w, other.x + other.w) + AGAIN_ROOM * 0.6


def _again(source: _Rect, target: _Rect, right: float) -> str:
    """A dashed arrow at the right, from the end of what repeats back to its beginning."""
    x1, y1 = source.x + source.w, source.y + source.h * 0.7
    x2, y2 = target.x + target.w, target.y + target.h * 0.3
    line = f"M{x1:.1f} {y1:.1f}H{right:.1f}V{y2:.1f}H{x2 + 7:.1f}"
    head = f'<path class="head" d="M{x2:.1f} {y2:.1f}l8 -4.5v9z"/>'
    return f'<path class="again" d="{line}"/>{head}'


def _label(text: str, start: tuple[float, float], end: tuple[float, float], rank: int) -> str:
    """On the arrow's first stretch; neighbours stand at different heights."""
    along = (0.32, 0.62)[rank % 2]
    x = start[0] + (end[0] - start[0]) * along
    y = start[1] + min(end[1] - start[1], LAYER_GAP) * along
    shown = _short(text)
    width = len(shown) * 6.4 + 8
    return (
        f'<g class="label"><rect x="{x - width / 2:.1f}" y="{y - 8:.1f}" width="{width:.1f}" '
        f'height="16" rx="3"/><text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">'
        f"{escape(shown)}</text></g>"
    )


def _short(text: str) -> str:
    plain = _clean(text)
    return plain if len(plain) <= TEXT_MAX else f"{plain[: TEXT_MAX - 1]}…"


def _clean(text: str) -> str:
    """XML has no place for control characters, escaped or not."""
    return "".join(c if c.isprintable() else " " for c in text)


_STYLE = """<style>
svg{--ink:#1f2328;--soft:#57606a;--line:#8c959f;--fill:#f6f8fa;--frame:#ffffff;--paper:#ffffff;\
--run:#0969da;--good:#1a7f37;--bad:#cf222e;background:var(--paper)}
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--soft:#9198a1;--line:#6e7681;--fill:#21262d;\
--frame:#161b22;--paper:#0d1117;--run:#4493f8;--good:#3fb950;--bad:#f85149}}
text{fill:var(--ink)}.name{font-weight:600}.note{fill:var(--soft);font-size:11px}
.status{font-size:11px;font-weight:600}
.box rect{fill:var(--fill);stroke:var(--line);stroke-width:1.2}
.frame rect{fill:var(--frame);stroke:var(--line);stroke-dasharray:2 3}
.end rect{stroke-width:2.4}.start rect{stroke:var(--ink);stroke-width:2}
.running rect{stroke:var(--run);stroke-width:2}.running .status{fill:var(--run)}
.good rect{stroke:var(--good);stroke-width:2}.good .status{fill:var(--good)}
.bad rect{stroke:var(--bad);stroke-width:2.4}.bad .status{fill:var(--bad)}
.muted rect{stroke-dasharray:4 3}.muted text{fill:var(--soft)}
.next,.goto,.order,.again{fill:none;stroke:var(--line);stroke-width:1.4}
.again{stroke-dasharray:5 4;stroke-linejoin:round}.head{fill:var(--line)}
.label rect{fill:var(--paper)}.label text{font-size:11px;fill:var(--soft)}
</style>"""
