"""The host of a command. What it is made of stands in `npa.orchestration.hosts`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npa.cli.spec import tools_of
from npa.orchestration import hosts
from npa.orchestration.runs import Host

if TYPE_CHECKING:
    from npa.orchestration.prepare import Request
    from npa.workflow.tools import Tool


class NoTools:
    """The tools of a command that only reads journals."""

    def get(self, ref: str) -> Tool | None:  # noqa: ARG002
        return None

    def names(self) -> Sequence[str]:
        return ()


def reading_host() -> Host:
    """Enough to find and read runs."""
    return hosts.make_host(NoTools())


def host_for(request: Request) -> Host:
    """The host that drives `request`: its catalogues, and the values of the variables it names.

    Raises UsageError if a variable is not set.
    """
    return hosts.host_for(request, tools_of([Path(path) for path in request.catalogs]))
