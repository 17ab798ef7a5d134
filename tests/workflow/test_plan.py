"""Plans: assumed decisions, both paths as a tree, the public JSON shapes, the limit."""

from __future__ import annotations

import json

import pytest

from npa.workflow.context import Context, make_context
from npa.workflow.graph import Graph, compile_graph
from npa.workflow.meaning import ForeachSpec, GateSpec, LoopSpec, State, TransitionSpec, Workflow
from npa.workflow.plan import (
    PlanTooLarge,
    UnknownAssumption,
    default_assumption,
    make_plan,
    make_plan_tree,
    plan_json,
    tree_lines,
    waves_json,
)
from workflow.hand_made import Catalogue, leaf, workflow


def compiled(made: Workflow) -> tuple[Graph, Context]:
    context = make_context(made, run_id="r1", run_uri="file:///runs/r1/", tools=Catalogue())
    return compile_graph(made), context


def loop_then_branch(count: int = 3) -> Workflow:
    return workflow(
        State(
            "refine",
            sequence=("work", "grade"),
            loop=LoopSpec(count, until="promote_checkpoint"),
            next="route",
        ),
        leaf("work"),
        leaf("grade", writes_decision=True),
        leaf(
            "route",
            transitions=(
                TransitionSpec("publish", when="promote_checkpoint"),
                TransitionSpec("escalate", when="loop_back"),
            ),
        ),
        leaf("publish", terminal=True),
        leaf("escalate", terminal=True),
        config={"decision_uri": "s3://b/gate.json", "bucket": "example-bucket"},
    )


def paths(made: Workflow, assume: str) -> list[str]:
    return [step.path for step in make_plan(*compiled(made), assume).steps]


def test_promotion_is_one_iteration_and_the_promoted_end() -> None:
    assert paths(loop_then_branch(), "promote") == [
        "refine[1]/work",
        "refine[1]/grade",
        "route",
        "publish",
    ]


def test_looping_back_is_the_full_budget_and_the_other_end() -> None:
    found = paths(loop_then_branch(), "loop_back")
    assert found[-2:] == ["route", "escalate"]
    assert found.count("refine[3]/grade") == 1
    assert len(found) == 8


def test_the_default_assumption_is_loop_back_where_anything_branches() -> None:
    assert default_assumption(*compiled(loop_then_branch())) == "loop_back_to_inner_loop"
    assert default_assumption(*compiled(workflow(leaf("a", terminal=True)))) == ""


def test_config_may_set_the_default_assumption() -> None:
    made = workflow(leaf("a", terminal=True), config={"plan_assume_decision": "promote"})
    assert default_assumption(*compiled(made)) == "promote_checkpoint"


def test_an_assumption_outside_the_closed_set_is_refused() -> None:
    with pytest.raises(UnknownAssumption):
        paths(loop_then_branch(), "escalate")


def test_without_an_assumption_the_tree_shows_both_paths() -> None:
    tree = make_plan_tree(*compiled(loop_then_branch(2)))
    lines = tree_lines(tree)
    assert tree.decides
    assert lines == [
        "refine[1]/work",
        "refine[1]/grade",
        "? refine[1]?until (s3://b/gate.json)",
        "- promote_checkpoint:",
        "  route",
        "  ? route?next (s3://b/gate.json)",
        "  - promote_checkpoint:",
        "    publish",
        "    end at 'publish'",
        "  - loop_back_to_inner_loop:",
        "    escalate",
        "    end at 'escalate'",
        "- loop_back_to_inner_loop:",
        "refine[2]/work",
        "refine[2]/grade",
        "? refine[2]?until (s3://b/gate.json)",
        "- promote_checkpoint:",
        "  goes on at route, as above",
        "- loop_back_to_inner_loop:",
        "goes on at route, as above",
    ]


def test_paths_that_meet_again_keep_the_tree_small() -> None:
    """Ten loops of ten rounds have 10^10 paths and about a hundred places."""
    states = []
    for number in range(10):
        following = {"next": f"l{number + 1}"} if number < 9 else {"terminal": True}
        loop = LoopSpec(10, until="promote_checkpoint")
        states.append(State(f"l{number}", sequence=(f"w{number}",), loop=loop, **following))  # type: ignore[arg-type]
        states.append(leaf(f"w{number}", writes_decision=True))
    made = workflow(*states, config={"decision_uri": "s3://b/d"})
    tree = make_plan_tree(*compiled(made))
    assert len(tree.nodes) == 101


