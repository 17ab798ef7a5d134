"""Lays a file out anew in its canonical form: the text is moved, never written from its meaning.

So comments, quotes and the author's own line breaks stay. Each kind of change is kept only if the
file means the same after it and has the same comments. What is left is still told by
`npa.workflow.style.remarks`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import yaml

from npa.workflow import model
from npa.workflow.comments import comments
from npa.workflow.source import parse_text
from npa.workflow.style import LEVELS, STEP, block_text_lines, dash_column, odd_line_ends

PASSES_MAX = 4
"""What one change moves can be the matter of one before it; files that were seen need two."""
_COMMENT = re.compile(r"\s*#")


def laid_out(text: str) -> str:
    """The text of a readable file as it should be laid out; as it is where that is not possible."""
    if odd_line_ends(text):
        return text
    meant = _meaning(text)
    for _ in range(PASSES_MAX):
        before = text
        for change in (_line_ends, _spelling, _indentation, _order):
            text = _changed(change, text, meant)
        if text == before:
            break
    return text


def is_workflow(value: object) -> bool:
    """Does a file say that it is a workflow, in a version of ours? Others are not ours to move."""
    if not isinstance(value, dict):
        return False
    said = _spelt(value, ())
    return said.get("apiVersion") in model.API_VERSIONS and said.get("kind") == "Workflow"


def _changed(change: Callable[[str], str], text: str, meant: str) -> str:
    """The text after a change; as it was if that loses anything, or cannot be done at all."""
    try:
        changed = change(text)
        if changed == text or _meaning(changed) != meant:
            return text
        lost = comments(changed, _compose(changed)) != comments(text, _compose(text))
    except Exception:  # of any kind: a layout is no reason to fail, and the file stays as it was
        return text
    return text if lost else changed


def _meaning(text: str) -> str:
    """What the file says, with the spelling and the order of its known keys left out."""
    source = parse_text(text, "")
    value = source.value
    if isinstance(value, dict):
        value = _spelt(value, ())
        states = value.get("states")
        if isinstance(states, dict):
            value["states"] = {
                name: _spelt(state, ("states", "*")) if isinstance(state, dict) else state
                for name, state in states.items()
            }
    codes = [item.code for item in source.diagnostics]
    return json.dumps([codes, value], sort_keys=True, default=repr)


def _spelt(value: Mapping[str, object], path: tuple[str, ...]) -> dict[str, object]:
    names = model.known_keys(LEVELS[path][1])
    return {names.get(key, key): one for key, one in value.items()}


def _compose(text: str) -> yaml.Node | None:
    node: yaml.Node | None = yaml.compose(
        text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return node


# -- lines and spelling --------------------------------------------------------------------------


def _line_ends(text: str) -> str:
    """No blanks at the end of a line, except in blocks of text, and one end of the last line."""
    text = text.replace("\r\n", "\n")
    kept = block_text_lines(_compose(text))
    lines = [
        line if number in kept else line.rstrip() for number, line in enumerate(text.split("\n"))
    ]
    while lines and not lines[-1].strip():
        lines.pop()
    return "\n".join([*lines, ""])


def _levels(root: yaml.Node | None) -> Iterator[tuple[yaml.MappingNode, tuple[str, ...]]]:
    """The mappings whose keys have a spelling and an order: the file and each state."""
    if not isinstance(root, yaml.MappingNode):
        return
    yield root, ()
    for key, value in root.value:
        if key.value == "states" and isinstance(value, yaml.MappingNode):
            for name, state in value.value:
                written_here = state.start_mark.index > name.start_mark.index  # else an alias
                if isinstance(state, yaml.MappingNode) and written_here:
                    yield state, ("states", "*")


def _spelling(text: str) -> str:
    lines = text.split("\n")
    found = [
        (key.start_mark, key.end_mark, names[str(key.value)])
        for node, path in _levels(_compose(text))
        for names in (model.known_keys(LEVELS[path][1]),)
        for key, _ in node.value
        if names.get(str(key.value), key.value) != key.value
    ]
    for start, end, name in sorted(found, key=lambda one: -one[0].index):
        if start.line == end.line:
            line = lines[start.line]
            lines[start.line] = f"{line[: start.column]}{name}{line[end.column :]}"
    return "\n".join(lines)


# -- indentation ---------------------------------------------------------------------------------


def _indentation(text: str) -> str:
    """Each block two columns further in than what holds it, with the comments that are its own."""
    root = _compose(text)
    mover = _Mover(text.split("\n"))
    if root is not None:
        mover.move(root, 0, mover.column(root))
    return "\n".join(mover.moved(block_text_lines(root)))


class _Mover:
    """Notes for each line how far it goes, outer blocks first, and then moves them all."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._shifts = [0] * len(lines)
        self._gaps: dict[int, list[tuple[int, int]]] = {}  # line -> (dash, content), outer first

    def column(self, node: yaml.Node) -> int:
        """Where a block stands: the column of its first key, or of its dashes."""
        return self._first(node)[1]

    def _first(self, node: yaml.Node) -> tuple[int, int]:
        """The line and the column of the first key or dash; an anchor before it does not count."""
        if isinstance(node, yaml.MappingNode):
            mark = node.value[0][0].start_mark
            return mark.line, mark.column
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                if item.start_mark.index >= node.start_mark.index:  # else an alias
                    mark = item.start_mark
                    return mark.line, dash_column(item, self._lines)
        return node.start_mark.line, node.start_mark.column

    def move(self, node: yaml.Node, first: int, column: int) -> None:
        """From line `first` on a block goes to `column`, and all in it further in."""
        if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
            return
        end = node.end_mark.line
        self._shifts[first:end] = [column - self.column(node)] * (end - first)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if value.start_mark.index > key.start_mark.index:  # else an alias
                    self.move(value, key.start_mark.line + 1, column + STEP)
            return
        for item in node.value:
            block = isinstance(item, yaml.CollectionNode) and not item.flow_style and item.value
            if block and item.start_mark.index >= node.start_mark.index:
                line = item.start_mark.line
                start, inner = self._first(item)
                if start == line:
                    gap = (dash_column(item, self._lines), inner)
                    self._gaps.setdefault(line, []).append(gap)
                self.move(item, line + 1, column + STEP)

    def moved(self, kept: frozenset[int]) -> list[str]:
        shifts = self._of_comments(kept)
        return [
            _moved(line, shifts[number], self._gaps.get(number, ()))
            for number, line in enumerate(self._lines)
        ]

    def _of_comments(self, kept: frozenset[int]) -> list[int]:
        """Comments go with the next line of the file; one that stands further in, with the last."""
        shifts = list(self._shifts)
        following, column = 0, 0
        for number in range(len(self._lines) - 1, -1, -1):
            line = self._lines[number]
            margin = len(line) - len(line.lstrip())
            if not line.strip():
                continue
            if number in kept or not _COMMENT.match(line):
                following, column = shifts[number], margin
            elif margin <= column:
                shifts[number] = following
        return shifts


