"""Compiling: kinds of nodes, labels, writers, and what cannot be a graph."""

from __future__ import annotations

import pytest

from npa.workflow.graph import EdgeKind, Graph, GraphError, NodeKind, compile_graph
from npa.workflow.meaning import ForeachSpec, LoopSpec, State, TransitionSpec
from workflow.hand_made import leaf, workflow


def kinds(graph: Graph, name: str) -> list[NodeKind]:
    """Nodes of a state from outside in."""
    number = graph.index[name]
    return [node.kind for node in reversed(graph.nodes) if node.state == number]


def test_a_state_compiles_to_its_layers_from_outside_in() -> None:
    looped = leaf(
        "a",
        loop=LoopSpec(2),
        foreach=ForeachSpec(("x",), "", "it", 8),
        terminal=True,
    )
    graph = compile_graph(workflow(looped))
    assert kinds(graph, "a") == [NodeKind.FOREACH, NodeKind.LOOP, NodeKind.STEP]
    assert graph.nodes[graph.entry[0]].kind is NodeKind.FOREACH


@pytest.mark.parametrize(
    ("member", "mode", "kind"),
    [
        (leaf("m"), "group", NodeKind.GROUP),
        (leaf("m"), "window", NodeKind.WINDOW),
        (State("m", sequence=("x",)), "group", NodeKind.WINDOW),
        (leaf("m", loop=LoopSpec(2)), "group", NodeKind.WINDOW),
    ],
)
def test_a_group_launches_together_only_if_every_member_is_one_step(
    member: State, mode: str, kind: NodeKind
) -> None:
    fan = State("fan", parallel=("m", "x"), parallel_mode=mode, terminal=True)  # type: ignore[arg-type]
    assert kinds(compile_graph(workflow(fan, member, leaf("x"))), "fan") == [kind]


@pytest.mark.parametrize(
    "states",
    [
        (State("a", sequence=("a",)),),
        (State("a", sequence=("b",)), State("b", parallel=("a",))),
    ],
)
def test_a_group_that_contains_itself_is_refused(states: tuple[State, ...]) -> None:
    with pytest.raises(GraphError, match="contains itself"):
        compile_graph(workflow(*states))


@pytest.mark.parametrize(
    "state",
    [
        leaf("a", next="nowhere"),
        leaf("a", transitions=(TransitionSpec("nowhere"),)),
        State("a", sequence=("nowhere",)),
    ],
)
def test_a_name_without_a_state_is_refused(state: State) -> None:
    with pytest.raises(GraphError, match="'nowhere'"):
        compile_graph(workflow(state))


def test_the_decision_writer_is_the_last_member_that_writes() -> None:
    graph = compile_graph(
        workflow(
            State(
                "l",
                sequence=("a", "b", "inner", "c"),
                loop=LoopSpec(2, until="promote_checkpoint"),
                terminal=True,
            ),
            leaf("a", writes_decision=True),
            leaf("b", writes_decision=True),
            State("inner", sequence=("deep",)),
            leaf("deep", writes_decision=True),
            leaf("c"),
        )
    )
    assert graph.writers == {graph.index["l"]: graph.index["b"]}


def test_a_nested_writer_counts_only_if_no_member_writes() -> None:
    graph = compile_graph(
        workflow(
            State("l", sequence=("in",), loop=LoopSpec(2, until="loop_back"), terminal=True),
            State("in", sequence=("deep",)),
            leaf("deep", writes_decision=True),
        )
    )
    assert graph.writers == {graph.index["l"]: graph.index["deep"]}


def test_edges_tell_members_and_ways_on() -> None:
    graph = compile_graph(
        workflow(
            State("g", sequence=("a",), next="r"),
            leaf("a"),
            leaf("r", transitions=(TransitionSpec("e", when="loop_back", if_="config.f"),)),
            leaf("e", terminal=True),
        )
    )
    told = [
        (graph.states[e.source].name, graph.states[e.target].name, e.kind, e.label)
        for e in graph.edges
    ]
    assert told == [
        ("g", "a", EdgeKind.MEMBER, ""),
        ("g", "r", EdgeKind.NEXT, ""),
        ("r", "e", EdgeKind.GOTO, "loop_back and if config.f"),
    ]
