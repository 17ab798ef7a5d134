"""What the sealed file of a run says of it beyond its journal: its states, and what is ahead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npa.errors import NpaError

if TYPE_CHECKING:
    from npa.orchestration.prepare import Request
    from npa.orchestration.runs import OpenRun
    from npa.views.planned import Planned
    from npa.workflow.meaning import Workflow
    from npa.workflow.tools import Tools


def planned_of(run: OpenRun) -> Planned | None:
    """What is planned and has not started; None when it cannot be told, or nothing is to come."""
    state = run.state
    if state.lifecycle.over or state.cancel is not None:
        return None
    found = _sealed(run.request)
    if found is None:
        return None
    from npa.views.planned import planned
    from npa.workflow.context import make_context
    from npa.workflow.graph import compile_graph
    from npa.workflow.walk import Walk

    workflow, tools = found
    try:
        context = make_context(
            workflow, run_id=run.place.run_id, run_uri=run.place.run_uri, tools=tools
        )
        return planned(Walk(compile_graph(workflow), context), state)
    except NpaError:  # a look goes on without it
        return None


def states_of(run: OpenRun) -> tuple[str, ...]:
    """Names of the states of the run's file; none if it cannot be read any more."""
    found = _sealed(run.request)
    return tuple(found[0].states) if found is not None else ()


def _sealed(request: Request) -> tuple[Workflow, Tools] | None:
    from npa.cli.spec import tools_of
    from npa.workflow.load import load_text

    try:
        tools = tools_of([Path(path) for path in request.catalogs])
    except NpaError:  # the catalogue of then is gone or has changed
        return None
    loaded = load_text(
        request.spec_text, filename=request.spec_path, tools=tools, overrides=request.overrides
    )
    return None if loaded.workflow is None else (loaded.workflow, tools)
