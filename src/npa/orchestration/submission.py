"""From what a caller asks for to a request, and the engine's word on it: before anything starts.

The command line and `submit_workflow` both come through here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npa.errors import EngineError, UsageError
from npa.orchestration import registry
from npa.orchestration.hosts import missing
from npa.orchestration.prepare import Request, run_root
from npa.orchestration.raw_task import is_raw
from npa.orchestration.runs import refuse_placeholders, settle, spec_folder, stage, steps_of
from npa.target.home import Home

if TYPE_CHECKING:
    from npa.orchestration.engine import Finding
    from npa.orchestration.prepare import Prepared
    from npa.orchestration.runs import Host
    from npa.workflow.meaning import Workflow
    from npa.workflow.tools import Tools

SESSIONS = "skypilot/sessions"  # in npa's home: the folder of a run's API server


def make_request(
    spec: Path,
    text: str,
    workflow: Workflow,
    tools: Tools,
    *,
    home: Home,
    engine: str,
    run_id: str | None = None,
    store: str = "",
    overrides: Mapping[str, str] | None = None,
    policy: Mapping[str, object] | None = None,
    stage_source: bool = True,
    secrets: Sequence[str] = (),
    env: Sequence[str] = (),
    catalogs: Sequence[Path] = (),
    engine_options: Mapping[str, object] | None = None,
) -> Request:
    """The request for one run of `spec`, whose text was loaded as `workflow`. No effects.

    Without `run_id` one is made; `store` is where runs are kept, "" for what the file or the home
    says. Secrets that the file's states ask for are added to `secrets`. Raises UsageError.
    """
    if engine != "skypilot" and is_raw(text):
        raise UsageError(
            f"{spec} is a SkyPilot file, which only SkyPilot runs",
            not_done="nothing was started",
            next_command=f"npa workflow submit {spec} --engine skypilot",
        )
    chosen = registry.check_run_id(
        registry.new_run_id(workflow.name, time.time()) if run_id is None else run_id
    )
    default = registry.default_run_uri(home, chosen)
    return Request(
        spec_path=str(spec.resolve()),
        spec_text=text,
        run_id=chosen,
        run_uri=run_root(workflow, chosen, tools, store=store, default=default),
        engine=engine,
        overrides=dict(overrides or {}),
        policy=dict(policy or {}),
        source=spec_folder(spec) if stage_source else "",
        jobs=str(home.jobs / chosen) if engine == "local" else "",
        secrets=tuple(sorted({*secrets, *declared_secrets(workflow)})),
        env=tuple(env),
        catalogs=tuple(str(path.resolve()) for path in catalogs),
        engine_options=_engine_options(engine, engine_options or {}, home, chosen),
    )


def _engine_options(
    engine: str, options: Mapping[str, object], home: Home, run_id: str
) -> dict[str, object]:
    """With where the run's session is kept. Raises UsageError for options of another engine."""
    if engine == "skypilot":
        return {**options, "session": str(home.path / SESSIONS / run_id)}
    if options:
        raise UsageError(
            f"engine `{engine}` has no option `{min(options)}`",
            not_done="nothing was started",
            hint="it is for `--engine skypilot`",
        )
    return {}


def declared_secrets(workflow: Workflow) -> set[str]:
    """Names of the secrets that the file's states ask for."""
    return {name for state in workflow.states.values() for name in state.secrets}


def findings(host: Host, prepared: Prepared) -> Sequence[Finding]:
    """What the engine's preflight says of every step that could run.

    What it started is stopped again if the run cannot begin.
    """
    engine = host.engine(prepared.request, host.home)
    try:
        found = engine.preflight(steps_of(prepared))
        if any(finding.blocking for finding in found):
            left = settle(engine, None)
            if left:
                found = (*found, _left(prepared.request.run_id, left))
        return found
    finally:
        engine.close()


def _left(run_id: str, said: str) -> Finding:
    from npa.orchestration.engine import Finding

    remedy = f"`npa skypilot stop {run_id}` ends it"
    return Finding("SESSION_LEFT", "", f"its API server was not stopped: {said}", remedy, True)


def refuse_incomplete(request: Request, prepared: Prepared, host: Host) -> None:
    """Before any value of a variable is taken: name everything that is missing, in one error.

    The source then goes to the run's store, so that a store that takes nothing is found before
    any server is started. Raises EngineError (PREFLIGHT), UsageError, StorageError.
    """
    if request.engine != "skypilot":
        return
    refuse(missing(host, prepared), request.spec_path)
    refuse_placeholders(prepared)
    stage(host, request, host.open_store(request.run_uri), prepared.tree)


def finding_text(finding: Finding) -> str:
    """A finding in one line: where, what, its code, and the way out."""
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return f"{finding.path or 'the run'}: {finding.message} ({finding.code}){remedy}"


def refuse(found: Sequence[Finding], spec: str) -> None:
    """Raise one error that names every blocking finding, each with its way out."""
    blocking = [finding for finding in found if finding.blocking]
    if not blocking:
        return
    lines = [f"  {finding_text(finding)}" for finding in blocking]
    count = f"{len(blocking)} reason{'s' if len(blocking) != 1 else ''}"
    raise EngineError(
        f"{spec} cannot run here, for {count}\n" + "\n".join(lines),
        not_done="nothing was started",
        code="PREFLIGHT",
    )
