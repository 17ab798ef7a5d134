"""Steps: what a state, its place and the run resolve to."""

from __future__ import annotations

import copy
import json

import pytest

from npa.workflow.context import Overlay, make_context
from npa.workflow.meaning import (
    ForeachSpec,
    IoSpec,
    LoopSpec,
    RunBlock,
    State,
    TransitionSpec,
    TriggerSpec,
)
from npa.workflow.step import Artifact, Checkpoint, Command, Retry, Step, Trigger
from npa.workflow.tokens import ConfigUnresolvable
from npa.workflow.tools import Tool
from npa.workflow.walk import Batch, Ended, Walk
from workflow.hand_made import Catalogue, leaf, open_paths, walk_of, workflow


def open_steps(walk: Walk) -> dict[str, Step]:
    return {s.path: s for ask in walk.frontier() if isinstance(ask, Batch) for s in ask.steps}


def only_step(*states: State, **fields: object) -> Step:
    (step,) = open_steps(walk_of(*states, **fields)).values()  # type: ignore[arg-type]
    return step


def test_every_field_of_a_state_is_resolved_into_its_step() -> None:
    state = State(
        "train",
        run=RunBlock(argv=("train", "--lr", "{{config.lr}}"), setup="echo {{run.id}}"),
        inputs=(IoSpec("{{config.data}}", "in.v1"),),
        outputs=(IoSpec("{{run.uri}}out/", "out.v1"),),
        params={"lr": "{{config.base}}e-3", "flag": True},
        env={"RUN": "{{run.id}}"},
        secrets=("HF_TOKEN",),
        retry=Retry(2, 5.0),
        timeout_seconds="{{config.limit}}",
        trigger=TriggerSpec("{{config.data}}", "{{config.poll}}", 3, 2),
        checkpoint=Checkpoint("{{run.uri}}ck/", "my.loader"),
        resources="gpu",
        terminal=True,
    )
    step = only_step(
        state,
        config={"base": 3, "lr": "none", "data": "s3://b/in/", "limit": "90", "poll": "7"},
        resources={"gpu": {"accelerators": "H100:8", "cpus": "{{config.base}}"}},
    )
    assert step.command == Command(argv=("train", "--lr", "3e-3"), setup="echo run-1")
    assert step.inputs == (Artifact("s3://b/in/", "in.v1"),)
    assert step.outputs == (Artifact("file:///runs/run-1/out/", "out.v1"),)
    assert step.params == {"lr": "3e-3", "flag": True}
    assert dict(step.config)["lr"] == "3e-3"
    assert step.env == (("RUN", "run-1"),)
    assert (step.secrets, step.retry, step.timeout_seconds) == (
        ("HF_TOKEN",),
        Retry(2, 5.0),
        90.0,
    )
    assert step.trigger == Trigger("s3://b/in/", 7, 3, 2)
    assert step.checkpoint == Checkpoint("file:///runs/run-1/ck/", "my.loader")
    assert (step.profile.name, step.profile.accelerator_count, step.profile.cpus) == ("gpu", 8, 3)


def test_params_resolve_against_the_config_and_never_see_each_other() -> None:
    step = only_step(
        leaf("a", params={"x": "mine", "y": "{{config.x}}"}, terminal=True, text="{{config.y}}"),
        config={"x": "theirs"},
    )
    assert step.command.shell == "theirs"
    assert step.config["x"] == "mine"


def test_params_reach_the_resource_profile() -> None:
    step = only_step(
        leaf("a", params={"gpus": "4"}, resources="gpu", terminal=True),
        config={"gpus": "1"},
        resources={"gpu": {"accelerators": "H100:{{config.gpus}}"}},
    )
    assert step.profile.accelerator_count == 4


def test_an_overlay_is_a_mapping_that_copies_nothing() -> None:
    base = {"a": 1, "b": 2}
    overlay = Overlay({"b": 3, "c": 4}, base)
    assert dict(overlay) == {"a": 1, "b": 3, "c": 4}
    assert len(overlay) == 3
    assert overlay == {"a": 1, "b": 3, "c": 4}
    base["a"] = 9
    assert overlay["a"] == 9


# Tools.

CAPTION = Tool(
    ref="w.caption",
    argv=("caption", "--in", "{{config.data}}", "--cache-dir", "{{config.cache}}", "--fast"),
    omit_when_empty=("--cache-dir",),
    config_defaults={"cache": "", "data": "s3://b/default/"},
    setup="pip check",
    secrets=("KEY",),
)


def test_a_tool_supplies_command_setup_secrets_and_defaults() -> None:
    step = only_step(
        State("a", tool_ref="w.caption", secrets=("MINE",), terminal=True), tools=[CAPTION]
    )
    assert step.command == Command(
        argv=("caption", "--in", "s3://b/default/", "--fast"),
        setup="pip check",
        tool_ref="w.caption",
    )
    assert step.secrets == ("MINE", "KEY")


