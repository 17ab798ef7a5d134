"""The comments of a file, which no parser of YAML tells: to see that none was lost or cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import yaml

from npa.workflow.style import block_text_lines, scalars

Span = tuple[int, int]  # columns, the second not included


def comments(text: str, root: yaml.Node | None) -> Counter[str]:
    """How often each comment stands in a text whose lines all end with a newline.

    `root` is what the text was composed to. Raises nothing.
    """
    content = block_text_lines(root)
    quoted = _quoted(root)
    found: Counter[str] = Counter()
    for number, line in enumerate(text.split("\n")):
        if number not in content and "#" in line:
            found.update(_comment(line, quoted.get(number, ())))
    return found


def _comment(line: str, quoted: list[Span] | tuple[()]) -> Iterator[str]:
    """The one comment of a line, if there is one: from a `#` after a blank, outside quotes."""
    at = line.find("#")
    while at >= 0:
        free = at == 0 or line[at - 1] in " \t"
        if free and not any(start <= at < end for start, end in quoted):
            yield line[at:].strip()
            return
        at = line.find("#", at + 1)


def _quoted(root: yaml.Node | None) -> dict[int, list[Span]]:
    """By line, from 0, the columns that are inside quotes."""
    spans: dict[int, list[Span]] = {}
    for scalar in scalars(root):
        if scalar.style in ("'", '"'):
            first, last = scalar.start_mark, scalar.end_mark
            for line in range(first.line, last.line + 1):
                start = first.column if line == first.line else 0
                end = last.column if line == last.line else 1 << 32
                spans.setdefault(line, []).append((start, end))
    return spans
