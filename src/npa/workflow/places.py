"""Where keys and values of a YAML file stand: trees of places beside the values."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from msgspec import Struct, field

from npa.workflow.meaning import Path, Position

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def split_lines(text: str) -> list[str]:
    """Lines as YAML counts them."""
    return _LINE_END.split(text)


# Positions are packed into one int (line, column, end column), because a big file has 100,000.
# An end column of 0 means "to the end of the line".
class MapPlaces(Struct):
    place: int
    keys: dict[str, int] = field(default_factory=dict)
    values: dict[str, Places] = field(default_factory=dict)


class ListPlaces(Struct):
    place: int
    values: list[Places] = field(default_factory=list)


Places = int | MapPlaces | ListPlaces


def _spelling(name: str, keys: Container[str]) -> str | None:
    """The key as the file spells it: as given, in snake_case, or in camelCase."""
    if name in keys:
        return name
    snake = re.sub(r"(?<=[a-z])([A-Z])", lambda match: "_" + match.group(1).lower(), name)
    if snake in keys:
        return snake
    camel = re.sub(r"_([a-z])", lambda match: match.group(1).upper(), name)
    return camel if camel in keys else None


class PositionTree:
    """Positions by path. A path that is not in the file answers for its nearest parent."""

    def __init__(self, root: Places, lines: list[str]) -> None:
        self._root = root
        self._lines = lines

    def _unpack(self, place: int) -> Position:
        line, column, end = place >> 48, (place >> 24) & 0xFFFFFF, place & 0xFFFFFF
        if not end:
            text = self._lines[line - 1] if line <= len(self._lines) else ""
            end = max(len(text.rstrip()) + 1, column + 1)
        return Position(line, column, max(end, column + 1))

    def _find(self, path: Path) -> tuple[int, int]:
        """The packed places of the key and of the value at `path`."""
        node = self._root
        key = value = node if isinstance(node, int) else node.place
        for part in path:
            if isinstance(node, MapPlaces):
                name = _spelling(str(part), node.values)
                if name is None:
                    return value, value
                key = node.keys[name]
                node = node.values[name]
                value = node if isinstance(node, int) else node.place
            elif isinstance(node, ListPlaces) and isinstance(part, int):
                if not 0 <= part < len(node.values):
                    break
                node = node.values[part]
                key = value = node if isinstance(node, int) else node.place
            else:
                break
        return key, value

    def value(self, path: Path) -> Position | None:
        return self._unpack(self._find(path)[1])

    def key(self, path: Path) -> Position | None:
        return self._unpack(self._find(path)[0])


def place_of(event: Any) -> int:
    start, end = event.start_mark, event.end_mark
    last: int = end.column + 1 if end.line == start.line else 0
    place: int = ((start.line + 1) << 48) | ((start.column + 1) << 24) | last
    return place
