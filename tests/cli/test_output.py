"""stdout carries the answer and nothing else; colour is for people at a terminal."""

from __future__ import annotations

import io

import pytest

from npa.cli.output import Output, colour_wanted, to_json
from npa.errors import NpaError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colour_is_used_on_a_terminal_and_never_with_no_color(
    stream: io.StringIO, environ: dict[str, str], wanted: bool
) -> None:
    assert colour_wanted(stream, environ) is wanted


def test_json_has_sorted_keys_and_keeps_letters_as_they_are() -> None:
    assert to_json({"b": (1, 2), "a": "é"}) == '{\n  "a": "é",\n  "b": [\n    1,\n    2\n  ]\n}'


def test_json_mode_prints_one_document_and_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.line("for people")
    output.table(("A",), [("x",)])
    output.document({"a": 1})
    output.note("progress")
    captured = capsys.readouterr()
    assert captured.out == '{\n  "a": 1\n}\n'
    assert captured.err == "progress\n"


def test_a_message_means_the_same_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(**environ: str) -> str:
        stream = io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", stream)
            for name, value in environ.items():
                patch.setenv(name, value)
            Output().error(NpaError("gone", hint="look", next_command="npa x"), 1)
        return stream.getvalue()

    plain, coloured = shown(), shown(FORCE_COLOR="1")
    assert "\x1b[" in coloured
    assert "\x1b[" not in plain
    import re

    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_a_table_lines_up_and_has_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("NAME", "WHAT"), [("a", "x"), ("longer", "")])
    assert capsys.readouterr().out == "NAME    WHAT\na       x\nlonger\n"
