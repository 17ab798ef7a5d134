"""The host of a command: home, storage access, tools, engine and environment, resolved once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from npa.cli.spec import tools_of
from npa.errors import UsageError
from npa.orchestration.runs import Host
from npa.target.credentials import storage_access
from npa.target.environment import child_environment, named_secrets
from npa.target.home import Home

if TYPE_CHECKING:
    from npa.orchestration.engine import Engine
    from npa.orchestration.local.engine import LocalEngine
    from npa.orchestration.prepare import Request
    from npa.workflow.tools import Tool, Tools

ENGINES = ("local",)


class NoTools:
    """The tools of a command that only reads journals."""

    def get(self, ref: str) -> Tool | None:  # noqa: ARG002
        return None

    def names(self) -> Sequence[str]:
        return ()


def reading_host() -> Host:
    """Enough to find and read runs."""
    return make_host(NoTools())


def make_host(tools: Tools) -> Host:
    """The host for `tools`, without the variables that a run names. Raises UsageError."""
    home = Home.find()
    return Host(
        home=home,
        storage=storage_access(home=home),
        tools=tools,
        engine=open_engine,
        environment=os.environ,
    )


def host_for(request: Request) -> Host:
    """The host that drives `request`: its catalogues, and the values of the variables it names.

    Raises UsageError if a variable is not set.
    """
    return replace(
        make_host(tools_of([Path(path) for path in request.catalogs])),
        env=_variables(request.env),
        secrets=named_secrets(request.secrets),
    )


def _variables(names: Sequence[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UsageError(
            f"these variables are not set: {', '.join(missing)}",
            not_done="nothing was started",
            hint="`--env NAME` hands a variable of this shell to every task",
        )
    return {name: os.environ[name] for name in names}


def open_engine(request: Request, home: Home) -> Engine:
    """The engine that a run was sealed for. Raises UsageError and EngineError."""
    if request.engine == "local":
        return local_engine(request.run_id, home)
    raise UsageError(
        f"engine `{request.engine}` is not known here",
        not_done="nothing was started",
        hint=f"known engines: {', '.join(ENGINES)}",
    )


def local_engine(run_id: str, home: Home) -> LocalEngine:
    """The embedded engine over the job folders of one run."""
    from npa.orchestration.local.engine import LocalEngine

    home.make()
    return LocalEngine(home.jobs / run_id, base_env=child_environment())
