"""YAML with positions: plain values, and where each key and value stands.

Scalars follow the YAML 1.2 core schema: `true`/`false` are the only booleans, `012` is twelve,
and `no`, `on`, `12:30` or a date are text. Values are built straight from the parser's events, with
a stack instead of recursion, so depth and alias expansion are bounded before anything grows.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from msgspec import Struct, field

from npa.workflow.codes import Code, severity_of
from npa.workflow.diagnostics import Diagnostic, path_text
from npa.workflow.meaning import Path
from npa.workflow.places import ListPlaces, MapPlaces, Places, PositionTree, place_of, split_lines

FILE_BYTES_MAX = 4 * 1024 * 1024
DEPTH_MAX = 64
ALIAS_NODES_MAX = 100_000
_NUMBER_CHARS_MAX = 100  # longer digit strings stay text

_CORE = "tag:yaml.org,2002:"
_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_INT = re.compile(r"[-+]?[0-9]+")
_ZERO_LED = re.compile(r"[-+]?0[0-9]+")
_OTHER_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MAYBE_NOT_TEXT = frozenset("~nNtTfF+-.0123456789")


class Source(Struct, frozen=True):
    """A parsed file. `usable` is false when there is nothing to check beyond `diagnostics`."""

    filename: str
    text: str
    lines: list[str]
    value: object
    positions: PositionTree
    diagnostics: tuple[Diagnostic, ...]
    usable: bool


class _Stop(Exception):
    """The file cannot be read any further."""


@contextmanager
def no_collector() -> Iterator[None]:
    """Building 100,000 objects that all live on: the cycle collector would only walk them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def resolve_plain(text: str) -> object:
    """A plain scalar by the YAML 1.2 core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _MAYBE_NOT_TEXT or len(text) > _NUMBER_CHARS_MAX:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) or _SPECIAL_FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if _OTHER_INT.fullmatch(text):
        return int(text, 0)
    return text


def parse_bytes(data: bytes, filename: str) -> Source:
    """Parse a file's bytes. Bytes that are not UTF-8 give a diagnostic at their place."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8-sig", errors="replace")
        lines = split_lines(good)
        problem = Diagnostic(
            Code.UNREADABLE.value,
            severity_of(Code.UNREADABLE),
            f"byte 0x{data[error.start]:02x} is not UTF-8",
            line=len(lines),
            column=len(lines[-1]) + 1,
            end_column=len(lines[-1]) + 2,
            help="save the file as UTF-8",
        )
        shown = split_lines(data.decode("utf-8-sig", errors="replace"))
        return Source(filename, good, shown, None, PositionTree(0, shown), (problem,), False)
    return parse_text(text, filename)


def parse_text(text: str, filename: str) -> Source:
    """Parse a file's text; never raises for what the text says."""
    text = text.removeprefix("\ufeff")
    lines = split_lines(text)
    builder = _Builder()
    value: object = None
    places: Places = 0
    usable = False
    try:
        builder.refuse_unfit_text(text)
        with no_collector():
            value, places = builder.build(text)
        usable = True
    except _Stop:
        pass
    except yaml.MarkedYAMLError as error:
        builder.syntax_error(error, lines)
    except yaml.YAMLError as error:
        builder.stop(Code.BAD_YAML, str(error).splitlines()[0], 0, raising=False)
    return Source(
        filename, text, lines, value, PositionTree(places, lines), tuple(builder.problems), usable
    )


class _Frame(Struct):
    """One open mapping or sequence."""

    value: Any
    places: Any
    anchor: str | None
    nodes_before: int
    key: str | None = None
    key_place: int = 0
    merging: bool = False  # the key read last is a merge key `<<`
    merges: list[tuple[Any, Any]] = field(default_factory=list)


