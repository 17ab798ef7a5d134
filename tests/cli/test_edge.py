"""Every way to fail becomes one message and one exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import click
import pytest

from npa.cli import edge
from npa.cli.exit_codes import MEANING, ExitCode, exit_code_of
from npa.errors import (
    DrivenElsewhere,
    EngineError,
    JournalCorrupt,
    NpaError,
    RunError,
    StoreFull,
    UsageError,
)

Capture = pytest.CaptureFixture[str]


def failing(error: BaseException) -> Callable[[], click.Group]:
    """A command tree with one command, `boom`, that raises `error`."""

    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def boom(as_json: bool) -> None:
        raise error

    return lambda: click.Group("npa", {"boom": boom})


def test_each_code_has_a_meaning_of_its_own() -> None:
    assert set(MEANING) == set(ExitCode)
    assert len(set(MEANING.values())) == len(MEANING)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NpaError("x"), ExitCode.FAILED),
        (RunError("x"), ExitCode.FAILED),
        (EngineError("x"), ExitCode.FAILED),
        (StoreFull("x"), ExitCode.FAILED),
        (UsageError("x"), ExitCode.USAGE),
        (DrivenElsewhere("x"), ExitCode.DRIVEN_ELSEWHERE),
        (JournalCorrupt("x"), ExitCode.UNVERIFIED),
        (RunError("x", code="HELD"), ExitCode.HELD),
        (RunError("x", code="IDENTITY_MISMATCH"), ExitCode.IDENTITY_MISMATCH),
        (EngineError("x", code="NO_ROOM"), ExitCode.NO_ROOM),
    ],
)
def test_an_error_ends_with_the_code_of_its_kind(error: NpaError, code: ExitCode) -> None:
    assert exit_code_of(error) is code
    assert edge.run(failing(error), ["boom"]) == code


def test_an_error_says_what_happened_what_was_not_done_and_what_is_next(capsys: Capture) -> None:
    error = RunError(
        "the store is gone",
        not_done="nothing was launched",
        hint="it answered until 12:00",
        next_command="npa workflow status r1",
    )
    assert edge.run(failing(error), ["boom"]) == ExitCode.FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "error: the store is gone",
        "not done: nothing was launched",
        "hint: it answered until 12:00",
        "next: `npa workflow status r1`",
    ]


def test_an_error_is_one_json_document_when_json_was_asked_for(capsys: Capture) -> None:
    edge.run(failing(RunError("gone", code="HELD")), ["boom", "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "status": "failed",
        "error": "gone",
        "code": "HELD",
        "not_done": "",
        "hint": "",
        "next_command": "",
        "exit_code": 10,
    }


def test_an_unexpected_error_ends_with_2_and_hides_its_traceback(capsys: Capture) -> None:
    assert edge.run(failing(ValueError("some text")), ["boom"]) == ExitCode.UNVERIFIED
    err = capsys.readouterr().err
    assert "unexpected ValueError" in err
    assert "NPA_DEBUG=1" in err
    assert "Traceback" not in err
    assert "some text" not in err


def test_debug_shows_the_traceback(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPA_DEBUG", "1")
    edge.run(failing(ValueError("boom")), ["boom"])
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(capsys: Capture) -> None:
    assert edge.run(failing(KeyboardInterrupt()), ["boom"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_usage_error_ends_with_64_and_not_with_the_code_of_the_unverified(
    capsys: Capture,
) -> None:
    assert edge.run(failing(NpaError("x")), ["boom", "--nope"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("error: no such option '--nope'")


def test_a_reader_that_goes_away_is_not_an_error_message(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with io.TextIOWrapper(open("/dev/null", "wb")) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert edge.run(failing(BrokenPipeError()), ["boom"]) == ExitCode.BROKEN_PIPE
    assert capfd.readouterr().err == ""
