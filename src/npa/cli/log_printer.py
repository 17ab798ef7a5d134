"""Copies streams of logs to stdout, and says on stderr which one it is and what cannot be read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, assert_never

from msgspec import Struct, field

from npa.cli.log_text import LINE_BYTES_MAX, LastLines, Screen
from npa.cli.output import Output
from npa.cli.spec import plural
from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable

if TYPE_CHECKING:
    from npa.orchestration.logs import LogReader, LogStream
    from npa.orchestration.state import Attempt

T = TypeVar("T")


class Source(Struct):
    """One stream of one attempt, and how far it was read."""

    path: str
    attempt: Attempt
    stream: LogStream
    offset: int = 0
    ended: bool = False
    screen: Screen = field(default_factory=Screen)

    @property
    def title(self) -> str:
        again = f", attempt {self.attempt.number}" if self.attempt.number > 1 else ""
        return f"==> {self.path}{again}, rank {self.stream.rank} <=="


class Printer:
    """The streams of a run's `reader`, one after another; only those of `rank`, if one is named."""

    def __init__(
        self, output: Output, reader: LogReader, run_id: str, rank: int | None = None
    ) -> None:
        self._output = output
        self._reader = reader
        self._run_id = run_id
        self._rank = rank
        self._last: Source | None = None
        self.unseen = 0

    def open(self, path: str, attempt: Attempt, *, patient: bool = False) -> list[Source] | None:
        """The streams of one step's attempt.

        None, to the patient only, when there is none yet and its job may still begin one.
        """
        from npa.cli.look import ref_of

        seen = self._reader.streams(ref_of(attempt))
        if patient and attempt.open and not isinstance(seen, Found):
            return None
        found = [Source(path, attempt, s) for s in self._seen(path, seen) or () if s.path == path]
        return [source for source in found if self._rank in (None, source.stream.rank)]

    def print(self, source: Source, tail: int | None, *, titled: bool) -> None:
        """What there is now: all of it, or the last lines."""
        if titled:
            self._output.note(source.title)
        self._last = source
        cut = 0
        if tail is None:
            for data in self._chunks(source):
                self._show(source, data)
        else:
            lines = LastLines(tail)
            for data in self._chunks(source):
                lines.feed(data)
            last, cut = lines.take()
            self._show(source, last)
        self._pause(source)
        self._tell_cut(source, cut + source.screen.cut)

    def _show(self, source: Source, data: bytes) -> None:
        """To a terminal what it can show, elsewhere the bytes as they are."""
        terminal = self._output.stdout_is_terminal
        self._output.raw(source.screen.feed(data) if terminal else data)

    def _pause(self, source: Source) -> None:
        """Another stream, or a message, may be next: its colours are not ours."""
        if self._output.stdout_is_terminal:
            self._output.raw(source.screen.end())

    def _tell_cut(self, source: Source, cut: int) -> None:
        source.screen.cut = 0
        if not cut:
            return
        words = ["npa", "workflow", "logs", self._run_id, source.path]
        words += ["--attempt", str(source.attempt.number), "--rank", str(source.stream.rank)]
        them = "it" if cut == 1 else "them"
        self._output.hint(
            f"{plural(cut, 'line')} of {source.path} cut at {LINE_BYTES_MAX} bytes: "
            f"`{shlex.join(words)} > FILE` has {them} whole"
        )

    def advance(self, sources: Sequence[Source]) -> bool:
        """Print what was written since the last look. Was there anything?"""
        moved = False
        for source in sources:
            told = False
            for data in self._chunks(source):
                if source is not self._last and len(sources) > 1:
                    self._output.note(source.title)
                self._last = source
                self._show(source, data)
                told = moved = True
            if told and (len(sources) > 1 or source.ended):
                self._pause(source)
            if source.screen.cut:
                self._tell_cut(source, source.screen.cut)
        return moved

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
