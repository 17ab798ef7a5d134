"""`logs`: what the tasks wrote, byte for byte, after they ended or while they run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from npa.cli.exit_codes import ExitCode
from npa.cli.log_printer import Printer, Source
from npa.cli.options import run_argument
from npa.cli.output import Output
from npa.cli.stage_names import belongs, comes_later, no_such_step
from npa.errors import UsageError
from npa.observation import Found

if TYPE_CHECKING:
    from npa.orchestration.logs import LogReader
    from npa.orchestration.runs import Host, OpenRun
    from npa.orchestration.state import Attempt

TAIL_BYTES = 1 << 14  # what is kept to show the last lines
ALL = 0  # of attempts


def _number(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """The number of an attempt; ALL for `all`."""
    if text is None or text == "all":
        return None if text is None else ALL
    if not text.isdecimal() or int(text) == 0:
        raise click.BadParameter(f"{text!r} is neither the number of an attempt nor `all`")
    return int(text)


class Choice(Struct, frozen=True):
    """Which attempts are wanted: of which step, state or group (None: any), and which number."""

    stage: str | None
    number: int | None  # ALL, or None for the latest

    def of_stage(self, path: str, attempt: Attempt) -> bool:
        return self.stage is None or belongs(path, attempt.state_of(path), self.stage)

    def wants(self, path: str, attempt: Attempt) -> bool:
        """Is an attempt that starts only now wanted? The newest is always the latest."""
        return self.of_stage(path, attempt) and self.number in (None, ALL, attempt.number)


@click.command()
@run_argument
@click.argument("stage", metavar="[STEP]", required=False)
@click.option(
    "--follow/--no-follow",
    default=False,
    help="Go on with what is written, and with what starts later, to the run's end.",
)
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--rank", type=click.IntRange(0), metavar="R", help="Only this rank of a gang.")
@click.option(
    "--attempt",
    callback=_number,
    metavar="N|all",
    help="This attempt of each step, or all.  [default: the latest]",
)
def logs(
    run_id: str,
    stage: str | None,
    follow: bool,
    tail: int | None,
    rank: int | None,
    attempt: int | None,
) -> int:
    """Print what the tasks wrote. STEP is a step path, a state, or a group with all its members.

    Without `--follow` it prints what there is and returns at once, also for a step that waits. A
    file or a pipe gets every byte; a terminal, and `--tail`, at most 8 KiB of a line.
    """
    from npa.cli.look import open_for_reading

    output = Output()
    host, run = open_for_reading(run_id)
    choice = Choice(stage, attempt)
    attempts = chosen(output, run, choice, follow=follow)
    with reading(host, run) as reader:
        printer = Printer(output, reader, run.place.run_id, rank)
        opened = [(path, a, printer.open(path, a, patient=follow)) for path, a in attempts]
        sources = [source for _, _, found in opened for source in found or ()]
        for source in sources:
            printer.print(source, tail, titled=len(attempts) > 1 or len(sources) > 1)
        ended = _follow(output, run, printer, choice, opened) if follow else ExitCode.OK
    return ExitCode.UNVERIFIED if printer.unseen else ended


def chosen(
    output: Output, run: OpenRun, choice: Choice, *, follow: bool
) -> list[tuple[str, Attempt]]:
    """The attempts to print, step by step. Raises UsageError for a step or a number there is not.

    A step of the file that has not started is said to wait, which is no error.
    """
    started: dict[str, list[Attempt]] = {}
    for attempt in run.state.attempts.values():
        for path in attempt.members:
            if choice.of_stage(path, attempt):
                started.setdefault(path, []).append(attempt)
    if not started:
        if choice.stage is not None and not comes_later(run, choice.stage):
            raise no_such_step(run, choice.stage)
        output.note(f"{choice.stage or 'no step'} has {'not ' if choice.stage else ''}started yet")
        return []
    if choice.number is None:
        _tell_earlier(output, started)
        return [(path, attempts[-1]) for path, attempts in started.items()]
    found = [
        (path, attempt)
        for path, attempts in started.items()
        for attempt in attempts
        if choice.number in (ALL, attempt.number)
    ]
    if not found and not follow:
        raise _no_such_attempt(run, choice, started)
    return found


def _no_such_attempt(run: OpenRun, choice: Choice, started: dict[str, list[Attempt]]) -> UsageError:
    numbers = sorted({attempt.number for found in started.values() for attempt in found})
    there = ", ".join(map(str, numbers))
    of = f" of {choice.stage}" if choice.stage else ""
    verb, noun = ("is", "attempt") if len(numbers) == 1 else ("are", "attempts")
    words = ["npa workflow logs", run.place.run_id, *([choice.stage] if choice.stage else [])]
    return UsageError(
        f"there is no attempt {choice.number}{of}; there {verb} {noun} {there}",
        next_command=" ".join([*words, "--attempt all"]),
        code="NO_SUCH_ATTEMPT",
    )


def _tell_earlier(output: Output, started: dict[str, list[Attempt]]) -> None:
    """Say what is left out when only the latest attempts are shown."""
    earlier = [(p, attempt) for p, attempts in started.items() for attempt in attempts[:-1]]
    if len(earlier) == 1:
        path, attempt = earlier[0]
        number = attempt.number
        output.note(f"attempt {number} of {path} is not shown: `--attempt {number}` shows it")
    elif earlier:
        output.note(f"{len(earlier)} earlier attempts are not shown: `--attempt all` shows them")


def _follow(
    output: Output,
    run: OpenRun,
    printer: Printer,
    choice: Choice,
    opened: list[tuple[str, Attempt, list[Source] | None]],
) -> ExitCode:
    from npa.cli.follow import Follower
    from npa.cli.look import exit_code_of_rest, tell_rest

    stage = choice.stage or ""
    follower = Follower(run, printer, choice.wants, step=stage)
    follower.begin(opened)
    rest = follower.follow()
    tell_rest(output, run, rest)
    return exit_code_of_rest(rest)


@contextmanager
def reading(host: Host, run: OpenRun) -> Iterator[LogReader]:
    """The reader of the run's engine. What it keeps for itself goes with it, also on a signal."""
    from npa.orchestration.hosts import log_reader

    wanted = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _leave) for number in wanted}
    try:
        with log_reader(host, run.request) as reader:
            yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def last_lines(host: Host, run: OpenRun, path: str, count: int) -> list[str]:
    """The last lines that a step wrote, as text; none if its log cannot be read."""
    from npa.cli.look import ref_of

    attempt = run.state.latest[path]
    ref = ref_of(attempt)
    member = attempt.end.members[path] if attempt.end else None
    rank = member.rank if member and member.rank else 0
    data = b""
    with reading(host, run) as reader:
        streams = reader.streams(ref)
        if not isinstance(streams, Found):
            return []
        stream = next((s for s in streams.value if (s.path, s.rank) == (path, rank)), None)
        offset, more = 0, stream is not None
        while more and stream is not None:
            seen = reader.read(ref, stream, offset)
            if not isinstance(seen, Found):
                break
            data = (data + seen.value.data)[-TAIL_BYTES:]
            more = bool(seen.value.data) and not seen.value.ended
            offset = seen.value.next_offset
    text = data.decode(errors="replace")
    return ["".join(c if c.isprintable() else " " for c in t) for t in text.splitlines()[-count:]]
