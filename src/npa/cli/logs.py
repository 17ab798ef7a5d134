"""`logs`: what the tasks wrote, byte for byte, after they ended or while they run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, assert_never

import click

from npa.cli.exit_codes import ExitCode
from npa.cli.lazy import unknown
from npa.cli.options import run_argument
from npa.cli.output import Output
from npa.errors import UsageError
from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable

if TYPE_CHECKING:
    from npa.orchestration.logs import LogReader, LogStream
    from npa.orchestration.runs import Host, OpenRun
    from npa.orchestration.state import Attempt

T = TypeVar("T")
FOLLOW_SECONDS = 0.2
TAIL_BYTES = 1 << 14  # what is kept to show the last lines


@dataclass(slots=True)
class Source:
    """One stream of one attempt, and how far it was read."""

    path: str
    attempt: Attempt
    stream: LogStream
    offset: int = 0
    ended: bool = False

    @property
    def title(self) -> str:
        return f"==> {self.path}, rank {self.stream.rank} <=="


@click.command()
@run_argument
@click.argument("stage", metavar="[STEP]", required=False)
@click.option("--follow/--no-follow", default=False, help="Wait for more until the tasks end.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--rank", type=click.IntRange(0), metavar="R", help="Only this rank of a gang.")
def logs(run_id: str, stage: str | None, follow: bool, tail: int | None, rank: int | None) -> int:
    """Print what the tasks wrote. STEP is a step path, or a state: all of its steps.

    Without `--follow` it prints what there is and returns at once, also for a step that waits.
    """
    from npa.cli.look import open_for_reading

    output = Output()
    host, run = open_for_reading(run_id)
    attempts = chosen(run, stage)
    if not attempts:
        output.note("no step has started yet")
        return ExitCode.OK
    printer = Printer(output, reader_of(host, run))
    sources = printer.open(attempts, rank)
    for source in sources:
        printer.print(source, tail, titled=len(sources) > 1)
    if follow:
        printer.follow(sources)
    return ExitCode.UNVERIFIED if printer.unseen else ExitCode.OK


def chosen(run: OpenRun, stage: str | None) -> list[tuple[str, Attempt]]:
    """The steps that STEP means, each by its latest attempt. Raises UsageError for none."""
    latest = run.state.latest
    if stage is None:
        return list(latest.items())
    found = [(path, a) for path, a in latest.items() if stage in (path, a.state_of(path))]
    if not found:
        known = [*latest, *{a.state_of(path) for path, a in latest.items()}]
        raise UsageError(
            unknown(stage, "step", known),
            hint="a step has logs once it was launched",
            next_command=f"npa workflow status {run.place.run_id}",
        )
    return found


def reader_of(host: Host, run: OpenRun) -> LogReader:
    """The reader of the run's engine."""
    from npa.orchestration.hosts import log_reader

    return log_reader(host, run.request)


class Printer:
    """Copies streams to stdout; says on stderr which one, and what cannot be read."""

    def __init__(self, output: Output, reader: LogReader) -> None:
        self._output = output
        self._reader = reader
        self._last: Source | None = None
        self.unseen = 0

    def open(self, attempts: Sequence[tuple[str, Attempt]], rank: int | None) -> list[Source]:
        """The streams of these steps, one for each rank that is wanted."""
        from npa.cli.look import ref_of

        found: list[Source] = []
        for path, attempt in attempts:
            streams = self._seen(path, self._reader.streams(ref_of(attempt))) or ()
            found += [Source(path, attempt, s) for s in streams if s.path == path]
        return [source for source in found if rank in (None, source.stream.rank)]

    def print(self, source: Source, tail: int | None, *, titled: bool) -> None:
        """What there is now: all of it, or the last lines."""
        if titled:
            self._output.note(source.title)
        self._last = source
        if tail is None:
            for data in self._chunks(source):
                self._output.raw(data)
            return
        lines: deque[bytes] = deque(maxlen=tail)
        rest = b""
        for data in self._chunks(source):
            *whole, rest = (rest + data).split(b"\n")
            lines.extend(line + b"\n" for line in whole)
        if rest:
            lines.append(rest)
        self._output.raw(b"".join(lines))

    def follow(self, sources: Sequence[Source]) -> None:
        """Go on until every stream has ended or cannot be read any more."""
        while open_ones := [source for source in sources if not source.ended]:
            moved = False
            for source in open_ones:
                for data in self._chunks(source):
                    if source is not self._last and len(sources) > 1:
                        self._output.note(source.title)
                    self._last = source
                    self._output.raw(data)
                    moved = True
            if not moved:
                time.sleep(FOLLOW_SECONDS)

    def _chunks(self, source: Source) -> Iterator[bytes]:
        """What was written since the last look, in chunks; marks the end of the stream."""
        from npa.cli.look import ref_of

        ref = ref_of(source.attempt)
        while not source.ended:
            seen = self._seen(source.path, self._reader.read(ref, source.stream, source.offset))
            if seen is None:
                source.ended = True
                return
            source.offset, source.ended = seen.next_offset, seen.ended
            if not seen.data:
                return
            yield seen.data

    def _seen(self, path: str, observation: Observation[T]) -> T | None:
        """The value, or a line that says why there is none."""
        match observation:
            case Found(value=value):
                return value
            case Absent(proof=proof):
                self._output.note(f"{path}: no log ({proof})")
            case Unavailable(cause=cause, detail=detail):
                self.unseen += 1
                self._output.warning(f"{path}: its log cannot be read ({cause}: {detail})")
            case Ambiguous(candidates=found):
                self.unseen += 1
                self._output.warning(f"{path}: several jobs answer: {', '.join(found)}")
            case _:
                assert_never(observation)
        return None


def last_lines(host: Host, run: OpenRun, path: str, count: int) -> list[str]:
    """The last lines that a step wrote, as text; none if its log cannot be read."""
    from npa.cli.look import ref_of

    attempt = run.state.latest[path]
    ref = ref_of(attempt)
    reader = reader_of(host, run)
    streams = reader.streams(ref)
    if not isinstance(streams, Found):
        return []
    member = attempt.end.members[path] if attempt.end else None
    rank = member.rank if member and member.rank else 0
    stream = next((s for s in streams.value if (s.path, s.rank) == (path, rank)), None)
    data = b""
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
