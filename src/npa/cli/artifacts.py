"""`artifacts`: what a run has produced, as it was validated."""

from __future__ import annotations

import click

from npa.cli.options import json_option, run_argument
from npa.cli.output import Output
from npa.cli.spec import plural
from npa.cli.stage_names import belongs, comes_later, no_such_step


@click.command()
@run_argument
@click.option("--stage", metavar="STEP", help="Only what this step, state or group produced.")
@json_option
def artifacts(run_id: str, stage: str | None, as_json: bool) -> None:
    """List what a run has produced: every declared output that was validated, with its size."""
    from npa.cli.look import open_for_reading
    from npa.cli.result import place
    from npa.orchestration.runs import artifacts_of

    output = Output(as_json=as_json)
    _, run = open_for_reading(run_id)
    wanted = {
        path
        for path, attempt in run.state.latest.items()
        if stage is None or belongs(path, attempt.state_of(path), stage)
    }
    if stage is not None and not wanted and not comes_later(run, stage):
        raise no_such_step(run, stage)
    found = [
        (path, artifact.uri, size, etag)
        for path, artifact, size, etag in artifacts_of(run.state)
        if path in wanted
    ]
    output.table(
        ("STEP", "BYTES", "ARTIFACT"),
        [(path, str(size), place(uri)) for path, uri, size, _ in found],
    )
    output.document(
        {
            "run_id": run.place.run_id,
            "artifacts": [
                {"step": path, "uri": uri, "size": size, "etag": etag}
                for path, uri, size, etag in found
            ],
        }
    )
    output.note(plural(len(found), "artifact"))
