"""What a submit to SkyPilot lacks, all of it in one answer, found without starting anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from npa.catalog.loader import Catalog
from npa.errors import EngineError, UsageError
from npa.orchestration.engine import Finding
from npa.orchestration.skypilot.render_errors import RenderError
from npa.orchestration.skypilot.render_plan import RenderedPlan, preview_jobs
from npa.orchestration.skypilot.render_raw import render_for
from npa.orchestration.skypilot.resolve import resolve
from npa.orchestration.skypilot.run_engine import (
    kubeconfig_of,
    nebius_folder,
    options_of,
    settings_of,
    slurm_config_of,
)
from npa.orchestration.skypilot.session import require_linux
from npa.orchestration.skypilot.settings import Cloud, Settings
from npa.orchestration.taskenv import JobSettings
from npa.storage import split_uri
from npa.target.secret import Secret
from npa.workflow.decisions import LOOP_BACK
from npa.workflow.plan import default_assumption, make_plan

if TYPE_CHECKING:
    from npa.orchestration.prepare import Prepared, Request
    from npa.target.credentials import StorageAccess
    from npa.workflow.tools import Tools


_CREDENTIALS = (
    "export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set `storage:` in config.yaml"
)


def missing(
    prepared: Prepared,
    *,
    tools: Tools,
    storage: StorageAccess,
    environ: Mapping[str, str],
    npa_home: Path,
) -> tuple[Finding, ...]:
    """Every item that is missing, with its way out. Starts and writes nothing."""
    settings = settings_of(prepared.request)
    found = [
        *_refusal(require_linux),
        *_refusal(lambda: resolve(settings.sky_bin, environ, npa_home)),
        *_infra(settings, environ),
        *_store(prepared.request, storage),
        *_variables(prepared, environ),
    ]
    _, rendered = render_preview(prepared, tools, storage, whole=True)
    return (*found, *rendered)


def render_preview(
    prepared: Prepared, tools: Tools, storage: StorageAccess, *, whole: bool = False
) -> tuple[RenderedPlan, tuple[Finding, ...]]:
    """The managed jobs of the run's plan, and what rendering finds. `whole`: every loop's budget.

    A job that cannot be rendered is a finding; the others are rendered all the same.
    """
    settings = settings_of(prepared.request)
    catalog = tools if isinstance(tools, Catalog) else Catalog.built_in()
    assume = prepared.policy.assume_decision
    assume = assume or default_assumption(prepared.graph, prepared.context)
    plan = make_plan(prepared.graph, prepared.context, LOOP_BACK if whole else assume)
    options = options_of(settings, prepared.request.run_uri, None, "")
    jobs, found = [], []
    for job in preview_jobs(plan.batches, _preview_settings(prepared, storage)):
        try:
            jobs.append(render_for(prepared.request, job, catalog, options))
        except RenderError as error:
            path = job.tasks[0].step.path
            found.append(Finding(error.code, path, error.message, error.hint, blocking=True))
    made = RenderedPlan(tuple(jobs))
    return made, tuple(dict.fromkeys((*found, *made.findings)))


def _preview_settings(prepared: Prepared, storage: StorageAccess) -> JobSettings:
    """Names of variables and secrets as a run has them; values of neither."""
    request = prepared.request
    return JobSettings(
        run_id=request.run_id,
        run_uri=request.run_uri,
        workflow=prepared.workflow.name,
        workdir="",
        env=storage.env,
        secrets={name: Secret("-") for name in (*storage.secrets, *request.secrets)},
        defaults=prepared.defaults,
    )


def _refusal(test: Callable[[], object]) -> Iterator[Finding]:
    try:
        test()
    except (EngineError, UsageError) as error:
        remedy = "; ".join(
            part
            for part in (f"`{error.next_command}`" * bool(error.next_command), error.hint)
            if part
        )
        yield Finding(error.code, "", error.message, remedy, blocking=True)


def _infra(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    bad = tuple(_refusal(lambda: settings.aim))
    if bad:
        yield from bad
        return
    match settings.aim.cloud:
        case Cloud.KUBERNETES:
            yield from _refusal(lambda: kubeconfig_of(settings, environ))
        case Cloud.SLURM:
            yield from _refusal(lambda: slurm_config_of(settings, environ))
        case Cloud.NEBIUS:
            yield from _refusal(lambda: nebius_folder(environ))


def _store(request: Request, storage: StorageAccess) -> Iterator[Finding]:
    run_uri = request.run_uri
    where = split_uri(run_uri)
    own = rf"(?<![A-Za-z0-9]){re.escape(request.run_id)}(?![A-Za-z0-9])"
    if where.scheme == "s3" and not re.search(own, where.key):
        yield Finding(
            "PREFIX_NOT_RUN_SCOPED",
            "",
            f"the state of every run of this file would lie in {run_uri}",
            "put `{{run.id}}` into `config.prefix`, or give `--store`",
            blocking=True,
        )
    if where.scheme != "s3":
        remedy = "`--store s3://BUCKET/PREFIX/`, or `--var bucket=NAME` where the file has one"
        yield Finding(
            "STORE_NOT_SHARED",
            "",
            f"{run_uri} cannot be reached from other machines",
            remedy if storage.secrets else f"{remedy}; for its credentials {_CREDENTIALS}",
            blocking=True,
        )
    elif not storage.secrets:
        yield Finding(
            "STORAGE_CREDENTIALS",
            "",
            "there are no credentials for the store",
            _CREDENTIALS,
            blocking=True,
        )


def _variables(prepared: Prepared, environ: Mapping[str, str]) -> Iterator[Finding]:
    request = prepared.request
    for name in (n for n in request.secrets if not environ.get(n)):
        yield Finding("MISSING_SECRET", "", f"{name} is not set", f"`export {name}=…`", True)
    for name in (n for n in request.env if n not in environ):
        yield Finding("MISSING_VARIABLE", "", f"{name} is not set", f"`export {name}=…`", True)
