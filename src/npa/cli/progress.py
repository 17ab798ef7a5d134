"""What a person sees while a run goes on: a live table on a terminal, plain lines elsewhere.

Both are fed with successive states of the run and say what changed. The work is proportional to
the changes, so that a run of ten thousand steps costs no more to watch than a small one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Protocol, assert_never

from msgspec import Struct

from npa.cli.output import Output
from npa.orchestration.state import Attempt, RunState, Stage

if TYPE_CHECKING:
    from rich.console import RenderableType

    from npa.orchestration.driver import Snapshot
    from npa.orchestration.journal.entries import Decision

ROWS_MAX = 12
REFRESH_PER_SECOND = 8
_QUIET = frozenset({"reserved", "launching", "launched", "pending", "starting"})
_STYLE = {"succeeded": "green", "failed": "bold red", "cancelled": "yellow", "refused": "yellow"}


class Change(Struct, frozen=True):
    """One step is now something else. `at` is epoch seconds, by the driver's clock.

    `why` is what is known beyond the word, `took` how long an ended one ran ("" when not known).
    """

    path: str
    attempt: int
    word: str
    why: str
    took: str
    at: float

    @property
    def detail(self) -> str:
        return ", ".join(text for text in (self.why, self.took) if text)


class Tracker:
    """Compares each state of a run with the one before it.

    Attempts are remembered by key: a driver that has lost a frame shows a state made anew.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._open: dict[str, dict[str, tuple[str, str]]] = {}  # by attempt, then by path
        self.done = 0
        self.live: dict[str, Change] = {}

    def changes(self, state: RunState) -> list[Change]:
        """What is different since the last call, oldest attempt first."""
        new = list(islice(reversed(state.attempts), max(0, len(state.attempts) - self._seen)))
        for key in reversed(new):
            self._open.setdefault(key, {})
        self._seen = len(state.attempts)
        found: list[Change] = []
        for key in list(self._open):
            found += self._of(key, state.attempts.get(key))
        for change in found:
            if change.word in _STYLE:
                self.live.pop(change.path, None)
                self.done += change.word == "succeeded"
            else:
                self.live[change.path] = change
        return found

    def _of(self, key: str, attempt: Attempt | None) -> Iterator[Change]:
        if attempt is None:  # the frame that reserved it was lost
            self._open.pop(key)
            return
        words = self._open[key]
        for path in attempt.members:
            word, why, at = describe(attempt, path)
            if words.get(path) != (word, why):
                words[path] = (word, why)
                yield Change(path, attempt.number, word, why, _took(attempt, path), at)
        if attempt.stage is Stage.ENDED:
            del self._open[key]


def describe(attempt: Attempt, path: str) -> tuple[str, str, float]:
    """The word for a member of an attempt, what more is known, and since when."""
    match attempt.stage:
        case Stage.RESERVED:
            return "reserved", "", attempt.reserved_at
        case Stage.INTENDED:
            return "launching", "", attempt.intended_at
        case Stage.LAUNCHED:
            word = attempt.member_phases.get(path) or attempt.phase or "launched"
            reason = attempt.reason if worth_telling(attempt.reason) else ""
            return word, reason, attempt.intended_at
        case Stage.ENDED:
            return *_end_of(attempt, path), attempt.ended_at
        case _:
            assert_never(attempt.stage)


def _end_of(attempt: Attempt, path: str) -> tuple[str, str]:
    member = attempt.end.members[path] if attempt.end else None
    if member is None:
        return "ended", ""
    facts = [member.code] if member.code else []
    if member.exit_code:
        facts.append(f"exit {member.exit_code}")
    if member.signal:
        facts.append(f"signal {member.signal}")
    if member.rank:
        facts.append(f"rank {member.rank}")
    return member.result.value, ", ".join(facts)


def _took(attempt: Attempt, path: str) -> str:
    member = attempt.end.members[path] if attempt.end else None
    if member is None or not member.started_at or not member.ended_at:
        return ""
    return span(member.ended_at - member.started_at)


def span(seconds: float) -> str:
    """A duration for people: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


class Decided:
    """The decisions that were read since the last call, as lines for people."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}  # writer by question: a new attempt decides anew
        self._last = ""  # the newest question of the last call

    def lines(self, state: RunState) -> list[str]:
        found = []
        newest = ""
        for key, entry in reversed(state.decisions.items()):
            newest = newest or key
            told = self._told.get(key) == entry.writer_key
            if told and key == self._last:
                break  # what is older was told before
            if not told:
                self._told[key] = entry.writer_key
                found.append(f"{clock(state.at)}  {'decided':<9}  {decision_text(entry)}")
        self._last = newest
        return found[::-1]


def decision_text(entry: Decision) -> str:
    """`refine[1]  gate not met: metrics.mae = 15.3; asked <= 2.0`."""
    subject = entry.question.partition("?")[0]
    match entry.value.partition(":"):
        case ("gate", ":", "none"):
            word = "gate not met"
        case ("gate", ":", _):
            word = "gate met"
        case _:
            word = entry.value + (" (assumed)" if entry.assumed else "")
    return f"{subject}  {word}" + (f": {entry.seen}" if entry.seen else "")


