"""Render a customer's own task: their document, with the run's name, environment and fence.

Licence, claim, staged source and reserved exit codes stand before the user's setup and run, exactly
as before any other step's. So a raw task has the same identity and is started at most once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from npa.catalog.loader import Catalog
from npa.orchestration.engine import Job
from npa.orchestration.raw_task import RawTask, is_raw, read_raw
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render import Rendered, render_job
from npa.orchestration.skypilot.render_errors import check_placeholders
from npa.workflow.step import Command, Profile

if TYPE_CHECKING:
    from npa.orchestration.prepare import Request


def render_for(request: Request, job: Job, catalog: Catalog, options: RenderOptions) -> Rendered:
    """The job of a run, whichever file it is of. Raises RenderError, UsageError."""
    if is_raw(request.spec_text):
        raw = read_raw(request.spec_text, request.spec_path)
        return render_raw(job, catalog, options, raw)
    return render_job(job, catalog, options)


def render_raw(job: Job, catalog: Catalog, options: RenderOptions, raw: RawTask) -> Rendered:
    """The one task of `job` as `raw` says. Raises RenderError."""
    (task,) = job.tasks
    step = replace(
        task.step,
        command=Command(shell=raw.run, setup=raw.setup),
        profile=Profile(num_nodes=raw.num_nodes),
    )
    # What the user says of resources stands below what the run says of the place.
    options = options if raw.staged else replace(options, source=None)
    made = render_job(replace(job, tasks=(replace(task, step=step),)), catalog, options)
    header, ours = made.documents
    document: dict[str, Any] = {
        **raw.kept,
        **ours,
        "resources": {**raw.resources, **_mapping(ours, "resources")},
        "envs": dict(sorted({**raw.envs, **_mapping(ours, "envs")}.items())),
    }
    check_placeholders(document, step.path)
    return dataclasses.replace(made, documents=(header, document))


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = document.get(key) or {}
    return found
