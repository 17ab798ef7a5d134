"""The canonical layout of a workflow file: order and spelling of keys, indentation, line ends.

Only looked at here; `npa.workflow.layout` moves the text of a file.
Within a state, what it waits for and repeats comes first, then the tool and what it asks for, its
settings, what it reads and writes, and where it leads: the order of most files that are about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import yaml
from msgspec import Struct

from npa.workflow import model

_ODD_LINE_END = re.compile("\r(?!\n)|[\x85\u2028\u2029]")
STEP = 2  # columns of one level
TOP = ("apiVersion", "kind", "metadata", "config", "run", "resources", "initial", "states")
STATE = (
    *("description", "needs", "trigger", "foreach", "loop", "sequence", "parallel"),
    *("parallelCount", "parallelMode", "maxConcurrency", "writesDecision", "toolRef"),
    *("resources", "multiNodeMode", "timeoutSeconds", "retry", "checkpoint", "params", "env"),
    *("secrets", "run", "inputs", "outputs", "transitions", "next", "terminal"),
)
LEVELS: dict[tuple[str, ...], tuple[Sequence[str], type[model.Level]]] = {
    (): (TOP, model.WorkflowFile),
    ("states", "*"): (STATE, model.StateBlock),
}


class Remark(Struct, frozen=True):
    """One place that is not canonical; line and column are 1-based."""

    line: int
    column: int
    message: str


def remarks(text: str) -> tuple[Remark, ...]:
    """Every place of a readable file that is not canonical, in the order of the file.

    Of a file with odd ends of lines only these are told.
    """
    if odd := odd_line_ends(text):
        return odd
    root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found = [*_lines(text, block_text_lines(root))]
    if root is not None:
        found += _nodes(root, text.split("\n"))
    return tuple(sorted(found, key=lambda remark: (remark.line, remark.column)))


def block_text_lines(root: yaml.Node | None) -> frozenset[int]:
    """The lines, from 0, inside blocks of text (`|`, `>`): blanks at their ends are content."""
    found: set[int] = set()
    for node in scalars(root):
        if node.style in ("|", ">"):
            end = node.end_mark
            # It ends where the next line begins, but for a last line that has no end.
            found.update(range(node.start_mark.line + 1, end.line + (end.column > 0)))
    return frozenset(found)


def scalars(root: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    """Every scalar of a file, keys too; one that aliases share comes once for each collection."""
    stack = [root] if root is not None else []
    seen: set[int] = set()  # a collection that aliases share is looked at once
    while stack:
        node = stack.pop()
        if isinstance(node, yaml.ScalarNode):
            yield node
        elif isinstance(node, yaml.CollectionNode) and id(node) not in seen:
            seen.add(id(node))
            pairs = isinstance(node, yaml.MappingNode)
            stack += [one for pair in node.value for one in pair] if pairs else node.value


def odd_line_ends(text: str) -> tuple[Remark, ...]:
    """The first of each character that ends a line in YAML and in hardly an editor.

    In a comment it makes content of what follows; and the lines of YAML are then not ours.
    """
    found: dict[str, Remark] = {}
    for match in _ODD_LINE_END.finditer(text):
        character, at = match.group(), match.start()
        if character not in found:
            line = text.count("\n", 0, at) + 1
            column = at - text.rfind("\n", 0, at)
            message = f"U+{ord(character):04X} ends a line in YAML: a file with it is left as it is"
            found[character] = Remark(line, column, message)
    return tuple(found.values())


def _lines(text: str, kept: frozenset[int]) -> Iterator[Remark]:
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.endswith("\r"):
            yield Remark(number, len(line), "the line ends with a carriage return")
        elif line != line.rstrip() and number - 1 not in kept:
            yield Remark(number, len(line.rstrip()) + 1, "blanks stand at the end of the line")
    if lines[-1]:
        yield Remark(len(lines), len(lines[-1]) + 1, "the last line has no end")
    elif len(lines) > 1 and not lines[-2].strip():
        yield Remark(len(lines) - 1, 1, "an empty line ends the file")


def _nodes(root: yaml.Node, lines: Sequence[str]) -> Iterator[Remark]:
    """Walk the tree with a stack; a node that aliases share is looked at where it is written."""
    stack: list[tuple[yaml.Node, tuple[str, ...]]] = [(root, ())]
    while stack:
        node, path = stack.pop()
        if isinstance(node, yaml.MappingNode):
            yield from _order(node, path)
            for key, value in node.value:
                if value.start_mark.index > key.start_mark.index:  # else an alias
                    yield from _indent(key.start_mark.column, value, lines)
                    stack.append((value, (*path, str(key.value))))
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                if item.start_mark.index > node.start_mark.index:
                    if not node.flow_style:
                        yield from _indent(dash_column(item, lines), item, lines)
                    stack.append((item, (*path, "-")))


def _order(node: yaml.MappingNode, path: tuple[str, ...]) -> Iterator[Remark]:
    known = LEVELS.get((path[0], "*") if len(path) == 2 else path)
    if known is None:
        return
    order, level = known
    spellings = model.known_keys(level)
    before = ""
    for key, _ in node.value:
        mark, written = key.start_mark, str(key.value)
        name = spellings.get(written, written)
        if name != written:
            yield Remark(mark.line + 1, mark.column + 1, f"`{written}` is spelt `{name}`")
        if name not in order:
            continue
        if before and order.index(name) < order.index(before):
            text = f"`{name}` belongs before `{before}`"
            yield Remark(mark.line + 1, mark.column + 1, text)
        else:
            before = name


def _indent(column: int, child: yaml.Node, lines: Sequence[str]) -> Iterator[Remark]:
    """A block inside a key or an item begins two columns further in."""
    if not isinstance(child, yaml.CollectionNode) or child.flow_style or not child.value:
        return
    if isinstance(child, yaml.MappingNode):
        mark = child.value[0][0].start_mark
        inner = mark.column
    else:
        mark = child.value[0].start_mark
        inner = dash_column(child.value[0], lines)
    if inner != column + STEP:
        text = f"indented by {inner - column} columns, not {STEP}"
        yield Remark(mark.line + 1, inner + 1, text)


def dash_column(item: yaml.Node, lines: Sequence[str]) -> int:
    """The column of the dash of an item of a block."""
    mark = item.start_mark
    return lines[mark.line].rfind("-", 0, max(mark.column, 1))
