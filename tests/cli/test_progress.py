"""What a person sees while a run goes on: every change once, and only changes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import count

import pytest

from npa.cli.output import Output
from npa.cli.progress import Decided, LiveProgress, PlainProgress, Tracker, progress, span
from npa.cli.result import unmet
from npa.orchestration.driver import Snapshot
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Frame
from npa.orchestration.state import RunState


class History:
    """Feeds a state with frames of one entry, one second apart."""

    def __init__(self) -> None:
        self.state = RunState()
        self._n = count(1)
        self.add(e.Genesis(seal="s", parts={}, request={}))
        self.add(e.DriverEntry(host="h", boot="b", pid=1, start_ticks=1, goal="complete"))

    def add(self, *entries: e.Entry) -> None:
        n = next(self._n)
        self.state.apply(
            [Frame(n=n, prev="", at=float(n), epoch=0, by="", entries=entries, digest="", size=0)]
        )

    def snapshot(self, **waits: str) -> Snapshot:
        return Snapshot(self.state, waits, {})

    def start(self, path: str, number: int = 1) -> str:
        key = f"{path}-{number}"
        self.add(
            e.Reserved(
                wave=path,
                label=path,
                number=number,
                key=key,
                name=key,
                cause=e.Cause.FIRST,
                digests={path: "d"},
            )
        )
        self.add(e.Intent(key=key, verb=e.Verb.LAUNCH))
        self.add(e.Outcome(key=key, native_id="1", source="test"))
        self.add(e.Observed(key=key, phase="running"))
        return key

    def end(self, key: str, path: str, result: e.Result, **member: object) -> None:
        ends = {path: e.MemberEnd(result=result, **member)}  # type: ignore[arg-type]
        self.add(e.Ended(key=key, result=result, klass="", code="", members=ends))


def test_each_change_is_told_once() -> None:
    history, tracker = History(), Tracker()
    key = history.start("train")
    assert [(c.path, c.word) for c in tracker.changes(history.state)] == [("train", "running")]
    assert tracker.changes(history.state) == []
    history.end(key, "train", e.Result.SUCCEEDED, started_at=1.0, ended_at=3.0)
    (change,) = tracker.changes(history.state)
    assert (change.word, change.detail) == ("succeeded", "2.0 s")
    assert tracker.changes(history.state) == []
    assert tracker.live == {}
    assert tracker.done == 1


def test_plain_lines_tell_failures_with_their_reason_and_the_attempt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    history, view = History(), PlainProgress(Output())
    first = history.start("train")
    history.end(first, "train", e.Result.FAILED, code="PAYLOAD_EXIT", exit_code=3, rank=1)
    view.show(history.snapshot())
    second = history.start("train", 2)
    view.show(history.snapshot())
    history.end(second, "train", e.Result.SUCCEEDED)
    view.show(history.snapshot())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "00:00:07  failed     train  PAYLOAD_EXIT, exit 3, rank 1",
        "00:00:09  running    train (attempt 2)",
        "00:00:12  succeeded  train (attempt 2)",
    ]


def test_what_was_known_before_a_resume_is_not_told_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    history, view = History(), PlainProgress(Output())
    history.end(history.start("prepare"), "prepare", e.Result.SUCCEEDED)
    key = history.start("train")
    view.begin(history.state)
    history.end(key, "train", e.Result.SUCCEEDED)
    view.show(history.snapshot())
    assert capsys.readouterr().err == "00:00:12  succeeded  train\n"


def test_a_state_that_was_made_anew_is_followed_by_its_keys() -> None:
    first, tracker = History(), Tracker()
    first.start("train")
    tracker.changes(first.state)
    again = History()
    again.end(again.start("train"), "train", e.Result.SUCCEEDED)
    assert [(c.path, c.word) for c in tracker.changes(again.state)] == [("train", "succeeded")]
    assert tracker.changes(History().state) == []


def test_a_wait_is_told_once_with_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    history, view = History(), PlainProgress(Output(), now=lambda: 5.0)
    for _ in range(3):
        view.show(history.snapshot(train="no GPU is free"))
    view.show(history.snapshot(train="the job is running"))
    assert capsys.readouterr().err == "00:00:05  waiting    train  no GPU is free\n"


def test_who_comes_later_is_told_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    history, view = History(), PlainProgress(Output(), now=lambda: 99.0)
    history.end(history.start("prepare"), "prepare", e.Result.SUCCEEDED)
    history.start("train")
    view.join(history.state)
    assert capsys.readouterr().err.splitlines() == [
        "00:01:39  1 succeeded, 1 running",
        "00:00:09  running    train",
    ]


def test_a_failure_tells_how_long_it_ran(capsys: pytest.CaptureFixture[str]) -> None:
    history, view = History(), PlainProgress(Output())
    key = history.start("train")
    history.end(key, "train", e.Result.FAILED, exit_code=3, started_at=1.0, ended_at=3.0)
    view.show(history.snapshot())
    assert capsys.readouterr().err == "00:00:07  failed     train  exit 3, 2.0 s\n"


def test_the_live_table_shows_what_runs_and_what_ended_last() -> None:
    from rich.console import Console

    history, view = History(), LiveProgress("r1", now=lambda: 200.0)
    for number in range(30):
        key = history.start(f"done-{number}")
        history.end(key, f"done-{number}", e.Result.SUCCEEDED)
    history.start("train")
    view.show(history.snapshot())
    view.note("waiting for room")
    stream = io.StringIO()
    Console(file=stream, width=100).print(view)
    text = stream.getvalue()
    assert "r1: 30 succeeded, 1 live - waiting for room" in text
    assert "train    running    46 s" in text
    assert "done-29" in text
    assert "done-1 " not in text
    assert len(text.splitlines()) < 20


def test_without_a_terminal_the_view_is_plain() -> None:
    with progress(Output(), "r1") as view:
        assert isinstance(view, PlainProgress)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (3600, "1 h"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_decision_is_told_with_the_number_that_it_was_made_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    history, view = History(), PlainProgress(Output())
    view.begin(history.state)
    seen = "m.mae = 15.3; asked <= 2.0"
    history.add(e.Decision("refine[1]?until", "gate:none", "w1", "u", "d", seen))
    view.show(history.snapshot())
    view.show(history.snapshot())
    history.add(e.Decision("refine[2]?until", "gate:0", "w2", "u", "d", "m.mae = 1.0"))
    history.add(e.Decision("grade?next", "promote_checkpoint", "w3", "", "", assumed=True))
    view.show(history.snapshot())
    told = [line[10:] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        f"decided    refine[1]  gate not met: {seen}",
        "decided    refine[2]  gate met: m.mae = 1.0",
        "decided    grade  promote_checkpoint (assumed)",
    ]


def test_a_step_that_is_run_again_decides_again(capsys: pytest.CaptureFixture[str]) -> None:
    history, view = History(), PlainProgress(Output())
    for writer in ("w1", "w2"):
        history.add(e.Decision("grade?next", "promote_checkpoint", writer, "u", "d"))
        view.show(history.snapshot())
    assert capsys.readouterr().err.count("grade  promote_checkpoint") == 2


class Looked(dict[str, e.Decision]):
    """Counts the decisions that somebody looks at."""

    looks = 0

    def items(self) -> Looked:  # type: ignore[override]
        return self

    def __reversed__(self) -> Iterator[tuple[str, e.Decision]]:  # type: ignore[override]
        for item in reversed(super().items()):
            self.looks += 1
            yield item


def test_only_new_decisions_are_looked_at() -> None:
    history, decided = History(), Decided()
    for number in range(50):
        history.add(e.Decision(f"a[{number}]?until", "gate:none", f"w{number}", "u", "d"))
    assert len(decided.lines(history.state)) == 50
    history.state.decisions = looked = Looked(history.state.decisions)
    assert decided.lines(history.state) == []
    assert looked.looks == 1
    history.add(e.Decision("a[50]?until", "gate:0", "w50", "u", "d"))
    history.add(e.Decision("a[7]?until", "gate:0", "w7 again", "u", "d"))
    told = [line.split("  ")[-2:] for line in decided.lines(history.state)]
    assert told == [["a[50]", "gate met"], ["a[7]", "gate met"]]
    assert looked.looks == 4


def test_decisions_of_a_lost_frame_are_told_again_with_those_that_took_their_place() -> None:
    first, decided = History(), Decided()
    for name in "abc":
        first.add(e.Decision(f"{name}?next", "promote_checkpoint", name, "u", "d"))
    assert len(decided.lines(first.state)) == 3
    other = History()
    for name, writer in (("a", "a"), ("x", "x"), ("b", "b2")):
        other.add(e.Decision(f"{name}?next", "promote_checkpoint", writer, "u", "d"))
    assert [line.split("  ")[-2] for line in decided.lines(other.state)] == ["x", "b"]


def test_loops_that_ran_out_of_rounds_are_named_when_all_is_done() -> None:
    history = History()
    history.add(e.Decision("a[1]?until", "gate:none", "w1", "u", "d", "x = 1; asked > 2"))
    history.add(e.Decision("a[2]?until", "gate:none", "w2", "u", "d", "x = 1.5; asked > 2"))
    history.add(e.Decision("b[1]?until", "gate:none", "w3", "u", "d"))
    history.add(e.Decision("b[2]?until", "gate:0", "w4", "u", "d"))
    history.add(e.Decision("o[1]/c[1]?until", "loop_back_to_inner_loop", "w5", "u", "d"))
    history.add(e.Decision("grade?next", "loop_back_to_inner_loop", "w6", "u", "d"))
    assert unmet(history.state) == [
        "`a` ended after 2 rounds, and not because it was good enough: x = 1.5; asked > 2",
        "`o[1]/c` ended after 1 round, and not because it was good enough",
    ]
