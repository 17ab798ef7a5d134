"""What of a log is shown on a terminal, and as its last lines."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npa.cli.log_text import LINE_BYTES_MAX, LastLines, Screen

LONG = LINE_BYTES_MAX * 3


def shown(*parts: bytes) -> bytes:
    screen = Screen()
    return b"".join(map(screen.feed, parts)) + screen.end()


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (b"\x1b]0;title\x07", b"^[]0;title^G"),
        (b"\x1b[2J\x1b[H", b"^[[2J^[[H"),
        (b"\x1b[6n\x1bc\x00\x08\x7f", b"^[[6n^[c^@^H^?"),
        ("\x9b2J \u202e".encode(), b"\\x9b2J \\u202e"),
        (b"a\tb\r\n", b"a\tb\r\n"),
        ("é \u00a0 👩‍🔬\n".encode(), "é \u00a0 👩‍🔬\n".encode()),
        (b"\xff\x9b2J", "\ufffd\ufffd2J".encode()),
    ],
)
def test_what_a_terminal_would_obey_is_shown_instead(raw: bytes, seen: bytes) -> None:
    assert shown(raw) == seen


def test_colours_pass_and_end_with_the_stream() -> None:
    assert shown(b"\x1b[1;32mgood") == b"\x1b[1;32mgood\x1b[0m"


@given(st.lists(st.sampled_from([b"\x1b", b"[", b"3", b"1", b"m", b"K", b"a", b"\xc3", b"\xa9"])))
def test_it_does_not_matter_where_a_stream_is_divided(parts: list[bytes]) -> None:
    assert shown(*parts) == shown(b"".join(parts))


@given(st.binary(max_size=200))
def test_no_binary_reaches_the_terminal_as_a_command(data: bytes) -> None:
    text = re.sub(r"\x1b\[[0-9;:]*m", "", shown(data).decode())
    assert not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\t\n\r"]


def test_a_long_line_ends_early_on_a_terminal_and_the_next_one_is_whole() -> None:
    screen = Screen()
    seen = b"".join(screen.feed(b"x" * 1000) for _ in range(LONG // 1000)) + screen.feed(
        b"\nnext\n"
    )
    assert seen == b"x" * LINE_BYTES_MAX + b"\nnext\n"
    assert screen.cut == 1


def test_a_progress_bar_goes_on_however_long_it_is() -> None:
    bar = b"".join(b"\r%d of 9999" % number for number in range(9999))
    screen = Screen()
    assert screen.feed(bar) == bar
    assert screen.cut == 0


def lasting(count: int, *parts: bytes) -> tuple[bytes, int]:
    lines = LastLines(count)
    for part in parts:
        lines.feed(part)
    return lines.take()


def test_the_last_lines_are_bounded_each_and_keep_their_ends() -> None:
    data, cut = lasting(2, b"first\n", *[b"x" * 1000] * (LONG // 1000), b" 99%\nlast")
    assert cut == 1
    assert data == (b"x" * LINE_BYTES_MAX + b" 99%")[-LINE_BYTES_MAX:] + b"\nlast"


def test_a_line_as_long_as_the_bound_is_whole() -> None:
    assert lasting(1, b"x" * LINE_BYTES_MAX + b"\n") == (b"x" * LINE_BYTES_MAX + b"\n", 0)
    screen = Screen()
    assert screen.feed(b"x" * LINE_BYTES_MAX + b"\n") == b"x" * LINE_BYTES_MAX + b"\n"
    assert screen.cut == 0


@given(st.lists(st.text("ab\n", max_size=9).map(str.encode)), st.integers(0, 4))
def test_the_last_lines_are_those_of_the_whole_text(parts: list[bytes], count: int) -> None:
    lines = b"".join(parts).splitlines(keepends=True)
    assert lasting(count, *parts) == (b"".join(lines[len(lines) - min(count, len(lines)) :]), 0)
