"""What is said when a drive has ended."""

from __future__ import annotations

import json

import pytest

from npa.cli.output import Output
from npa.cli.result import show_result
from npa.orchestration.decide import Hold
from npa.orchestration.driver import Ending, Outcome
from runs_harness import Bench

ONE = "initial: a\nstates:\n  a: {run: {shell: 'true'}, terminal: true}\n"
REMEDY = "see that nothing of it runs, then `npa workflow resume r1 --gone job`"


def test_a_held_run_says_what_ends_the_hold(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    run = bench.submit(ONE)
    outcome = Outcome(Ending.HELD, {"a": Hold("VANISHED", "the job is gone", REMEDY)})
    show_result(Output(), run, outcome)
    said = capsys.readouterr()
    assert "a: the job is gone (VANISHED)" in said.out
    assert f"hint: {REMEDY}\n" in said.err
    show_result(Output(as_json=True), run, outcome)
    (hold,) = json.loads(capsys.readouterr().out)["holds"]
    assert hold["remedy"] == REMEDY
