"""What a command that drove a run says at the end: one short text, or one JSON document."""

from __future__ import annotations

from typing import assert_never

from npa.cli.output import Ink, Output
from npa.cli.progress import describe, span
from npa.cli.spec import plural
from npa.orchestration.driver import Ending, Outcome
from npa.orchestration.journal.entries import Decision
from npa.orchestration.runs import OpenRun, artifacts_of
from npa.orchestration.skypilot.submit import STATUS
from npa.orchestration.state import RunState
from npa.storage import uri_to_path
from npa.views.status import Liveness, to_json, view_run
from npa.workflow.decisions import GATE_NONE, LOOP_BACK


def show_result(output: Output, run: OpenRun, outcome: Outcome) -> None:
    """Print how the drive ended."""
    output.document(document_of(run, outcome))
    state, run_id = run.state, run.place.run_id
    word = STATUS[outcome.ending]
    ink = Ink.GOOD if outcome.ending is Ending.COMPLETED else Ink.ERROR
    took = span(state.at - state.created_at)
    done = sum(state.success_of(path) is not None for path in state.latest)
    output.line(f"{run_id} {output.paint(word, ink)}: {plural(done, 'step')} succeeded, {took}")
    _show_why(output, run, outcome)


def _show_why(output: Output, run: OpenRun, outcome: Outcome) -> None:
    state, run_id = run.state, run.place.run_id
    match outcome.ending:
        case Ending.COMPLETED:
            for uri in last_outputs(state):
                output.line(f"  {place(uri)}")
            for text in unmet(state):
                output.warning(text)
            output.hint(f"`npa workflow artifacts {run_id}` lists everything that it produced")
        case Ending.FAILED:
            path = failed_path(state)
            if state.failure is not None:
                output.line(f"  {with_code(state.failure.reason, state.failure.code)}")
            if path:
                output.hint(f"`npa workflow logs {run_id} {path} --tail 20` shows what it wrote")
            output.hint(
                f"`npa workflow resume {run_id}` goes on once the cause is mended; "
                "add `--accept-changes REASON` if you mended it in the pipeline's folder"
            )
        case Ending.CANCELLED:
            if state.cancel is not None and state.cancel.reason:
                output.line(f"  {state.cancel.reason}")
        case Ending.HELD:
            for subject, hold in outcome.holds.items():
                output.line(f"  {subject or 'the run'}: {hold.reason} ({hold.code})")
            remedies = [hold.remedy for hold in outcome.holds.values() if hold.remedy]
            for remedy in dict.fromkeys(remedies):
                output.hint(remedy)
            if not remedies:
                output.hint(f"`npa workflow status {run_id}` shows what it waits for")
        case Ending.SUPERSEDED:
            output.line("  another driver has taken the run over; this one changed nothing more")
            output.hint(f"`npa workflow status {run_id} --watch` follows it")
        case Ending.STOPPED:
            output.line("  what runs goes on without a driver")
            output.hint(f"`npa workflow resume {run_id}` picks it up")
        case _:
            assert_never(outcome.ending)


def unmet(state: RunState) -> list[str]:
    """The loops of a complete run that used all their rounds without what they were for."""
    last: dict[str, Decision] = {}
    for key, entry in state.decisions.items():
        subject, _, asked = key.partition("?")
        if asked == "until":
            last[subject.rpartition("[")[0]] = entry
    found = []
    for loop, entry in last.items():
        if entry.value in (GATE_NONE, LOOP_BACK):
            rounds = entry.question.partition("?")[0].rpartition("[")[2].rstrip("]")
            seen = f": {entry.seen}" if entry.seen else ""
            ended = f"`{loop}` ended after {plural(int(rounds), 'round')}"
            found.append(f"{ended}, and not because it was good enough{seen}")
    return found


def with_code(reason: str, code: str) -> str:
    """A reason with its code, said once."""
    return reason if not code or code in reason else f"{reason} ({code})"


def last_outputs(state: RunState) -> list[str]:
    """The outputs of the steps that ended last: those of the last wave."""
    attempt = state.waves[state.last_wave].last if state.last_wave in state.waves else None
    members = set(attempt.members) if attempt else set()
    return [artifact.uri for path, artifact, _, _ in artifacts_of(state) if path in members]


def place(uri: str) -> str:
    """A file's path for people, any other URI as it is."""
    return str(uri_to_path(uri)) if uri.startswith("file://") else uri


def failed_path(state: RunState) -> str:
    """The step that the run failed at, "" when it was none."""
    if state.failure is not None and state.failure.path:
        return state.failure.path
    return next((p for p, a in state.latest.items() if describe(a, p)[0] == "failed"), "")


def steps_of(run: OpenRun) -> object:
    """The steps in the public shape of `status`."""
    view = view_run(
        run_id=run.place.run_id,
        run_uri=run.place.run_uri,
        workflow=run.place.workflow,
        state=run.state,
        live=None,
        driver=Liveness.UNKNOWN,
        as_of=run.state.at,
    )
    return to_json(view)["steps"]


def document_of(run: OpenRun, outcome: Outcome) -> dict[str, object]:
    """The JSON of `submit`, `run` and `resume`."""
    state = run.state
    failure = state.failure
    return {
        "workflow": run.place.workflow,
        "run_id": run.place.run_id,
        "run_prefix_uri": run.place.run_uri,
        "status": STATUS[outcome.ending],
        "terminal": state.terminal,
        "error": failure.reason if failure else "",
        "error_code": failure.code if failure else "",
        "failed_step": failed_path(state) if failure else "",
        "cancel_reason": state.cancel.reason if state.cancel else "",
        "holds": [
            {
                "subject": subject,
                "code": hold.code,
                "reason": hold.reason,
                "remedy": hold.remedy,
            }
            for subject, hold in outcome.holds.items()
        ],
        "wave_count": len(state.waves),
        "steps": steps_of(run),
        "decisions": {
            key: {"value": entry.value, "uri": entry.uri, "seen": entry.seen}
            for key, entry in state.decisions.items()
        },
        "watermarks": {
            path: {"uri": entry.uri, "objects": entry.objects}
            for path, entry in state.triggers.items()
        },
        "seconds": round(state.at - state.created_at, 3),
    }
