"""`logs --follow`: print what is written until the run is over, or goes no further by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct, field

from npa.cli.log_printer import Printer, Source
from npa.cli.look import Rest, rest_of
from npa.errors import StorageError

if TYPE_CHECKING:
    from npa.orchestration.runs import OpenRun
    from npa.orchestration.state import Attempt

READ_SECONDS = 0.2  # between two reads of the open logs
LOOK_SECONDS = 1.0  # between two looks at the journal
DRAIN_SECONDS = 10.0  # for the last lines of a log that does not end with its run


class Follower(Struct):
    """Follows the steps that `wants` names. `step` is the path of the one step, "" for several."""

    run: OpenRun
    printer: Printer
    wants: Callable[[str, Attempt], bool]
    step: str = ""
    sources: list[Source] = field(default_factory=list)
    _taken: int = 0
    _unopened: list[tuple[str, Attempt]] = field(default_factory=list)

    def begin(self, opened: Iterable[tuple[str, Attempt, list[Source] | None]]) -> None:
        """Everything that has started was chosen from already, and this came of it."""
        for path, attempt, sources in opened:
            if sources is None:
                self._unopened.append((path, attempt))
            else:
                self.sources += sources
        self._taken = len(self.run.state.attempts)

    def follow(self) -> Rest:
        """Return when nothing more is to come, with how the run then stands."""
        moved = look_at = time.monotonic()
        rest = Rest.MOVES
        while True:
            now = time.monotonic()
            if now >= look_at:
                rest, look_at = self._look(), now + LOOK_SECONDS
            if self.printer.advance(self.sources):
                moved = time.monotonic()
            elif self._all_told(rest, now - moved):
                return rest
            else:
                time.sleep(READ_SECONDS)

    def _look(self) -> Rest:
        """Read on in the journal, and open the logs of what has started since."""
        with suppress(StorageError):  # cannot see: look again later
            self.run.state.apply(self.run.journal.refresh())
        rest = rest_of(self.run)
        self._unopened += self._started()
        waiting = []
        for path, attempt in self._unopened:
            found = self.printer.open(path, attempt, patient=True)
            if found is None:
                waiting.append((path, attempt))
            else:
                self.sources += found
        self._unopened = waiting
        return rest

    def _started(self) -> Iterator[tuple[str, Attempt]]:
        attempts = self.run.state.attempts
        for attempt in islice(attempts.values(), self._taken, None):
            for path in attempt.members:
                if self.wants(path, attempt):
                    yield path, attempt
        self._taken = len(attempts)

    def _all_told(self, rest: Rest, quiet: float) -> bool:
        ended = not self._unopened and all(source.ended for source in self.sources)
        match rest:
            case Rest.MOVES:
                return ended and self._step_is_done()
            case Rest.OVER:
                return ended or quiet > DRAIN_SECONDS
            case Rest.HELD | Rest.DEAD | Rest.LEFT | Rest.UNDRIVEN:
                return True
            case _:
                assert_never(rest)

    def _step_is_done(self) -> bool:
        """A step that has succeeded does not start again while its run goes on."""
        return bool(self.step) and self.run.state.success_of(self.step) is not None
