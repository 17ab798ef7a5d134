"""The host of a run: home, storage access, tools, engine and environment, resolved once.

The command line and the SDK both make their hosts here, so that a run means the same from either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from npa.errors import UsageError
from npa.orchestration.runs import Host
from npa.storage import open_store
from npa.target.credentials import StorageAccess, storage_access
from npa.target.environment import (
    child_environment,
    named_secrets,
    named_variables,
    present_environment,
)
from npa.target.home import Home

if TYPE_CHECKING:
    from npa.orchestration.engine import Engine, Finding
    from npa.orchestration.local.engine import LocalEngine
    from npa.orchestration.logs import LogReader
    from npa.orchestration.prepare import Prepared, Request
    from npa.orchestration.skypilot.render_plan import RenderedPlan
    from npa.workflow.tools import Tools

ENGINES = ("local", "skypilot")


def make_host(tools: Tools, environ: Mapping[str, str] | None = None) -> Host:
    """The host for `tools`, without the variables that a run names. Raises UsageError.

    `environ` is by default that of this process.
    """
    variables = present_environment() if environ is None else environ
    home = Home.find(variables)
    storage = storage_access(variables, home)
    return Host(
        home=home,
        storage=storage,
        tools=tools,
        engine=Engines(tools, storage, variables),
        environment=variables,
    )


def host_for(request: Request, tools: Tools, environ: Mapping[str, str] | None = None) -> Host:
    """The host that drives `request`, with the values of the variables and secrets it names.

    Raises UsageError if one of them is not set.
    """
    host = make_host(tools, environ)
    return replace(
        host,
        env=named_variables(request.env, host.environment),
        secrets=named_secrets(request.secrets, host.environment),
    )


class Engines(Struct, frozen=True, eq=False):
    """Makes the engine that a run was sealed for. Raises UsageError and EngineError."""

    tools: Tools
    storage: StorageAccess
    environ: Mapping[str, str]

    def __call__(self, request: Request, home: Home) -> Engine:
        match request.engine:
            case "local":
                return local_engine(request, home)
            case "skypilot":
                from npa.orchestration.skypilot.run_engine import open_run_engine

                return open_run_engine(
                    request,
                    tools=self.tools,
                    storage=open_store(request.run_uri, self.storage.options),
                    environ=self.environ,
                    npa_home=home.path,
                )
            case unknown:
                raise _unknown(unknown)


@contextmanager
def log_reader(host: Host, request: Request) -> Iterator[LogReader]:
    """The reader of a run's logs. Starts no server. Raises UsageError and EngineError."""
    match request.engine:
        case "local":
            yield local_engine(request, host.home).logs
        case "skypilot":
            from npa.orchestration.skypilot.run_engine import run_logs

            with run_logs(request, host.environment, host.home.path) as reader:
                yield reader
        case unknown:
            raise _unknown(unknown)


def missing(host: Host, prepared: Prepared) -> Sequence[Finding]:
    """What can be seen to be missing before anything is started, variables included."""
    if prepared.request.engine != "skypilot":
        return ()
    from npa.orchestration.skypilot import missing as skypilot

    return skypilot.missing(
        prepared,
        tools=host.tools,
        storage=host.storage,
        environ=host.environment,
        npa_home=host.home.path,
    )


def rendered(host: Host, prepared: Prepared) -> RenderedPlan | None:
    """The jobs that the run's plan would launch; None for an engine without documents."""
    if prepared.request.engine != "skypilot":
        return None
    from npa.orchestration.skypilot.missing import render_preview

    return render_preview(prepared, host.tools, host.storage)[0]


def _unknown(engine: str) -> UsageError:
    return UsageError(
        f"engine `{engine}` is not known here",
        not_done="nothing was started",
        hint=f"known engines: {', '.join(ENGINES)}",
    )


def local_engine(request: Request, home: Home) -> LocalEngine:
    """The embedded engine over the job folders of one run, where its submit has put them."""
    from npa.orchestration.local.engine import LocalEngine

    home.make()
    jobs = Path(request.jobs) if request.jobs else home.jobs / request.run_id
    return LocalEngine(jobs, base_env=child_environment())
