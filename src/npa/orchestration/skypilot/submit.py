"""`submit_workflow`: start a pipeline from a Python program and wait for how it ended.

    from npa.orchestration.skypilot import submit_workflow

    result = submit_workflow("pipeline.yaml", engine="local", overrides={"epochs": "5"})
    print(result.status, result.outputs)

It is what `npa workbench workflow submit` does, without a terminal: the same checks in the same
order, one journal, the same guarantees. A run that it started is seen by `status`, `logs`, `cancel`
and `resume` as any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from npa.catalog.loader import Catalog
from npa.errors import UsageError
from npa.orchestration.driver import Ending, Outcome, Snapshot
from npa.orchestration.hosts import host_for, make_host
from npa.orchestration.prepare import InvalidWorkflow, Prepared, Request, prepare
from npa.orchestration.raw_task import read_raw, workflow_text
from npa.orchestration.runs import Host, OpenRun, artifacts_of, create, make_drive
from npa.orchestration.submission import findings, make_request, refuse, refuse_incomplete
from npa.target.environment import present_environment
from npa.target.home import Home
from npa.workflow.load import load_text
from npa.workflow.overrides import with_misfits

EngineName = Literal["skypilot", "local"]
STATUS: Mapping[Ending, str] = {
    Ending.COMPLETED: "succeeded",
    Ending.FAILED: "failed",
    Ending.CANCELLED: "cancelled",
    Ending.HELD: "held",
    Ending.SUPERSEDED: "superseded",
    Ending.STOPPED: "left",
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    `status` is succeeded, failed, cancelled, held, superseded or left; only the first means that
    the run is complete. `steps` maps step path to how its last attempt ended; `outputs` maps step
    path to the URIs of its validated outputs. `error` and `error_code` say why a run failed,
    `holds` what a held run waits for (subject -> reason). `seconds` is from its begin to its end.
    `left` says what of the run's API server stayed behind ("" for nothing); `npa skypilot stop RUN`
    ends it.
    """

    run_id: str
    run_uri: str
    workflow: str
    status: str
    terminal: str = ""
    error: str = ""
    error_code: str = ""
    steps: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    holds: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    left: str = ""

    @property
    def succeeded(self) -> bool:
        return self.status == STATUS[Ending.COMPLETED]

    def to_json(self) -> dict[str, object]:
        """Plain data for one JSON document."""
        return asdict(self)


def submit_workflow(
    spec: Path | str,
    *,
    engine: EngineName = "skypilot",
    run_id: str | None = None,
    overrides: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
    env: Sequence[str] = (),
    catalogs: Sequence[Path | str] = (),
    store: str = "",
    retries: int = 0,
    max_infrastructure_recoveries: int = 1,
    max_wait_seconds: float = 0.0,
    max_concurrency: int = 0,
    assume_decision: str = "",
    stage_source: bool = True,
    infra: str = "",
    images: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    observer: Callable[[Snapshot], None] = lambda _snapshot: None,
) -> RunResult:
    """Check `spec`, begin a run of it, drive the run to its end, and return how it ended.

    `overrides` set config keys of the file. `secrets` and `env` are names of variables that are
    handed to the tasks; only the names are recorded. `catalogs` are the user's own tools. `store`
    says where runs are kept ("" for what the file or npa's home says). `retries` pays for payload
    failures and `max_infrastructure_recoveries` for the machine's; `max_wait_seconds` is a deadline
    of each attempt (0: none). `infra` says where SkyPilot runs tasks (`k8s/CONTEXT`,
    `slurm/CLUSTER`, `nebius`), `images` which image a tool gets (`*` for all). `environ` is by
    default that of this process, and is never changed.

    A run that fails, is held or cancelled is a result, not an error. Raises, before anything is
    launched: InvalidWorkflow (with all problems of the file), UsageError (a value that cannot be
    used, a run ID that exists), EngineError (the engine cannot run it; code PREFLIGHT names every
    reason), StorageError. While it drives: DrivenElsewhere, JournalCorrupt, StorageError.
    """
    variables = present_environment() if environ is None else environ
    prepared, host = _prepared(
        Path(spec),
        engine,
        run_id=run_id,
        overrides=dict(overrides or {}),
        policy={
            "retries": retries,
            "recoveries": max_infrastructure_recoveries,
            "max_wait_seconds": max_wait_seconds,
            "max_concurrency": max_concurrency,
            "assume_decision": assume_decision,
        },
        secrets=secrets,
        env=env,
        catalogs=[Path(path) for path in catalogs],
        store=store,
        stage_source=stage_source,
        engine_options={**({"infra": infra} if infra else {}), **_images(images)},
        environ=variables,
    )
    refuse(findings(host, prepared), prepared.request.spec_path)
    run = create(host, prepared)
    drive = make_drive(host, run, observer=observer, prepared=prepared)
    outcome = drive.run()
    run.state = drive.driver.state
    return _result(run, outcome, drive.left)


def _prepared(
    spec: Path,
    engine: EngineName,
    *,
    run_id: str | None,
    overrides: Mapping[str, str],
    policy: Mapping[str, object],
    secrets: Sequence[str],
    env: Sequence[str],
    catalogs: Sequence[Path],
    store: str,
    stage_source: bool,
    engine_options: Mapping[str, object],
    environ: Mapping[str, str],
) -> tuple[Prepared, Host]:
    tools = Catalog.load(*catalogs)
    text = _read(spec)
    whole = workflow_text(text, str(spec))
    if whole is not text and not read_raw(text, str(spec)).staged:
        stage_source = False
    loaded = load_text(whole, filename=str(spec), tools=tools, overrides=overrides)
    loaded = with_misfits(loaded, overrides)
    if loaded.workflow is None:
        raise InvalidWorkflow(loaded.diagnostics, str(spec), text)
    request: Request = make_request(
        spec,
        text,
        loaded.workflow,
        tools,
        home=Home.find(environ),
        engine=engine,
        run_id=run_id,
        store=store,
        overrides=overrides,
        policy=policy,
        stage_source=stage_source,
        secrets=secrets,
        env=env,
        catalogs=catalogs,
        engine_options=engine_options,
    )
    prepared = prepare(request, tools, environment=environ)
    refuse_incomplete(request, prepared, make_host(tools, environ))
    return prepared, host_for(request, tools, environ)


def _images(images: Mapping[str, str] | None) -> Mapping[str, object]:
    return {"images": dict(images)} if images else {}


def _read(spec: Path) -> str:
    try:
        return spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) and error.errno else "it is not UTF-8"
        raise UsageError(
            f"`{os.fspath(spec)}` cannot be read: {said}", not_done="nothing was started"
        ) from error


def _result(run: OpenRun, outcome: Outcome, left: str) -> RunResult:
    state = run.state
    outputs: dict[str, tuple[str, ...]] = {}
    for path, artifact, _, _ in artifacts_of(state):
        outputs[path] = (*outputs.get(path, ()), artifact.uri)
    failure = state.failure
    return RunResult(
        run_id=run.place.run_id,
        run_uri=run.place.run_uri,
        workflow=run.place.workflow,
        status=STATUS[outcome.ending],
        terminal=state.terminal,
        error=failure.reason if failure else "",
        error_code=failure.code if failure else "",
        steps={
            path: attempt.end.members[path].result.value if attempt.end else attempt.stage.value
            for path, attempt in state.latest.items()
        },
        outputs=outputs,
        holds={subject: f"{hold.reason} ({hold.code})" for subject, hold in outcome.holds.items()},
        seconds=round(state.at - state.created_at, 3),
        left=left,
    )
