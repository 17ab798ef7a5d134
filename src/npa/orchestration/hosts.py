"""The host of a run: home, storage access, tools, engine and environment, resolved once.

The command line and the SDK both make their hosts here, so that a run means the same from either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from npa.errors import EngineError, UsageError
from npa.orchestration.runs import Host
from npa.target.credentials import storage_access
from npa.target.environment import (
    child_environment,
    named_secrets,
    named_variables,
    present_environment,
)
from npa.target.home import Home

if TYPE_CHECKING:
    from npa.orchestration.engine import Engine
    from npa.orchestration.local.engine import LocalEngine
    from npa.orchestration.prepare import Request
    from npa.workflow.tools import Tools

ENGINES = ("local", "skypilot")


def make_host(tools: Tools, environ: Mapping[str, str] | None = None) -> Host:
    """The host for `tools`, without the variables that a run names. Raises UsageError.

    `environ` is by default that of this process.
    """
    variables = present_environment() if environ is None else environ
    home = Home.find(variables)
    return Host(
        home=home,
        storage=storage_access(variables, home),
        tools=tools,
        engine=open_engine,
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


def open_engine(request: Request, home: Home) -> Engine:
    """The engine that a run was sealed for. Raises UsageError and EngineError."""
    match request.engine:
        case "local":
            return local_engine(request, home)
        case "skypilot":
            raise EngineError(
                "runs cannot be driven on `skypilot` from here: nothing makes its engine from a "
                "run's request (the session of its cluster and the rendering of its jobs)",
                not_done="nothing was started",
                hint="`--engine local` runs the same file on this machine",
                code="ENGINE_NOT_CONNECTED",
            )
        case unknown:
            raise UsageError(
                f"engine `{unknown}` is not known here",
                not_done="nothing was started",
                hint=f"known engines: {', '.join(ENGINES)}",
            )


def local_engine(request: Request, home: Home) -> LocalEngine:
    """The embedded engine over the job folders of one run, where its submit has put them."""
    from npa.orchestration.local.engine import LocalEngine

    home.make()
    jobs = Path(request.jobs) if request.jobs else home.jobs / request.run_id
    return LocalEngine(jobs, base_env=child_environment())
