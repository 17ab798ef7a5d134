"""`status` and `list`: how runs stand, with what is recorded apart from what was seen just now."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from npa.cli.exit_codes import ExitCode
from npa.cli.options import json_option, run_argument
from npa.cli.output import Ink, Output
from npa.cli.progress import decision_text, progress, span, worth_telling
from npa.errors import StorageError

if TYPE_CHECKING:
    from npa.cli.look import Rest
    from npa.orchestration.runs import Host, OpenRun
    from npa.views.planned import Planned, PlannedStep
    from npa.views.status import RunView, StepView

READERS = 16
PLANNED_ROWS = 20  # steps to come that are listed
DECISIONS_MAX = 3  # of the last ones; the document has all
_GOOD = ("SUCCEEDED", "RUNNING", "PENDING", "CANCELLING")


@click.command()
@run_argument
@click.option("--watch", is_flag=True, help="Look again until the run is over.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    default=2.0,
    show_default=True,
    help="Seconds between two looks of a watch.",
)
@click.option("--cached", is_flag=True, help="Only what is recorded, without a fresh look.")
@json_option
def status(run_id: str, watch: bool, interval: float, cached: bool, as_json: bool) -> int:
    """Say how a run stands: what is recorded, and what a fresh look at its jobs says.

    RUN is a run ID, the unique start of one, or the URI of a run's root, here as in every command.
    """
    from npa.cli.ahead import planned_of
    from npa.cli.look import look, open_for_reading, rest_of, tell_rest

    if cached and watch:
        raise click.UsageError("`--cached` looks at nothing, so there is nothing to watch")
    output = Output(as_json=as_json)
    host, run = open_for_reading(run_id)
    view = look(host, run, cached=cached)
    if watch and not settled(view, run):
        view = _watch(output, host, run, interval)
    rest = rest_of(run)  # may have read that the run is over
    if run.state.lifecycle.over and not view.completion_recorded:
        view = look(host, run, cached=cached)
    show(output, replace(view, planned=planned_of(run)))
    tell_rest(output, run, rest)
    return exit_code_of_view(view, rest)


def settled(view: RunView, run: OpenRun) -> bool:
    """Is there nothing to wait for: the run is over or held, nobody drives it, or its evidence
    conflicts?"""
    from npa.cli.look import Rest, rest_of
    from npa.views.status import Verification

    stuck = view.verification in (Verification.INCONSISTENT, Verification.UNAVAILABLE)
    return stuck or rest_of(run) is not Rest.MOVES


def _watch(output: Output, host: Host, run: OpenRun, interval: float) -> RunView:
    """Tell what changes, as the driver's own command does, until there is nothing to wait for."""
    from npa.cli.look import look
    from npa.orchestration.driver import Snapshot

    with progress(output, run.place.run_id) as shown:
        shown.join(run.state)
        while True:
            time.sleep(interval)
            with suppress(StorageError):  # cannot see: what was seen before is still shown
                run.state.apply(run.journal.refresh())
            view = look(host, run)
            over = settled(view, run)  # may have read on in the journal
            shown.show(Snapshot(run.state, _waits(view, run), {}))
            if over:
                return look(host, run)


def _waits(view: RunView, run: OpenRun) -> dict[str, str]:
    """What a fresh look says of the steps that is not in the journal."""
    known = {path: attempt.reason for path, attempt in run.state.latest.items()}
    return {s.path: s.reason for s in view.steps if s.live and s.reason != known.get(s.path)}


def exit_code_of_view(view: RunView, rest: Rest) -> ExitCode:
    """0 on its way or succeeded, 1 failed or cancelled, 2 not to be trusted, 3 nobody drives it,
    10 held."""
    from npa.cli.look import exit_code_of_rest
    from npa.views.status import Verification

    if view.verification in (Verification.INCONSISTENT, Verification.UNAVAILABLE):
        return ExitCode.UNVERIFIED
    if view.status == "HELD":
        return ExitCode.HELD
    return exit_code_of_rest(rest) if view.status in _GOOD else ExitCode.FAILED


def _counts(view: RunView) -> str:
    return ", ".join(f"{count} {word}" for word, count in view.counts.items()) or "no step yet"