def test_a_flag_with_a_value_stays_and_the_file_wins_over_a_tools_default() -> None:
    step = only_step(
        State("a", tool_ref="w.caption", terminal=True),
        tools=[CAPTION],
        config={"cache": "/c", "data": "s3://b/mine/"},
    )
    assert step.command.argv == (
        "caption",
        "--in",
        "s3://b/mine/",
        "--cache-dir",
        "/c",
        "--fast",
    )


def test_an_unknown_tool_ends_the_walk_with_a_reason() -> None:
    walk = walk_of(State("a", tool_ref="w.nothing", terminal=True))
    assert walk.ended == Ended("", "at 'a': unknown toolRef 'w.nothing'")


# The run scope.


def test_the_runs_prefix_is_name_and_id_unless_config_says_otherwise() -> None:
    plain = workflow(leaf("a", terminal=True), config={"where": "{{run.prefix}}/x"})
    own = workflow(
        leaf("a", terminal=True),
        config={"where": "{{run.prefix}}/x", "prefix": "p/{{run.id}}"},
    )
    for made, prefix in ((plain, "made/r1"), (own, "p/r1")):
        context = make_context(made, run_id="r1", run_uri="s3://b/r1", tools=Catalogue())
        assert context.run["prefix"] == prefix
        assert context.config["where"] == f"{prefix}/x"
        assert context.run["uri"] == "s3://b/r1/"


def test_config_that_refers_to_itself_is_refused() -> None:
    made = workflow(leaf("a", terminal=True), config={"x": "{{config.y}}", "y": "{{config.x}}"})
    with pytest.raises(ConfigUnresolvable):
        make_context(made, run_id="r", run_uri="s3://b/r", tools=Catalogue())


# Outputs of other states.


def test_later_steps_see_the_outputs_of_earlier_ones() -> None:
    walk = walk_of(
        leaf("a", outputs=("s3://b/one", "s3://b/two"), next="b"),
        leaf("b", text="{{state.a.uri}} {{state.a.output_2}}", terminal=True),
    )
    walk.finished("a")
    assert open_steps(walk)["b"].command.shell == "s3://b/one s3://b/two"


def test_an_output_that_does_not_exist_ends_the_walk_with_a_reason() -> None:
    walk = walk_of(
        leaf("a", outputs=("s3://b/one",), next="b"),
        leaf("b", text="{{state.a.output_2}}", terminal=True),
    )
    walk.finished("a")
    assert walk.ended is not None
    assert "at 'b'" in walk.ended.reason
    assert "state.a.output_2" in walk.ended.reason


def test_inside_a_loop_the_outputs_of_this_iteration_are_seen() -> None:
    walk = walk_of(
        State("l", sequence=("a", "b"), loop=LoopSpec(2), terminal=True),
        leaf("a", outputs=("s3://b/{{loop.l}}",)),
        leaf("b", text="{{state.a.uri}}"),
    )
    walk.finished("l[1]/a")
    assert open_steps(walk)["l[1]/b"].command.shell == "s3://b/1"
    walk.finished("l[1]/b")
    walk.finished("l[2]/a")
    assert open_steps(walk)["l[2]/b"].command.shell == "s3://b/2"


@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")])
def test_after_a_window_the_last_declared_member_is_seen_whoever_was_faster(
    order: tuple[str, str],
) -> None:
    walk = walk_of(
        leaf(
            "fan",
            foreach=ForeachSpec(("x", "y"), "", "it", 8),
            next="end",
            outputs=("s3://b/{{item.it}}",),
        ),
        leaf("end", text="{{state.fan.uri}}", terminal=True),
    )
    for item in order:
        walk.finished(f"fan[{item}]")
    assert open_steps(walk)["end"].command.shell == "s3://b/y"


@pytest.mark.parametrize("slow_first", [True, False])
def test_branches_of_a_window_do_not_see_each_others_outputs(slow_first: bool) -> None:
    walk = walk_of(
        leaf("shared", outputs=("s3://b/before",), next="fan"),
        State("fan", parallel=("left", "right"), next="end"),
        State("left", sequence=("shared2", "l")),
        State("right", sequence=("r0", "r")),
        leaf("shared2", outputs=("s3://b/left",)),
        leaf("l", text="{{state.shared2.uri}}"),
        leaf("r0"),
        leaf("r", text="{{state.shared.uri}}"),
        leaf("end", text="{{state.shared2.uri}}", terminal=True),
    )
    walk.finished("shared")
    pair = ["fan/left/shared2", "fan/right/r0"]
    for path in pair if slow_first else reversed(pair):
        walk.finished(path)
    steps = open_steps(walk)
    assert steps["fan/left/l"].command.shell == "s3://b/left"
    assert steps["fan/right/r"].command.shell == "s3://b/before"
    walk.finished("fan/left/l")
    walk.finished("fan/right/r")
    assert open_steps(walk)["end"].command.shell == "s3://b/left"