class _Builder:
    def __init__(self) -> None:
        self.problems: list[Diagnostic] = []
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[object, Places, int]] = {}
        self.open_anchors: set[str] = set()
        self.nodes = 0
        self.alias_nodes = 0

    # Problems

    def add(self, code: Code, message: str, place: int, help: str = "") -> None:  # noqa: A002
        line, column, end = place >> 48, (place >> 24) & 0xFFFFFF, place & 0xFFFFFF
        self.problems.append(
            Diagnostic(
                code.value,
                severity_of(code),
                message,
                path_text(self.path()),
                line,
                column,
                max(end, column + 1),
                help,
            )
        )

    def stop(
        self,
        code: Code,
        message: str,
        place: int,
        help: str = "",  # noqa: A002
        *,
        raising: bool = True,
    ) -> None:
        self.add(code, message, place, help)
        if raising:
            raise _Stop

    def path(self) -> Path:
        parts: list[str | int] = []
        for frame in self.stack:
            if isinstance(frame.value, list):
                parts.append(len(frame.value))
            elif frame.key is not None:
                parts.append(frame.key)
        return tuple(parts)

    def refuse_unfit_text(self, text: str) -> None:
        bad = _UNPRINTABLE.search(text)
        if bad is not None:
            before = split_lines(text[: bad.start()])
            place = (len(before) << 48) | ((len(before[-1]) + 1) << 24) | (len(before[-1]) + 2)
            self.stop(
                Code.UNREADABLE,
                f"character U+{ord(bad.group()):04X} is not allowed in YAML",
                place,
                "in a double-quoted string write it as an escape",
            )
        if len(text) > FILE_BYTES_MAX or len(text.encode()) > FILE_BYTES_MAX:
            self.stop(Code.TOO_BIG, "the file is larger than 4 MiB", 0)

    @staticmethod
    def within(lines: list[str], line: int, column: int) -> int:
        """A place of the parser; what is missing at the end is told after the last word."""
        if not any(text.strip() for text in lines[line:]):
            line = max((n for n, text in enumerate(lines[:line]) if text.strip()), default=0)
            column = len(lines[line].rstrip())
        return ((line + 1) << 48) | ((column + 1) << 24)

    def syntax_error(self, error: yaml.MarkedYAMLError, lines: list[str]) -> None:
        mark = error.problem_mark or error.context_mark
        place = self.within(lines, mark.line, mark.column) if mark else 0
        problem = error.problem or "invalid YAML"
        hint = ""
        if "undefined alias" in problem:
            self.stop(Code.BAD_ALIAS, problem, place, raising=False)
            return
        if "cannot start any token" in problem:
            hint = "indent with blanks, not tabs; quote text that starts with @ or a backtick"
        elif "mapping values are not allowed" in problem:
            hint = "quote text that holds `: `"
        elif error.context:
            began = error.context_mark
            hint = f"{error.context}" + (f" that began on line {began.line + 1}" if began else "")
        self.stop(Code.BAD_YAML, f"invalid YAML: {problem}", place, hint, raising=False)

    # Building

    def build(self, text: str) -> tuple[object, Places]:
        result: tuple[object, Places] | None = None
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                done = self.scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self.open(event, kind is yaml.MappingStartEvent)
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                done = self.close()
            elif kind is yaml.AliasEvent:
                done = self.alias(event)
            elif kind is yaml.DocumentStartEvent and result is not None:
                self.stop(
                    Code.SEVERAL_DOCUMENTS,
                    "a second YAML document starts here",
                    place_of(event),
                    "a workflow file holds one document; remove `---` or split the file",
                )
                continue
            else:
                continue
            if done is None:
                continue
            if self.stack:
                self.attach(*done)
            else:
                result = done
        return result if result is not None else (None, (1 << 48) | (1 << 24) | 2)

    def scalar(self, event: Any) -> tuple[object, Places] | None:
        start, end = event.start_mark, event.end_mark
        last = end.column + 1 if end.line == start.line else 0
        place = ((start.line + 1) << 48) | ((start.column + 1) << 24) | last
        self.nodes += 1
        text: str = event.value
        tag = event.tag
        frame = self.stack[-1] if self.stack else None
        plain = tag is None and event.implicit[0]
        if frame is not None and frame.key is None and type(frame.value) is dict:
            frame.key, frame.key_place = text, place
            frame.merging = plain and text == "<<"
            if event.anchor is not None:
                self.anchors[event.anchor] = (text, place, 1)
            return None
        value: object = text
        if plain:
            if not text or text[0] in _MAYBE_NOT_TEXT:
                value = resolve_plain(text)
                if type(value) is int and _ZERO_LED.fullmatch(text):
                    self.add(
                        Code.LEADING_ZERO,
                        f"`{text}` is the number {value}",
                        place,
                        "quote it to keep the zeros; YAML 1.2 has no octal of this form",
                    )
        elif tag is not None and tag != "!":
            value = self.tagged(text, tag, place)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, place, 1)
        return value, place

    def tagged(self, text: str, tag: str, place: int) -> object:
        kind = tag.removeprefix(_CORE)
        value = text if kind == "str" else resolve_plain(text)
        if kind == "float" and type(value) is int:
            value = float(value)
        fits = {
            "str": True,
            "int": type(value) is int,
            "float": type(value) is float,
            "bool": type(value) is bool,
            "null": value is None,
        }
        if kind not in fits:
            self.add(Code.BAD_TAG, f"tag `{tag}` has no meaning here", place, "remove the tag")
        elif not fits[kind]:
            self.add(Code.BAD_TAG, f"{text!r} is not a YAML {kind}", place, "remove the tag")
        return value

    def open(self, event: Any, is_map: bool) -> None:
        place = ((event.start_mark.line + 1) << 48) | ((event.start_mark.column + 1) << 24)
        if event.end_mark.line == event.start_mark.line and event.flow_style:
            place |= event.end_mark.column + 1
        if len(self.stack) >= DEPTH_MAX:
            self.stop(Code.TOO_BIG, f"YAML is nested deeper than {DEPTH_MAX} levels", place)
        parent = self.stack[-1] if self.stack else None
        if parent is not None and parent.key is None and type(parent.value) is dict:
            self.stop(
                Code.BAD_YAML_KEY,
                "a key is a list or a mapping",
                place,
                "quote text that starts with `{` or `[`, such as a token",
            )
        tag = event.tag
        if tag is not None and tag not in ("!", _CORE + ("map" if is_map else "seq")):
            self.add(Code.BAD_TAG, f"tag `{tag}` has no meaning here", place, "remove the tag")
        self.nodes += 1
        value: Any = {} if is_map else []
        places: Any = MapPlaces(place) if is_map else ListPlaces(place)
        if event.anchor is not None:
            self.open_anchors.add(event.anchor)
        self.stack.append(_Frame(value, places, event.anchor, self.nodes - 1))

    def close(self) -> tuple[object, Places]:
        frame = self.stack.pop()
        for value, places in frame.merges:
            for key, item in value.items():
                if key not in frame.value:
                    frame.value[key] = item
                    frame.places.keys[key] = places.keys[key]
                    frame.places.values[key] = places.values[key]
        if frame.anchor is not None:
            self.open_anchors.discard(frame.anchor)
            size = self.nodes - frame.nodes_before
            self.anchors[frame.anchor] = (frame.value, frame.places, size)
        return frame.value, frame.places

    def alias(self, event: Any) -> tuple[object, Places] | None:
        place = place_of(event)
        name = event.anchor
        if name in self.open_anchors:
            self.stop(Code.BAD_ALIAS, f"alias `*{name}` stands inside its own anchor", place)
        if name not in self.anchors:
            self.stop(Code.BAD_ALIAS, f"alias `*{name}` has no anchor before it", place)
        value, places, size = self.anchors[name]
        self.nodes += size
        self.alias_nodes += size
        if self.alias_nodes > ALIAS_NODES_MAX:
            self.stop(Code.TOO_BIG, f"aliases expand to more than {ALIAS_NODES_MAX:,} nodes", place)
        frame = self.stack[-1] if self.stack else None
        if frame is not None and frame.key is None and type(frame.value) is dict:
            if isinstance(value, dict | list):
                self.stop(Code.BAD_YAML_KEY, "a key is a list or a mapping", place)
            frame.key, frame.key_place = str(value), place
            return None
        if isinstance(places, int):
            return value, place
        if isinstance(places, MapPlaces):
            return value, MapPlaces(place, places.keys, places.values)
        return value, ListPlaces(place, places.values)

    def attach(self, value: object, places: Places) -> None:
        frame = self.stack[-1]
        if type(frame.value) is list:
            frame.value.append(value)
            frame.places.values.append(places)
            return
        key = frame.key
        if frame.merging:
            frame.merging = False
            self.merge(frame, value, places)
        elif key in frame.value:
            first = frame.places.keys[key] >> 48
            self.add(
                Code.DUPLICATE_KEY,
                f"key '{key}' stands twice in this mapping",
                frame.key_place,
                f"the first one is on line {first}",
            )
        else:
            frame.value[key] = value
            frame.places.keys[key] = frame.key_place
            frame.places.values[key] = places
        frame.key = None

    def merge(self, frame: _Frame, value: object, places: Places) -> None:
        pairs = (
            list(zip(value, places.values, strict=True))
            if isinstance(value, list) and isinstance(places, ListPlaces)
            else [(value, places)]
        )
        for item, item_places in pairs:
            if not isinstance(item, dict):
                self.add(
                    Code.BAD_YAML_KEY,
                    "`<<` merges a mapping or a list of mappings",
                    frame.key_place,
                    "quote '<<' if it is meant as a key",
                )
                continue
            frame.merges.append((item, item_places))