def test_a_workflow_without_decisions_is_a_tree_of_one_node() -> None:
    tree = make_plan_tree(*compiled(workflow(leaf("a", next="b"), leaf("b", terminal=True))))
    assert not tree.decides
    assert tree_lines(tree) == ["a", "b", "end at 'b'"]


def test_a_gate_holds_under_promotion_and_not_otherwise() -> None:
    gate = GateSpec("s3://b/m.json", "score", ">", 0.5)
    made = workflow(
        leaf("r", transitions=(TransitionSpec("good", gate=gate),), next="bad"),
        leaf("good", terminal=True),
        leaf("bad", terminal=True),
    )
    assert paths(made, "promote") == ["r", "good"]
    assert paths(made, "loop_back") == ["r", "bad"]


def test_a_plan_of_too_many_steps_is_refused() -> None:
    made = workflow(leaf("train", loop=LoopSpec(50_001), terminal=True))
    with pytest.raises(PlanTooLarge):
        paths(made, "")
    with pytest.raises(PlanTooLarge):
        make_plan_tree(*compiled(made))


def test_a_fan_out_over_a_manifest_is_planned_as_one_step_and_said_so() -> None:
    made = workflow(
        leaf("train", foreach=ForeachSpec(None, "s3://b/items.json", "shard", 8), next="end"),
        leaf("end", terminal=True),
    )
    graph, context = compiled(made)
    plan = make_plan(graph, context)
    document = plan_json(plan, context)
    assert [step.path for step in plan.steps] == ["train[*]", "end"]
    assert document["unexpanded"] == [
        {"path": "train[*]", "uri": "s3://b/items.json", "max_items": 8}
    ]
    steps = document["steps"]
    assert isinstance(steps, list)
    assert [step.get("unexpanded", False) for step in steps] == [True, False]


@pytest.mark.req("B-01")
def test_the_public_plan_shape_is_kept() -> None:
    graph, context = compiled(loop_then_branch())
    document = plan_json(make_plan(graph, context, "promote"), context)
    public = {"workflow", "api_version", "initial", "assume_decision", "steps"}
    assert public <= set(document)
    assert document["assume_decision"] == "promote_checkpoint"
    assert document["bucket_is_placeholder"] is True
    steps = document["steps"]
    assert isinstance(steps, list)
    public_step = {
        "state",
        "iteration",
        "loop_label",
        "argv",
        "shell",
        "tool_ref",
        "resources",
        "resources_profile",
        "outputs",
        "inputs",
        "group",
    }
    assert all(public_step <= set(step) for step in steps)
    assert (steps[0]["state"], steps[0]["loop_label"], steps[0]["iteration"]) == (
        "work",
        "refine",
        None,
    )
    json.dumps(document, sort_keys=True)


def test_the_public_wave_shape_is_kept_and_batches_of_a_group_are_one_wave() -> None:
    made = workflow(
        State("sweep", parallel=("a", "b", "c"), max_concurrency=2, next="best"),
        leaf("a"),
        leaf("b"),
        leaf("c"),
        leaf("best", terminal=True),
    )
    document = waves_json(make_plan(*compiled(made)))
    assert (document["wave_count"], document["parallel_waves"]) == (2, 1)
    waves = document["waves"]
    assert isinstance(waves, list)
    first = waves[0]
    assert (first["index"], first["kind"], first["group"], first["name"]) == (
        1,
        "parallel",
        "sweep",
        "sweep",
    )
    assert (first["max_concurrency"], first["batches"]) == (2, 2)
    assert [step["state"] for step in first["steps"]] == ["a", "b", "c"]
    assert waves[1]["kind"] == "serial"


def test_iterations_of_a_looped_group_are_waves_of_their_own() -> None:
    made = workflow(
        State("l", sequence=("fan",), loop=LoopSpec(2), terminal=True),
        State("fan", parallel=("a", "b")),
        leaf("a"),
        leaf("b"),
    )
    assert waves_json(make_plan(*compiled(made)))["wave_count"] == 2
