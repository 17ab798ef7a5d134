"""Driving a run from the command line: progress, signals, and how it ended as an exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import assert_never

from npa.cli.exit_codes import ExitCode
from npa.cli.logs import last_lines
from npa.cli.output import Output
from npa.cli.progress import Progress, progress
from npa.cli.result import failed_path, place, show_result
from npa.errors import RunError
from npa.orchestration.decide import Goal
from npa.orchestration.driver import Driver, Ending, Outcome, Snapshot
from npa.orchestration.prepare import Prepared
from npa.orchestration.runs import Host, OpenRun, changes, make_drive

LAST_LINES = 5
CHANGES_MAX = 6  # differences that a message names


class Interrupts:
    """What signals ask of a driver.

    The first Ctrl-C cancels the run, the second leaves it without a driver. SIGTERM and a closed
    terminal leave it too: what runs goes on, and `resume` picks it up.
    """

    def __init__(self) -> None:
        self.count = 0
        self.left = False
        self._driver: Driver | None = None
        self._view: Progress | None = None

    def attach(self, driver: Driver, view: Progress) -> None:
        self._driver, self._view = driver, view

    def on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._driver is None or self._view is None:
            raise KeyboardInterrupt
        if self.count == 1:
            self._driver.request_cancel("interrupted by Ctrl-C")
            self._view.note("cancelling; Ctrl-C again leaves the run as it is")
        else:
            self.on_terminate(_number, _frame)

    def on_terminate(self, _number: int, _frame: FrameType | None) -> None:
        self.left = True
        if self._driver is not None:
            self._driver.request_stop()


@contextmanager
def handled() -> Iterator[Interrupts]:
    """Install the handlers for the time of a drive."""
    interrupts = Interrupts()
    wanted = {
        signal.SIGINT: interrupts.on_interrupt,
        signal.SIGTERM: interrupts.on_terminate,
        signal.SIGHUP: interrupts.on_terminate,
    }
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def drive(
    output: Output,
    host: Host,
    run: OpenRun,
    *,
    take_over: bool = False,
    prepared: Prepared | None = None,
) -> int:
    """Drive a run to its end with progress on stderr; then print the result.

    Raises RunError (IDENTITY_MISMATCH) when present inputs differ from the sealed ones, and what
    the driver raises.
    """
    outcome, interrupted = run_driver(output, host, run, take_over=take_over, prepared=prepared)
    if outcome.ending is Ending.FAILED:
        show_last_words(output, host, run)
    show_result(output, run, outcome)
    return exit_code_of_ending(outcome, interrupted=interrupted)


def run_driver(
    output: Output,
    host: Host,
    run: OpenRun,
    *,
    goal: Goal = Goal.COMPLETE,
    take_over: bool = False,
    prepared: Prepared | None = None,
) -> tuple[Outcome, bool]:
    """How the drive ended, and whether Ctrl-C was pressed. `run.state` is then the last state.

    Nothing is printed before the source is pinned: stdout may be a file in that very folder.
    A reader of the progress that goes away does not take the run's driver with it.
    """
    output.outlive_reader()
    with handled() as interrupts, progress(output, run.place.run_id) as view:
        view.begin(run.state)
        made = make_drive(host, run, goal=goal, observer=view.show, prepared=prepared)
        if prepared is not None:
            view.note(f"run {run.place.run_id} in {place(run.place.run_uri)}")
        if made.changed:
            made.engine.close()
            refuse_changes(run.place.run_id, changes(host, run))
        interrupts.attach(made.driver, view)
        outcome = made.run(take_over=take_over)
        run.state = made.driver.state
        view.show(Snapshot(run.state, {}, {}))
    if made.left:
        tell_left(output, run.place.run_id, made.left)
    return outcome, interrupts.count > 0


def tell_left(output: Output, run_id: str, left: str) -> None:
    """The run is over, and something of its engine is not; its verdict stays what it is."""
    output.warning(f"the API server of {run_id} was not let go of: {left}")
    output.hint(f"`npa skypilot stop {run_id}` ends it; the run's result stays as it is")


def refuse_changes(run_id: str, changed: Sequence[str]) -> None:
    """Raise RunError, before anything is written, when the sealed inputs have changed."""
    if not changed:
        return
    more = f" and {len(changed) - CHANGES_MAX} more" if len(changed) > CHANGES_MAX else ""
    raise RunError(
        f"the inputs of run `{run_id}` have changed since it began: "
        f"{', '.join(changed[:CHANGES_MAX])}{more}",
        not_done="nothing was changed or launched",
        hint="undo the change, or go on with it and say why",
        next_command=f"npa workflow resume {run_id} --accept-changes REASON",
        code="IDENTITY_MISMATCH",
    )


def show_last_words(output: Output, host: Host, run: OpenRun) -> None:
    """The end of the failed step's log, on stderr: most often it says why."""
    path = failed_path(run.state)
    if not path:
        return
    lines = last_lines(host, run, path, LAST_LINES)
    if lines:
        output.note(f"the last lines of {path}:")
        for line in lines:
            output.note(f"  | {line}")


def exit_code_of_ending(outcome: Outcome, *, interrupted: bool) -> ExitCode:
    """The exit code of a command that drove a run."""
    match outcome.ending:
        case Ending.COMPLETED:
            return ExitCode.OK
        case Ending.FAILED:
            return ExitCode.FAILED
        case Ending.CANCELLED:
            return ExitCode.INTERRUPTED if interrupted else ExitCode.FAILED
        case Ending.HELD:
            identity = any(hold.code == "IDENTITY" for hold in outcome.holds.values())
            return ExitCode.IDENTITY_MISMATCH if identity else ExitCode.HELD
        case Ending.SUPERSEDED:
            return ExitCode.DRIVEN_ELSEWHERE
        case Ending.STOPPED:
            return ExitCode.INTERRUPTED
        case _:
            assert_never(outcome.ending)