@pytest.mark.parametrize("order", [("left/make", "right/r0"), ("right/r0", "left/make")])
def test_a_token_for_what_another_branch_made_never_resolves(order: tuple[str, str]) -> None:
    walk = walk_of(
        State("fan", parallel=("left", "right"), terminal=True),
        State("left", sequence=("make",)),
        State("right", sequence=("r0", "r")),
        leaf("make", outputs=("s3://b/left",)),
        leaf("r0"),
        leaf("r", text="{{state.make.uri}}"),
    )
    for path in order:
        walk.finished(f"fan/{path}")
    assert walk.ended is not None
    assert "state.make.uri" in walk.ended.reason


def test_a_loop_in_a_branch_counts_for_itself_even_if_its_state_ran_before() -> None:
    walk = walk_of(
        leaf("l", loop=LoopSpec(2), text="{{loop.l}}", next="fan"),
        State("fan", parallel=("l", "x"), terminal=True),
        leaf("x", text="{{loop.l}}"),
    )
    walk.finished("l[1]")
    walk.finished("l[2]")
    steps = open_steps(walk)
    assert steps["fan/l[1]"].command.shell == "1"
    assert steps["fan/x"].command.shell == "2"


def test_params_of_one_state_do_not_leak_into_anothers_profile() -> None:
    gpu = {"gpu": {"accelerators": "H100:{{config.gpus}}"}}
    many = leaf("many", params={"gpus": "4"}, resources="gpu")
    plain = [leaf("one", resources="gpu"), leaf("two", resources="gpu")]
    walk = walk_of(
        State("fan", parallel=("one", "many", "two"), terminal=True),
        *plain,
        many,
        config={"gpus": "1"},
        resources=gpu,
    )
    counts = {step.state: step.profile.accelerator_count for step in open_steps(walk).values()}
    assert counts == {"one": 1, "many": 4, "two": 1}


def test_a_profile_that_names_the_iteration_is_resolved_anew() -> None:
    walk = walk_of(
        leaf("a", loop=LoopSpec(2), resources="gpu", terminal=True),
        resources={"gpu": {"accelerators": "H100:{{loop.a}}"}},
    )
    walk.finished("a[1]")
    assert open_steps(walk)["a[2]"].profile.accelerator_count == 2


def test_a_loops_number_stays_after_the_loop() -> None:
    walk = walk_of(
        leaf("l", loop=LoopSpec(2), next="end"), leaf("end", text="{{loop.l}}", terminal=True)
    )
    walk.finished("l[1]")
    walk.finished("l[2]")
    assert open_steps(walk)["end"].command.shell == "2"


# Decisions.


def test_the_decision_uri_is_told_to_steps_that_decide_and_to_no_other() -> None:
    walk = walk_of(
        leaf("a", next="route"),
        leaf("route", transitions=(TransitionSpec("end", when="promote_checkpoint"),)),
        leaf("end", terminal=True),
        config={"decision_uri": "s3://b/d.json"},
    )
    assert open_steps(walk)["a"].decision_uri == ""
    walk.finished("a")
    assert open_steps(walk)["route"].decision_uri == "s3://b/d.json"


def test_a_bad_number_ends_the_walk_with_a_reason() -> None:
    walk = walk_of(leaf("a", timeout_seconds="soon", terminal=True))
    assert walk.ended is not None
    assert "`timeoutSeconds` of 'a' is 'soon', not a number" in walk.ended.reason


def test_a_loop_bound_below_one_ends_the_walk_with_a_reason() -> None:
    walk = walk_of(leaf("a", loop=LoopSpec("0"), terminal=True))
    assert walk.ended is not None
    assert "`loop.max` of 'a' is 0" in walk.ended.reason


# Copies.


def test_a_deep_copy_of_a_walk_goes_its_own_way() -> None:
    walk = walk_of(leaf("a", next="b"), leaf("b", terminal=True))
    other = copy.deepcopy(walk)
    other.finished("a")
    assert open_paths(other) == ["b"]
    assert open_paths(walk) == ["a"]


def test_a_copied_loop_counts_on_its_own() -> None:
    walk = walk_of(
        State("l", sequence=("a", "b"), loop=LoopSpec(3), terminal=True),
        leaf("a"),
        leaf("b", text="{{loop.l}}"),
    )
    other = walk.copy()
    for path in ("l[1]/a", "l[1]/b", "l[2]/a"):
        other.finished(path)
    walk.finished("l[1]/a")
    assert open_steps(walk)["l[1]/b"].command.shell == "1"


def test_a_copied_window_keeps_count_of_its_open_members() -> None:
    walk = walk_of(
        State("fan", parallel=("a", "b"), parallel_mode="window", terminal=True),
        leaf("a"),
        leaf("b"),
    )
    other = walk.copy()
    other.finished("fan/a")
    assert other.ended is None
    other.finished("fan/b")
    assert other.ended == Ended("fan")


def test_a_steps_config_can_be_written_as_json() -> None:
    step = only_step(leaf("a", params={"x": 1}, terminal=True))
    assert json.loads(json.dumps(dict(step.config))) == {"bucket": "b", "x": 1}
