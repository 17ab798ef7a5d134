"""Render a whole plan before anything is launched: what `submit --plan-only` shows.

The jobs are those of a run in which every attempt is the first and the assumed path is taken; only
the effect keys, which depend on the seal, differ from those of the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from npa.catalog.loader import Catalog
from npa.orchestration.engine import Finding, Job
from npa.orchestration.journal.entries import Cause
from npa.orchestration.seal import job_name
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render import Rendered, render_job
from npa.orchestration.state import Attempt
from npa.orchestration.taskenv import JobSettings, build_job
from npa.workflow.asks import Batch
from npa.workflow.waves import Wave, split_for


class RenderedPlan(Struct, frozen=True):
    """The managed jobs of a plan, in order."""

    jobs: tuple[Rendered, ...]

    @property
    def text(self) -> str:
        """All documents as one YAML stream; each job begins with its header."""
        return "---\n".join(job.text for job in self.jobs)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the user should know; each thing once a step."""
        return tuple(dict.fromkeys(item for job in self.jobs for item in job.findings))


def render_plan(
    batches: Iterable[Batch], settings: JobSettings, catalog: Catalog, options: RenderOptions
) -> RenderedPlan:
    """Render every batch of a plan. Raises RenderError; see `render_job`."""
    jobs = preview_jobs(batches, settings)
    return RenderedPlan(tuple(render_job(job, catalog, options) for job in jobs))


def preview_jobs(batches: Iterable[Batch], settings: JobSettings) -> Iterator[Job]:
    """The jobs of a plan's batches: groups as one job, window members one by one."""
    for batch in batches:
        for wave in split_for(batch, launches_groups=True):
            yield build_job(settings, _first_attempt(settings, wave), wave.steps)


def _first_attempt(settings: JobSettings, wave: Wave) -> Attempt:
    key = hashlib.sha256(f"preview\0{settings.run_id}\0{wave.key}".encode()).hexdigest()
    return Attempt(
        wave=wave.key,
        label=wave.label,
        number=1,
        key=key,
        name=job_name(settings.run_id, wave.label, key),
        cause=Cause.FIRST,
        digests={step.path: "" for step in wave.steps},
        states=tuple(step.state for step in wave.steps),
        parent="",
        reserved_n=0,
        reserved_at=0.0,
    )
