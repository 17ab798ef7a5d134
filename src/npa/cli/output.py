"""The one writer of stdout and stderr.

stdout carries only what a script may pipe: the answer, or with `--json` exactly one document with
sorted keys. Progress, warnings, hints and errors go to stderr. Colour is used on a terminal only,
never with NO_COLOR, and nothing is said by colour alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import TextIO

from npa.cli.streams import drop
from npa.errors import NpaError


class Ink(Enum):
    """Select graphic rendition codes (ECMA-48), by what they are used for."""

    ERROR = "1;31"
    WARNING = "1;33"
    HINT = "1;36"
    GOOD = "32"
    FAINT = "2"
    STRONG = "1"


def colour_wanted(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Colour only for people: a terminal that understands it, and nobody said no."""
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return bool(environ.get("FORCE_COLOR")) or stream.isatty()


def to_json(document: object) -> str:
    """The JSON of every command: sorted keys, two spaces, UTF-8 as it is."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, default=_encode)


def _encode(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


class Output:
    """Where a command says what it has to say."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._out = sys.stdout
        self._err = sys.stderr
        self._out_colour = colour_wanted(sys.stdout, os.environ)
        self._err_colour = colour_wanted(sys.stderr, os.environ)
        self._needs_reader = True

    @property
    def stderr_is_terminal(self) -> bool:
        """May a live view be drawn on stderr?"""
        dumb = os.environ.get("TERM") == "dumb"
        return self._err.isatty() and not dumb and not os.environ.get("CI")

    @property
    def stdout_is_terminal(self) -> bool:
        """Is the answer read by a terminal, which obeys control characters?"""
        return self._out.isatty()

    def line(self, text: str = "") -> None:
        """One line (or several) of the answer, on stdout. Nothing in JSON mode."""
        if not self.as_json:
            self._out.write(text + "\n")

    def text(self, text: str) -> None:
        """The answer as it is, with a newline at its end, whatever the mode."""
        self._out.write(text if text.endswith("\n") else text + "\n")
        self._out.flush()

    def raw(self, data: bytes) -> None:
        """Bytes as a task wrote them, on stdout."""
        self._out.flush()
        self._out.buffer.write(data)
        self._out.buffer.flush()

    def document(self, document: object) -> None:
        """The one JSON document, in JSON mode only."""
        if self.as_json:
            self.text(to_json(document))

    def outlive_reader(self) -> None:
        """From here on the work counts more than who watches it: `note` may go unread."""
        self._needs_reader = False

    def note(self, text: str) -> None:
        """Progress, on stderr; what went to stdout before it comes before it."""
        if self._needs_reader:
            self._out.flush()
            self._tell(text)
            return
        with suppress(BrokenPipeError):  # it stays unwritten, and the answer meets it again
            self._out.flush()
        try:
            self._tell(text)
        except BrokenPipeError:
            drop(self._err)

    def _tell(self, text: str) -> None:
        self._err.write(text + "\n")
        self._err.flush()

    def warning(self, text: str) -> None:
        self.note(f"{self._paint_err('warning:', Ink.WARNING)} {text}")

    def hint(self, text: str) -> None:
        self.note(f"{self._paint_err('hint:', Ink.HINT)} {text}")

    def paint(self, text: str, ink: Ink) -> str:
        """`text` in colour if stdout shows colour."""
        return _paint(text, ink) if self._out_colour else text

    def _paint_err(self, text: str, ink: Ink) -> str:
        return _paint(text, ink) if self._err_colour else text

    def error(self, error: NpaError, exit_code: int) -> None:
        """A typed error, once: for people on stderr, and as the one document in JSON mode."""
        self.document(
            {
                "status": "failed",
                "error": error.message,
                "code": error.code,
                "not_done": error.not_done,
                "hint": error.hint,
                "next_command": error.next_command,
                "exit_code": int(exit_code),
            }
        )
        self.note(f"{self._paint_err('error:', Ink.ERROR)} {error.message}")
        if error.not_done:
            self.note(f"not done: {error.not_done}")
        if error.hint:
            self.hint(error.hint)
        if error.next_command:
            self.note(f"{self._paint_err('next:', Ink.HINT)} `{error.next_command}`")

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns on stdout, as wide as their longest cell; the last one is not padded."""
        cells = [list(headers), *(list(row) for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
        for index, row in enumerate(cells):
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            text = "  ".join(padded).rstrip()
            self.line(self.paint(text, Ink.STRONG) if index == 0 else text)


def _paint(text: str, ink: Ink) -> str:
    return f"\x1b[{ink.value}m{text}\x1b[0m"
