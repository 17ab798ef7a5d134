"""What of a log is shown: its last lines, and on a terminal no line without end and no commands.

A file or a pipe gets the bytes as they are; only `--tail` bounds a line there too.
"""

from __future__ import annotations

import codecs
import re
from collections import deque

LINE_BYTES_MAX = 8192  # a hundred rows of a terminal
_SEQUENCE_CHARS_MAX = 32
_COLOUR = re.compile(r"(\x1b\[[0-9;:]{0,32}m)")  # select graphic rendition (ECMA-48)
_BEGUN = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")  # may become one with what comes next
_RESET = b"\x1b[0m"
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # they reorder what is read
_VISIBLE = {
    **{code: f"^{chr(code ^ 0x40)}" for code in (*range(0x20), 0x7F) if chr(code) not in "\t\n\r"},
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
    **{code: f"\\u{code:04x}" for code in _BIDI},
}


class LastLines:
    """The last `count` lines, and of each at most its last LINE_BYTES_MAX bytes.

    Its memory depends on `count` alone.
    """

    def __init__(self, count: int) -> None:
        self._lines: deque[tuple[bytes, bool]] = deque(maxlen=count)  # with: was it cut?
        self._rest = b""
        self._rest_cut = False

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._extend(line)
            self._lines.append((self._rest + b"\n", self._rest_cut))
            self._rest, self._rest_cut = b"", False
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        self._rest_cut = self._rest_cut or len(self._rest) + len(part) > LINE_BYTES_MAX
        self._rest = (self._rest + part[-LINE_BYTES_MAX:])[-LINE_BYTES_MAX:]

    def take(self) -> tuple[bytes, int]:
        """The lines, an unfinished one at the end, and how many of them were cut."""
        lines = self._lines
        if self._rest:
            lines.append((self._rest, self._rest_cut))
        return b"".join(line for line, _ in lines), sum(cut for _, cut in lines)


class Screen:
    """Makes a stream fit for a terminal, piece by piece.

    Colours pass; any other control character is shown (`^[`) and not obeyed. What follows the
    first LINE_BYTES_MAX characters of a line, or of a redrawn state of one, is left out: `cut`
    counts these lines.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._column = 0
        self._coloured = False
        self.cut = 0

    def feed(self, data: bytes) -> bytes:
        return self._shown(self._held + self._decoder.decode(data), last=False)

    def end(self) -> bytes:
        """What was held back, and no colour any more."""
        text = self._shown(self._held + self._decoder.decode(b"", final=True), last=True)
        if self._coloured:
            self._coloured = False
            text += _RESET
        return text

    def _shown(self, text: str, *, last: bool) -> bytes:
        begun = None if last else _BEGUN.search(text, max(0, len(text) - _SEQUENCE_CHARS_MAX - 3))
        self._held = begun[0] if begun else ""
        text = text[: begun.start()] if begun else text
        shown = []
        for number, part in enumerate(_COLOUR.split(text)):
            if number % 2:
                shown.append(part)
                self._coloured = True
            else:
                shown.append(self._bounded(part).translate(_VISIBLE))
        return "".join(shown).encode("utf-8", "replace")

    def _bounded(self, text: str) -> str:
        kept = []
        for piece in re.split(r"([\n\r])", text):
            if piece in ("\n", "\r"):
                self._column = 0
                kept.append(piece)
                continue
            room = max(LINE_BYTES_MAX - self._column, 0)
            self.cut += len(piece) > room and self._column <= LINE_BYTES_MAX
            self._column += len(piece)
            kept.append(piece[:room])
        return "".join(kept)