def _moved(line: str, shift: int, gaps: Sequence[tuple[int, int]]) -> str:
    if not line.strip():
        return line
    for dash, content in reversed(gaps):
        if line[dash : dash + 1] == "-" and not line[dash + 1 : content].strip():
            line = f"{line[: dash + 1]} {line[content:]}"
    if shift >= 0:
        return " " * shift + line
    return line[-shift:] if not line[:-shift].strip() else line


# -- order ---------------------------------------------------------------------------------------


def _order(text: str) -> str:
    """The keys of the file and of each state in their order, with the comments above them."""
    offsets = [0]
    for line in text.split("\n"):
        offsets.append(offsets[-1] + len(line) + 1)
    for node, path in sorted(_levels(_compose(text)), key=lambda one: -one[0].start_mark.index):
        if path:
            text = _sorted(text, node, path, offsets)
    # The states keep their places in the file while only keys within them moved.
    root = _compose(text)
    if isinstance(root, yaml.MappingNode):
        offsets = [0]
        for line in text.split("\n"):
            offsets.append(offsets[-1] + len(line) + 1)
        text = _sorted(text, root, (), offsets)
    return text


def _sorted(
    text: str, node: yaml.MappingNode, path: tuple[str, ...], offsets: Sequence[int]
) -> str:
    level, names = LEVELS[path][0], model.known_keys(LEVELS[path][1])
    ranks: list[int] = []
    for key, _ in node.value:
        name = names.get(str(key.value), str(key.value))
        # What is not known stays behind what it follows.
        ranks.append(level.index(name) if name in level else (ranks[-1] if ranks else -1))
    order = sorted(range(len(ranks)), key=lambda number: ranks[number])
    if order == list(range(len(ranks))) or (node.flow_style and _has_alias(node)):
        return text
    spans = _flow_spans(node, offsets) if node.flow_style else _block_spans(text, node, offsets)
    pieces = [text[start:end] for start, end in spans]
    between = [text[spans[n][1] : spans[n + 1][0]] for n in range(len(spans) - 1)] + [""]
    middle = "".join(pieces[at] + gap for at, gap in zip(order, between, strict=True))
    return text[: spans[0][0]] + middle + text[spans[-1][1] :]


def _has_alias(node: yaml.MappingNode) -> bool:
    """Does an entry hold something that is written elsewhere? Its own end is not known then."""
    return any(value.start_mark.index < key.start_mark.index for key, value in node.value)


def _flow_spans(node: yaml.MappingNode, offsets: Sequence[int]) -> list[tuple[int, int]]:
    return [
        (
            offsets[key.start_mark.line] + key.start_mark.column,
            offsets[last.line] + last.column,
        )
        for key, value in node.value
        for last in (max(key.end_mark, value.end_mark, key=lambda mark: mark.index),)
    ]


def _block_spans(
    text: str, node: yaml.MappingNode, offsets: Sequence[int]
) -> list[tuple[int, int]]:
    """The lines of each entry, from the comments right above its key to its last line.

    Blank lines between entries belong to neither: they stay where they are.
    """
    lines = text.split("\n")
    starts = []
    for number, (key, _) in enumerate(node.value):
        line = key.start_mark.line
        floor = node.value[number - 1][0].start_mark.line + 1 if number else line
        while line > floor and _is_above(lines[line - 1], key.start_mark.column):
            line -= 1
        starts.append(line)
    column = node.value[0][0].start_mark.column
    last = min(node.end_mark.line, len(lines))
    while last > starts[-1] + 1 and _is_outside(lines[last - 1], column):
        last -= 1
    spans = []
    for start, end in zip(starts, [*starts[1:], last], strict=True):
        while end > start + 1 and not lines[end - 1].strip():
            end -= 1
        spans.append((offsets[start], offsets[end]))
    return spans


def _is_outside(line: str, column: int) -> bool:
    """Is the line, at the end of a block at `column`, not of the block?"""
    return not line.strip() or (
        bool(_COMMENT.match(line)) and len(line) - len(line.lstrip()) < column
    )


def _is_above(line: str, column: int) -> bool:
    """Is the line a comment that stands above the key at `column`?"""
    return bool(_COMMENT.match(line)) and len(line) - len(line.lstrip()) == column