def show(output: Output, view: RunView) -> None:
    """The whole status, as text or as one document."""
    from npa.cli.result import with_code
    from npa.views.status import to_json

    output.document(to_json(view))
    ink = Ink.GOOD if view.status in _GOOD else Ink.ERROR
    output.line(f"{view.run_id}  {output.paint(view.status, ink)}  {_counts(view)}")
    facts = [("workflow", view.workflow), ("root", view.run_uri), ("recorded", _recorded(view))]
    if not view.completion_recorded:
        facts += [("driver", _driver(view)), ("live look", view.verification.value)]
    if view.planned is not None:
        facts.append(("steps", progress_text(view.planned)))
    facts += [("decided", decision_text(one)) for one in view.decisions[-DECISIONS_MAX:]]
    if view.failure_reason:
        facts.append(("failure", with_code(view.failure_reason, view.failure_code)))
    if view.cancel_by:
        reason = view.cancel_reason or "no reason given"
        facts.append(("cancelled", f"{reason}, by {view.cancel_by}"))
    for label, text in facts:
        output.line(f"  {label:<10} {text}")
    ahead = view.planned.steps if view.planned is not None else ()
    if view.steps or ahead:
        output.line()
        rows = [_row(step, view) for step in view.steps]
        rows += [(name, "skipped", "", "") for name in view.skipped]
        rows += [_planned_row(step) for step in ahead[:PLANNED_ROWS]]
        if len(ahead) > PLANNED_ROWS:
            rows.append((f"and {len(ahead) - PLANNED_ROWS} more", "", "", ""))
        output.table(("STEP", "STATE", "TIME", "DETAIL"), rows)
    for problem in view.problems:
        output.warning(problem)


def progress_text(planned: Planned) -> str:
    """How far a run is; a total that a decision, a loop or items may change is no promise."""
    if planned.too_large:
        return f"{planned.done} done; what is to come is too much to count"
    if planned.total is None:
        return f"{planned.done} done; decisions on the way say how many follow"
    return f"{planned.done} of {'' if planned.exact else 'at most '}{planned.total} done"


def _planned_row(step: PlannedStep) -> tuple[str, str, str, str]:
    many = f"at most {step.at_most}" if step.at_most > 1 else ""
    return step.path, "planned" if step.certain else "may run", "", many


def _recorded(view: RunView) -> str:
    word = "completed" if view.completion_recorded else "last entry"
    return f"{word} {stamp(view.updated_at)}, begun {stamp(view.created_at)}"


def _driver(view: RunView) -> str:
    return f"{view.driver.value} ({view.driver_where})" if view.driver_where else view.driver.value


def stamp(seconds: float) -> str:
    """A time in UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def _row(step: StepView, view: RunView) -> tuple[str, str, str, str]:
    begun = step.started_at
    took = span((step.ended_at or view.as_of) - begun) if begun else ""
    facts = [step.code] if step.code else []
    facts += [f"exit {step.exit_code}"] if step.exit_code else []
    facts += [f"signal {step.signal}"] if step.signal else []
    facts += [f"rank {step.rank}"] if step.rank else []
    facts += [f"missing {uri}" for uri in step.missing]
    facts += [step.reason] if worth_telling(step.reason) else []
    facts += list(step.earlier)
    return step.path, step.live or step.recorded, took, ", ".join(facts)


@click.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most.")
@json_option
def list_runs(limit: int, as_json: bool) -> None:
    """List the runs that were submitted from this home, newest first."""
    from itertools import islice

    from npa.cli.host import reading_host
    from npa.cli.look import recorded_word
    from npa.orchestration.registry import known_runs

    output = Output(as_json=as_json)
    host = reading_host()
    places = list(islice(known_runs(host.home), limit))
    with ThreadPoolExecutor(READERS) as pool:
        states = list(pool.map(lambda place: recorded_word(host, place), places))
    output.table(
        ("RUN", "WORKFLOW", "STATE", "BEGUN"),
        [
            (place.run_id, place.workflow, state, stamp(place.created_at))
            for place, state in zip(places, states, strict=True)
        ],
    )
    output.document(
        [
            {
                "run_id": place.run_id,
                "workflow": place.workflow,
                "status": state,
                "run_uri": place.run_uri,
                "created_at": place.created_at,
            }
            for place, state in zip(places, states, strict=True)
        ]
    )
