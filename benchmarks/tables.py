"""Figures as tables for people and as one JSON document for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from measure import Cost

FLOOR = "bare Python loop"


@dataclass(frozen=True, slots=True)
class Row:
    """One engine on one case: the best wall time, all of them, and the costs of the best run."""

    engine: str
    a_step_is: str
    case: str
    steps: int
    wall_s: float
    walls_s: tuple[float, ...]
    cpu_s: float
    tree_mb: float
    largest_mb: float
    problem: str = ""

    @staticmethod
    def of(engine: str, a_step_is: str, case: str, steps: int, costs: Sequence[Cost]) -> Row:
        bad = next((cost for cost in costs if cost.problem), None)
        best = bad or min(costs, key=lambda cost: cost.wall_s)
        return Row(
            engine=engine,
            a_step_is=a_step_is,
            case=case,
            steps=steps,
            wall_s=round(best.wall_s, 4),
            walls_s=tuple(round(cost.wall_s, 4) for cost in costs),
            cpu_s=round(best.cpu_s, 4),
            tree_mb=round(max(cost.tree_mb for cost in costs), 1),
            largest_mb=round(max(cost.largest_mb for cost in costs), 1),
            problem=best.problem,
        )


@dataclass(frozen=True, slots=True)
class Skipped:
    what: str
    why: str


Found = Mapping[str, Sequence[Row | Skipped]]


def page(machine: Mapping[str, object], found: Found) -> str:
    parts = ["Overhead of the engine, best of several runs. " + _one_line(machine)]
    for name, items in found.items():
        rows = [item for item in items if isinstance(item, Row) and not item.problem]
        if rows:
            parts.append(_TABLES[name](rows))
    skipped = [item for items in found.values() for item in items if isinstance(item, Skipped)]
    if skipped:
        parts.append("Not measured:\n" + "\n".join(f"- {s.what}: {s.why}" for s in skipped))
    return "\n\n".join(parts)


def document(machine: Mapping[str, object], found: Found) -> dict[str, object]:
    return {
        "machine": dict(machine),
        "results": {
            name: [asdict(item) for item in items if isinstance(item, Row)]
            for name, items in found.items()
        },
        "skipped": [
            asdict(item) for items in found.values() for item in items if isinstance(item, Skipped)
        ],
    }


def _no_ops(rows: Sequence[Row]) -> str:
    """A line an engine, a pair of columns a case; ratios are to the bare loop of the same case."""
    cases = list(dict.fromkeys(row.case for row in rows))
    cell = {(row.engine, row.case): row for row in rows}
    head = ["engine", "a step is", *(f"{case}, s" for case in cases)]
    head += [f"x loop, {case}" for case in cases] + ["ms/step", "peak MB"]
    lines = []
    for engine in dict.fromkeys(row.engine for row in rows):
        own = [cell.get((engine, case)) for case in cases]
        base = [cell.get((FLOOR, case)) for case in cases]
        there = [row for row in own if row]
        largest = max(there, key=lambda row: (row.steps, row.wall_s))
        lines.append(
            [
                engine,
                there[0].a_step_is,
                *(f"{row.wall_s:.2f}" if row else "-" for row in own),
                *(
                    f"{row.wall_s / floor.wall_s:.1f}" if row and floor else "-"
                    for row, floor in zip(own, base, strict=True)
                ),
                f"{1000 * largest.wall_s / largest.steps:.2f}",
                f"{max(row.tree_mb for row in there):.0f}",
            ]
        )
    return "No-op workflows, wall seconds (two steps at once in a fan)\n\n" + _table(head, lines)


def _start_up(rows: Sequence[Row]) -> str:
    bare = rows[0].wall_s
    lines = [
        [
            row.engine,
            f"{1000 * row.wall_s:.0f}",
            f"{1000 * (row.wall_s - bare):+.0f}",
            f"{row.wall_s / bare:.1f}",
            f"{row.largest_mb:.0f}",
        ]
        for row in rows
    ]
    head = ["command", "ms", "above bare Python, ms", "x bare Python", "peak MB"]
    return "Start-up\n\n" + _table(head, lines)


def _planning(rows: Sequence[Row]) -> str:
    return "Validate and plan, whole process\n\n" + _by_size(rows, "ms/state")


def _long_runs(rows: Sequence[Row]) -> str:
    return "Open a finished run, whole process\n\n" + _by_size(rows, "ms/step")


def _rendering(rows: Sequence[Row]) -> str:
    lines = [
        [
            row.engine,
            f"{1000 * row.wall_s:.1f}",
            f"{1000 * max(row.walls_s):.1f}",
            f"{1000 * row.wall_s / max(row.steps, 1):.3f}",
        ]
        for row in rows
    ]
    head = ["in one process, after imports", "ms", "first or worst, ms", "ms/step"]
    return "Check, plan and render for SkyPilot\n\n" + _table(head, lines)


_TABLES = {
    "no-ops": _no_ops,
    "start-up": _start_up,
    "planning": _planning,
    "rendering": _rendering,
    "long-runs": _long_runs,
}


def _by_size(rows: Sequence[Row], each: str) -> str:
    lines = [
        [
            row.engine,
            f"{row.wall_s:.2f}",
            f"{1000 * row.wall_s / row.steps:.3f}",
            f"{row.largest_mb:.0f}",
        ]
        for row in rows
    ]
    return _table(["command", "s", each, "peak MB"], lines)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, padded so that it reads well as plain text."""
    every = [list(head), *(list(line) for line in lines)]
    widths = [max(len(line[place]) for line in every) for place in range(len(head))]

    def text(line: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "| " + " | ".join(cells) + " |"

    rule = (
        "| "
        + " | ".join(
            "-" * width if place == 0 else "-" * (width - 1) + ":"
            for place, width in enumerate(widths)
        )
        + " |"
    )
    return "\n".join([text(every[0]), rule, *map(text, every[1:])])


def _one_line(machine: Mapping[str, object]) -> str:
    return (
        f"{machine['cpus']} CPUs, {machine['memory_gb']} GB, Python {machine['python']}, "
        f"{machine['system']}, {machine['when']}"
    )
