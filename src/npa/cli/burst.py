"""`npa burst`: one rendered SkyPilot task, started under the supervisor of every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from npa.cli.skypilot_options import skypilot_options, take_settings
from npa.cli.submit import submit_file, submit_options
from npa.errors import UsageError


@click.group(help="One SkyPilot task as a run of its own.")
def burst() -> None:
    """The group; its commands are below."""


@burst.command("submit-yaml")
@submit_options
@skypilot_options
def submit_yaml(spec: Path, **options: Any) -> int:
    """Run a rendered SkyPilot file of one task.

    It is a run as any other: `npa workflow status`, `logs`, `cancel` and `resume` take its ID.
    Anything larger is a pipeline, for `npa workflow submit`.
    """
    _refuse_pipeline(spec)
    return submit_file("skypilot", engine_options=take_settings(options), spec=spec, **options)


def _refuse_pipeline(spec: Path) -> None:
    from npa.orchestration.raw_task import is_raw

    try:
        raw = is_raw(spec.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"`{spec}` cannot be read", not_done="nothing was started") from None
    if not raw:
        raise UsageError(
            f"{spec} is no SkyPilot file of one task",
            not_done="nothing was started",
            next_command=f"npa workflow submit {spec}",
        )
