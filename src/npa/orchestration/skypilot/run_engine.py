"""The engine of one run: its session, its rendering and its logs, from the run's request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from npa.catalog.loader import Catalog
from npa.errors import UsageError
from npa.orchestration import claims
from npa.orchestration.engine import Job
from npa.orchestration.skypilot import staging
from npa.orchestration.skypilot.aside import aside
from npa.orchestration.skypilot.claim_evidence import ClaimEvidence
from npa.orchestration.skypilot.configs import (
    Controller,
    kubernetes_config,
    nebius_config,
    slurm_config,
)
from npa.orchestration.skypilot.connect import bridge_of, connect
from npa.orchestration.skypilot.kept_logs import KeptLogs
from npa.orchestration.skypilot.launches import Launches
from npa.orchestration.skypilot.log_reader import SkyPilotLogs
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.record import Kind
from npa.orchestration.skypilot.render import Rendered
from npa.orchestration.skypilot.render_raw import render_for
from npa.orchestration.skypilot.resolve import resolve
from npa.orchestration.skypilot.session import Session
from npa.orchestration.skypilot.settings import Cloud, Settings
from npa.orchestration.skypilot.spec import SessionSpec
from npa.storage import Storage

if TYPE_CHECKING:
    from npa.orchestration.prepare import Request
    from npa.orchestration.skypilot.engine import SkyPilotEngine
    from npa.workflow.tools import Tools


def settings_of(request: Request) -> Settings:
    return Settings.from_json(request.engine_options)


def open_run_engine(
    request: Request,
    *,
    tools: Tools,
    storage: Storage,
    environ: Mapping[str, str],
    npa_home: Path,
) -> SkyPilotEngine:
    """The engine of a run. Starts and writes nothing. Raises EngineError and UsageError."""
    settings = settings_of(request)
    spec = session_spec(settings, environ, npa_home)
    catalog = tools if isinstance(tools, Catalog) else Catalog.built_in()

    def render(job: Job) -> Rendered:
        options = options_of(settings, request.run_uri, spec, job.workdir)
        return render_for(request, job, catalog, options)

    engine = connect(spec, render, (settings.aim.infra,))
    engine.verdict_on = ClaimEvidence(storage, spec.user_id)
    return engine


def session_spec(settings: Settings, environ: Mapping[str, str], npa_home: Path) -> SessionSpec:
    """What the run's API server is started with. Raises EngineError and UsageError."""
    found = resolve(settings.sky_bin, environ, npa_home)
    aim = settings.aim
    kubeconfig: Path | None = None
    links: dict[str, Path] = {}
    match aim.cloud:
        case Cloud.KUBERNETES:
            kubeconfig = kubeconfig_of(settings, environ)
            config = kubernetes_config(aim.name, Controller(settings.controller))
        case Cloud.SLURM:
            links[".slurm/config"] = slurm_config_of(settings, environ)
            config = slurm_config()
        case Cloud.NEBIUS:
            links[".nebius"] = nebius_folder(environ)
            config = nebius_config()
    return SessionSpec(
        root=settings.root,
        kind=Kind.RUN,
        interpreter=found.interpreter,
        env=environ,
        sky_config=config,
        links=links,
        kubeconfig=kubeconfig,
        context=aim.name if aim.cloud is Cloud.KUBERNETES else "",
    )


def options_of(
    settings: Settings, run_uri: str, spec: SessionSpec | None, source_uri: str
) -> RenderOptions:
    """What the renderer is told. `source_uri` is the staged archive's; without `spec` (a plan)
    the provider of claims stays unnamed."""
    return RenderOptions(
        images=settings.images,
        registry=settings.registry,
        infra=settings.infra,
        source=staging.staged(source_uri),
        own_package=staging.own_staged(run_uri),
        programs_uri=f"{run_uri}{staging.PROGRAMS_FOLDER}",
        claims_uri=f"{run_uri}{claims.FOLDER}",
        provider=spec.user_id if spec is not None else "",
        accept_eula=settings.accept_eula,
    )


@contextmanager
def run_logs(request: Request, environ: Mapping[str, str], npa_home: Path) -> Iterator[KeptLogs]:
    """The reader of a run's logs: kept copies, else the session's server. Starts no server."""
    settings = settings_of(request)
    launches = Launches(settings.root / "launches")
    kept = KeptLogs(settings.root / "logs", launches, time.time)
    if kept.complete():
        yield kept  # nothing is left to ask the server for
        return
    spec = session_spec(settings, environ, npa_home)
    bridge = bridge_of(spec)
    session = Session(spec)
    with aside(kept.folder) as own:

        def prove() -> None:
            session.prove()
            own.make()

        try:
            live = SkyPilotLogs(bridge, launches, own.path, time.time)
            yield KeptLogs(kept.folder, launches, time.time, live, prove)
        finally:
            bridge.close()  # before its copies go


# -- what the clouds need of this machine --------------------------------------------------------


def kubeconfig_of(settings: Settings, environ: Mapping[str, str]) -> Path:
    """The one kubeconfig, which has the context. Raises UsageError."""
    named = (
        settings.kubeconfig or environ.get("KUBECONFIG", "") or _in_home(environ, ".kube/config")
    )
    path = Path(named)
    if ":" in named or not path.is_file():
        raise UsageError(
            f"`{named}` is not one kubeconfig file",
            not_done="nothing was started",
            hint="name the one to use with `--kubeconfig`",
            code="KUBECONFIG",
        )
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        contexts = [str(entry["name"]) for entry in document["contexts"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} cannot be read as a kubeconfig",
            hint=type(error).__name__,
            code="KUBECONFIG",
        ) from error
    if settings.aim.name not in contexts:
        raise UsageError(
            f"{path} has no context `{settings.aim.name}`",
            not_done="nothing was started",
            hint=f"it has: {', '.join(contexts) or 'none'}",
            code="KUBECONFIG",
        )
    return path.absolute()


def slurm_config_of(settings: Settings, environ: Mapping[str, str]) -> Path:
    """The ssh configuration of Slurm clusters, which names the cluster. Raises UsageError."""
    path = Path(settings.slurm_config or _in_home(environ, ".slurm/config"))
    try:
        words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise UsageError(
            f"there is no Slurm configuration at {path}",
            not_done="nothing was started",
            hint="name the ssh configuration of its login node with `--slurm-config`",
            code="SLURM_CONFIG",
        ) from error
    hosts = [host for line in words if line[:1] == ["Host"] for host in line[1:]]
    if settings.aim.name not in hosts:
        raise UsageError(
            f"{path} has no `Host {settings.aim.name}`",
            not_done="nothing was started",
            hint=f"it has: {', '.join(hosts) or 'none'}",
            code="SLURM_CONFIG",
        )
    return path.absolute()


def nebius_folder(environ: Mapping[str, str]) -> Path:
    """Where SkyPilot finds the credentials of Nebius. Raises UsageError."""
    path = Path(_in_home(environ, ".nebius"))
    if not path.is_dir():
        raise UsageError(
            f"there are no credentials of Nebius at {path}",
            not_done="nothing was started",
            hint="`nebius profile create` makes them",
            code="NEBIUS_CREDENTIALS",
        )
    return path


def _in_home(environ: Mapping[str, str], name: str) -> str:
    return str(Path(environ.get("HOME") or "/") / name)
