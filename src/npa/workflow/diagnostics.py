"""Diagnostics: what is wrong, where, and what to do; and how they are shown."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence

from msgspec import Struct

from npa.workflow.codes import Code, Severity, severity_of
from npa.workflow.meaning import Path, Positions

_EXCERPT_WIDTH = 160  # columns of a source line that are shown
_COLOURS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m"}
_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"


class Diagnostic(Struct, frozen=True):
    """One problem. `line` 0 means that it has no place in the file (`path` says what it is about).

    `line` and `column` are 1-based and count characters; `end_column` is exclusive.
    """

    code: str
    severity: Severity
    message: str
    path: str = ""
    line: int = 0
    column: int = 0
    end_column: int = 0
    help: str = ""

    def as_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "endColumn": self.end_column,
            "help": self.help,
        }


def path_text(path: Path) -> str:
    """`("states", "a", "outputs", 0)` -> `states.a.outputs[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def report(
    code: Code,
    message: str,
    positions: Positions | None,
    path: Path,
    *,
    at_key: bool = False,
    help: str = "",  # noqa: A002 - the public name of the field
) -> Diagnostic:
    """Build a diagnostic at the value of `path`, or at its key."""
    place = None
    if positions is not None:
        place = positions.key(path) if at_key else positions.value(path)
    return Diagnostic(
        code=code.value,
        severity=severity_of(code),
        message=message,
        path=path_text(path),
        line=place.line if place else 0,
        column=place.column if place else 0,
        end_column=place.end_column if place else 0,
        help=help,
    )


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """By line, then column; equal ones once. Those without a place come first."""
    return tuple(
        sorted(
            dict.fromkeys(diagnostics), key=lambda d: (d.line, d.column, d.code, d.message, d.path)
        )
    )


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(item.severity is Severity.ERROR for item in diagnostics)


def _visible(text: str) -> str:
    """Text that cannot move the cursor: tabs become blanks, control characters a dot."""
    return "".join(
        " " if ch == "\t" else ch if ch.isprintable() or ch == " " else "·" for ch in text
    )


def _columns(text: str) -> int:
    """Width on a terminal: wide characters take two columns, combining ones none."""
    width = 0
    for ch in text:
        if not unicodedata.combining(ch):
            width += 2 if unicodedata.east_asian_width(ch) in "WF" else 1
    return width


def _excerpt(source_line: str, column: int, end_column: int) -> tuple[str, str]:
    """The line (cut to a window around the place) and the caret line under it."""
    start = max(column - 1, 0)
    first = 0
    if len(source_line) > _EXCERPT_WIDTH and start > _EXCERPT_WIDTH // 2:
        first = min(start - _EXCERPT_WIDTH // 2, len(source_line) - _EXCERPT_WIDTH)
    shown = _visible(source_line[first : first + _EXCERPT_WIDTH])
    offset = min(start - first, len(shown))
    marked = shown[offset : max(end_column - 1 - first, offset + 1)]
    return shown.rstrip(), " " * _columns(shown[:offset]) + "^" * max(_columns(marked), 1)


def render_text(
    diagnostics: Sequence[Diagnostic], *, filename: str, lines: Sequence[str], colour: bool = False
) -> str:
    """The form for people: place, severity, code, message; excerpt with caret; one help line."""

    def paint(style: str, text: str) -> str:
        return f"{style}{text}{_RESET}" if colour else text

    out: list[str] = []
    for item in diagnostics:
        style = _COLOURS[item.severity]
        place = f"{filename}:{item.line}:{item.column}" if item.line else filename
        head = paint(style, f"{item.severity.value} {item.code}")
        out.append(f"{paint(_BOLD, place)} {head} {_visible(item.message)}")
        hint = f" {_visible(item.help)}" if item.help else ""
        if item.line and item.line <= len(lines):
            shown, caret = _excerpt(lines[item.line - 1], item.column, item.end_column)
            out.append(f"{paint(_DIM, f'{item.line:>5} |')} {shown}".rstrip())
            out.append(f"{paint(_DIM, '      |')} {paint(style, caret)}{hint}")
        elif hint:
            out.append(f"      help:{hint}")
    return "".join(line + "\n" for line in out)


def render_json(diagnostics: Sequence[Diagnostic]) -> list[dict[str, object]]:
    return [item.as_json() for item in diagnostics]


def _github(text: str, *, value: bool) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if value else text


def render_github(diagnostics: Sequence[Diagnostic], *, filename: str) -> str:
    """Workflow commands that GitHub Actions shows as annotations on the changed lines."""
    out = []
    for item in diagnostics:
        fields = [f"file={_github(filename, value=True)}"]
        if item.line:
            fields += [
                f"line={item.line}",
                f"col={item.column}",
                f"endColumn={max(item.end_column - 1, item.column)}",
            ]
        fields.append(f"title={item.code}")
        message = item.message + (f" ({item.help})" if item.help else "")
        out.append(f"::{item.severity.value} {','.join(fields)}::{_github(message, value=False)}\n")
    return "".join(out)


def _sarif_result(item: Diagnostic, filename: str) -> dict[str, object]:
    physical: dict[str, object] = {"artifactLocation": {"uri": filename}}
    if item.line:
        physical["region"] = {
            "startLine": item.line,
            "startColumn": item.column,
            "endColumn": max(item.end_column, item.column + 1),
        }
    location: dict[str, object] = {"physicalLocation": physical}
    if item.path:
        location["logicalLocations"] = [{"fullyQualifiedName": item.path}]
    text = item.message + (f"; {item.help}" if item.help else "")
    return {
        "ruleId": item.code,
        "level": item.severity.value,
        "message": {"text": text},
        "locations": [location],
    }


def render_sarif(
    diagnostics: Sequence[Diagnostic], *, filename: str, titles: dict[str, str] | None = None
) -> str:
    """A SARIF 2.1.0 log, one run, for code scanning."""
    titles = titles or {}
    rules = [
        {"id": code, "shortDescription": {"text": titles.get(code, code)}}
        for code in sorted({item.code for item in diagnostics})
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "npa", "rules": rules}},
                "results": [_sarif_result(item, filename) for item in diagnostics],
            }
        ],
    }
    return json.dumps(log, indent=2, sort_keys=True) + "\n"