class Progress(Protocol):
    """Takes what a driver shows of itself after each tick; `note` a sentence from outside.

    `begin` takes the state that is already known, about which nothing is told. `join` does for
    somebody who comes to look at a run on its way: what runs is told.
    """

    def begin(self, state: RunState) -> None: ...

    def join(self, state: RunState) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...

    def note(self, text: str) -> None: ...


class PlainProgress:
    """One line a change, for logs and pipes. In-between words are left out."""

    def __init__(self, output: Output, now: Callable[[], float] = time.time) -> None:
        self._output = output
        self._now = now
        self._tracker = Tracker()
        self._decided = Decided()
        self._waits: dict[str, str] = {}

    def begin(self, state: RunState) -> None:
        self._tracker.changes(state)
        self._decided.lines(state)

    def join(self, state: RunState) -> None:
        self._tracker.changes(state)
        self._decided.lines(state)
        told = ", ".join(f"{number} {word}" for word, number in counts(state).items())
        self._output.note(f"{clock(self._now())}  {told or 'no step has started yet'}")
        for change in list(self._tracker.live.values())[:ROWS_MAX]:
            self._output.note(line_of(change))

    def show(self, snapshot: Snapshot) -> None:
        for change in self._tracker.changes(snapshot.state):
            if change.word not in _QUIET or change.detail:
                self._output.note(line_of(change))
        for line in self._decided.lines(snapshot.state):
            self._output.note(line)
        for subject, reason in snapshot.waits.items():
            if self._waits.get(subject) != reason and worth_telling(reason):
                what = f"{subject}  {reason}" if subject else reason
                self._output.note(f"{clock(self._now())}  {'waiting':<9}  {what}")
        self._waits = dict(snapshot.waits)

    def note(self, text: str) -> None:
        self._output.note(text)


def worth_telling(reason: str) -> bool:
    """A wait that says more than that the step runs, which its state says already."""
    return bool(reason) and not reason.startswith("the job is ")


def line_of(change: Change) -> str:
    """`12:00:03  succeeded  train (attempt 2)  1.2 s`, the clock in UTC."""
    return f"{clock(change.at)}  {change.word:<9}  {_path(change)}  {change.detail}".rstrip()


def clock(seconds: float) -> str:
    """The time of day in UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(seconds))


class LiveProgress:
    """A table of what runs and what ended last, redrawn in place."""

    def __init__(self, run_id: str, now: Callable[[], float] = time.time) -> None:
        self._run_id = run_id
        self._now = now
        self._tracker = Tracker()
        self._ended: list[Change] = []
        self._note = ""
        self._waits: Mapping[str, str] = {}

    def begin(self, state: RunState) -> None:
        self._tracker.changes(state)

    def join(self, state: RunState) -> None:
        ended = [c for c in self._tracker.changes(state) if c.word in _STYLE]
        self._ended = ended[-ROWS_MAX:]

    def show(self, snapshot: Snapshot) -> None:
        ended = [c for c in self._tracker.changes(snapshot.state) if c.word in _STYLE]
        self._ended = (self._ended + ended)[-ROWS_MAX:]
        self._waits = snapshot.waits

    def note(self, text: str) -> None:
        self._note = text

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = self._now()
        live = list(self._tracker.live.values())
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("STEP", "STATE", "TIME", ""):
            whole = heading in ("STATE", "TIME")  # the others are folded, never cut
            table.add_column(heading, no_wrap=whole, overflow="fold", header_style="dim")
        rows = max(ROWS_MAX - len(live), 3)
        for change in self._ended[-rows:]:
            row = (_path(change), change.word, change.took, change.why)
            table.add_row(*row, style=_STYLE[change.word])
        for change in live[:ROWS_MAX]:
            reason = self._waits.get(change.path, "")
            detail = change.detail or (reason if worth_telling(reason) else "")
            table.add_row(_path(change), change.word, span(now - change.at), detail)
        if len(live) > ROWS_MAX:
            table.add_row(f"and {len(live) - ROWS_MAX} more", "", "", "")
        return Group(Text(self._title(live), style="bold"), table)

    def _title(self, live: list[Change]) -> str:
        counts = f"{self._tracker.done} succeeded, {len(live)} live"
        note = self._note or self._waits.get("", "")
        return f"{self._run_id}: {counts}" + (f" - {note}" if note else "")


def _path(change: Change) -> str:
    return change.path + (f" (attempt {change.attempt})" if change.attempt > 1 else "")


@contextmanager
def progress(output: Output, run_id: str) -> Iterator[Progress]:
    """The right view for where stderr goes. A live view is left behind as its last picture."""
    if not output.stderr_is_terminal:
        yield PlainProgress(output)
        return
    from rich.console import Console
    from rich.live import Live

    view = LiveProgress(run_id)
    with Live(
        view,
        console=Console(stderr=True),
        refresh_per_second=REFRESH_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield view


def counts(state: RunState) -> Mapping[str, int]:
    """How many steps are at each word now, by their latest attempt."""
    result: dict[str, int] = {}
    for path, attempt in state.latest.items():
        word = describe(attempt, path)[0]
        result[word] = result.get(word, 0) + 1
    return result
