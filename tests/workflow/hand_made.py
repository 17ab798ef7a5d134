"""Workflows made by hand for tests of the graph, the walk and the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from npa.workflow.graph import compile_graph
from npa.workflow.meaning import IoSpec, RunBlock, State, Workflow
from npa.workflow.tools import Tool
from npa.workflow.walk import Ask, AskDecision, AskItems, Batch, Walk, make_context


class Catalogue:
    """A catalogue that holds exactly these tools."""

    def __init__(self, *tools: Tool) -> None:
        self._tools = {tool.ref: tool for tool in tools}

    def get(self, ref: str) -> Tool | None:
        return self._tools.get(ref)

    def names(self) -> Sequence[str]:
        return tuple(self._tools)


def leaf(
    name: str, *, outputs: Sequence[str | IoSpec] = (), text: str = "", **fields: object
) -> State:
    """A state with a shell command."""
    run = RunBlock(shell=text or f"echo {name}")
    declared = tuple(IoSpec(io) if isinstance(io, str) else io for io in outputs)
    return State(name, run=run, outputs=declared, **fields)  # type: ignore[arg-type]


def workflow(
    *states: State,
    config: Mapping[str, object] | None = None,
    resources: Mapping[str, Mapping[str, object]] | None = None,
) -> Workflow:
    """A workflow that starts at the first state."""
    return Workflow(
        api_version="npa.workflow/v0.0.1",
        name="made",
        description="",
        config={"bucket": "b"} if config is None else config,
        run={},
        resources=resources or {},
        initial=states[0].name,
        states={state.name: state for state in states},
    )


def walk_of(
    *states: State,
    config: Mapping[str, object] | None = None,
    resources: Mapping[str, Mapping[str, object]] | None = None,
    tools: Sequence[Tool] = (),
) -> Walk:
    """A fresh walk over these states."""
    made = workflow(*states, config=config, resources=resources)
    context = make_context(
        made, run_id="run-1", run_uri="file:///runs/run-1", tools=Catalogue(*tools)
    )
    return Walk(compile_graph(made), context)


def open_paths(walk: Walk) -> list[str]:
    """Paths of all open steps."""
    return [s.path for ask in walk.frontier() if isinstance(ask, Batch) for s in ask.steps]


def questions(walk: Walk) -> list[AskDecision]:
    """Open questions for decisions."""
    return [ask for ask in walk.frontier() if isinstance(ask, AskDecision)]


def run_all(
    walk: Walk,
    decide: Callable[[AskDecision], str] = lambda _: "promote_checkpoint",
    items: Callable[[AskItems], tuple[str, ...]] = lambda _: ("a", "b"),
    steps_max: int = 100_000,
) -> list[str]:
    """Answer every ask until the walk ends; the step paths in the order in which they opened."""
    paths: list[str] = []
    while walk.ended is None:
        asks: tuple[Ask, ...] = walk.take_new()
        assert asks, "the walk asks for nothing and has not ended"
        for ask in asks:
            if isinstance(ask, AskDecision):
                walk.decided(ask.key, decide(ask))
            elif isinstance(ask, AskItems):
                walk.expanded(ask.key, items(ask))
            else:
                for step in ask.steps:
                    paths.append(step.path)
                    assert len(paths) <= steps_max
                    walk.finished(step.path)
    return paths
