"""The walk: order, batches, windows, loops, branches, failures and answers that do not fit."""

from __future__ import annotations

import pytest

from npa.workflow.meaning import (
    ForeachSpec,
    GateSpec,
    IoSpec,
    LoopSpec,
    State,
    TransitionSpec,
)
from npa.workflow.walk import AnswerMismatch, AskItems, Batch, BatchKind, Ended, Gate, Walk
from workflow.hand_made import leaf, open_paths, questions, run_all, walk_of


def batches(walk: Walk) -> list[Batch]:
    return [ask for ask in walk.frontier() if isinstance(ask, Batch)]


def branch(name: str, promote: str, back: str, **fields: object) -> State:
    return leaf(
        name,
        transitions=(
            TransitionSpec(promote, when="promote_checkpoint"),
            TransitionSpec(back, when="loop_back"),
        ),
        **fields,
    )


# Chains and sequences.


def test_a_chain_runs_one_state_after_the_other_and_ends_at_the_terminal_one() -> None:
    walk = walk_of(leaf("a", next="b"), leaf("b", next="c"), leaf("c", terminal=True))
    assert [batch.kind for batch in batches(walk)] == [BatchKind.SERIAL]
    assert run_all(walk) == ["a", "b", "c"]
    assert walk.ended == Ended("c")


def test_an_end_without_a_terminal_state_has_a_reason() -> None:
    walk = walk_of(leaf("a"))
    walk.finished("a")
    assert walk.ended == Ended("", "the run ended after 'a', which is not a terminal state")


def test_members_of_a_sequence_run_in_order_and_their_own_next_counts_for_nothing() -> None:
    walk = walk_of(
        State("group", sequence=("a", "b"), next="end"),
        leaf("a", next="end", terminal=True),
        leaf("b", transitions=(TransitionSpec("end", when="promote_checkpoint"),)),
        leaf("end", terminal=True),
    )
    assert run_all(walk) == ["group/a", "group/b", "end"]


def test_a_member_listed_twice_has_two_paths() -> None:
    walk = walk_of(State("g", sequence=("a", "b", "a"), terminal=True), leaf("a"), leaf("b"))
    assert run_all(walk) == ["g/a", "g/b", "g/a#2"]


def test_a_state_without_a_command_is_passed_through() -> None:
    walk = walk_of(State("start", next="a"), leaf("a", next="end"), State("end", terminal=True))
    assert run_all(walk) == ["a"]
    assert walk.ended == Ended("end")


def test_a_loop_over_nothing_does_not_spin() -> None:
    walk = walk_of(State("g", sequence=("r",), loop=LoopSpec(10**12), terminal=True), State("r"))
    assert walk.ended == Ended("g")


def test_take_new_gives_each_ask_once_and_frontier_until_it_is_answered() -> None:
    walk = walk_of(leaf("a", next="b"), leaf("b", terminal=True))
    (first,) = walk.take_new()
    assert walk.take_new() == ()
    assert walk.frontier() == (first,)
    walk.finished("a")
    (second,) = walk.take_new()
    assert isinstance(second, Batch)
    assert second.steps[0].path == "b"


# Parallel groups.


def group(*members: str, **fields: object) -> State:
    return State("fan", parallel=members, next="join", **fields)  # type: ignore[arg-type]


JOIN = leaf("join", terminal=True)


@pytest.mark.req("B-03")
def test_a_group_is_one_batch_and_the_next_state_is_its_barrier() -> None:
    walk = walk_of(group("a", "b"), leaf("a"), leaf("b"), JOIN)
    (batch,) = batches(walk)
    assert (batch.kind, batch.group, batch.max_concurrency) == (BatchKind.GROUP, "fan", 2)
    assert [step.path for step in batch.steps] == ["fan/a", "fan/b"]
    assert {(step.group, step.loop_label) for step in batch.steps} == {("fan", "fan")}
    walk.finished("fan/b")
    assert batches(walk) == [batch]
    walk.finished("fan/a")
    assert open_paths(walk) == ["join"]


@pytest.mark.req("B-03")
def test_a_larger_group_is_cut_into_consecutive_batches_and_a_batch_of_one_stays_a_group() -> None:
    walk = walk_of(
        group("a", "b", "c", max_concurrency="{{config.width}}"),
        leaf("a"),
        leaf("b"),
        leaf("c"),
        JOIN,
        config={"width": "2"},
    )
    assert open_paths(walk) == ["fan/a", "fan/b"]
    walk.finished("fan/a")
    assert open_paths(walk) == ["fan/a", "fan/b"], "the batch is asked for until all of it ended"
    walk.finished("fan/b")
    (last,) = batches(walk)
    assert (last.kind, [s.path for s in last.steps]) == (BatchKind.GROUP, ["fan/c"])
    walk.finished("fan/c")
    assert open_paths(walk) == ["join"]


def test_a_group_without_a_bound_launches_at_most_64_together() -> None:
    names = [f"m{number}" for number in range(100)]
    walk = walk_of(group(*names), *(leaf(name) for name in names), JOIN)
    assert len(open_paths(walk)) == 64


@pytest.mark.req("B-03")
def test_a_window_opens_the_next_member_as_soon_as_one_ends() -> None:
    walk = walk_of(
        group("a", "b", "c", parallel_mode="window", max_concurrency=2),
        leaf("a"),
        leaf("b"),
        leaf("c"),
        JOIN,
    )
    assert [(b.kind, b.group, b.max_concurrency) for b in batches(walk)] == [
        (BatchKind.WINDOW, "fan", 2)
    ] * 2
    walk.finished("fan/b")
    assert open_paths(walk) == ["fan/a", "fan/c"]
    walk.finished("fan/a")
    walk.finished("fan/c")
    assert open_paths(walk) == ["join"]


def test_branches_of_several_steps_slide_by_branch() -> None:
    walk = walk_of(
        group("left", "right", "last", max_concurrency=2),
        State("left", sequence=("a", "b")),
        State("right", sequence=("c",)),
        *(leaf(name) for name in ("a", "b", "c", "last")),
        JOIN,
    )
    assert open_paths(walk) == ["fan/left/a", "fan/right/c"]
    walk.finished("fan/left/a")
    assert open_paths(walk) == ["fan/right/c", "fan/left/b"]
    walk.finished("fan/right/c")
    assert open_paths(walk) == ["fan/left/b", "fan/last"]
    assert {batch.kind for batch in batches(walk)} == {BatchKind.WINDOW}
    assert {batch.group for batch in batches(walk)} == {"fan"}
    walk.finished("fan/last")
    walk.finished("fan/left/b")
    assert open_paths(walk) == ["join"]


def test_loops_in_parallel_branches_count_and_decide_on_their_own() -> None:
    walk = walk_of(
        group("left", "right"),
        State("left", sequence=("l",), loop=LoopSpec(3, until="promote_checkpoint")),
        State("right", sequence=("r",), loop=LoopSpec(3, until="promote_checkpoint")),
        leaf("l", writes_decision=True),
        leaf("r", writes_decision=True),
        JOIN,
    )
    walk.finished("fan/right[1]/r")
    (asked,) = questions(walk)
    assert asked.key == "fan/right[1]?until"
    walk.decided(asked.key, "loop_back")
    assert open_paths(walk) == ["fan/left[1]/l", "fan/right[2]/r"]
    walk.finished("fan/left[1]/l")
    walk.decided("fan/left[1]?until", "promote")
    assert open_paths(walk) == ["fan/right[2]/r"]
    walk.finished("fan/right[2]/r")
    walk.decided("fan/right[2]?until", "promote")
    assert open_paths(walk) == ["join"]


# Failures.


def test_a_failed_step_ends_the_walk_with_a_reason() -> None:
    walk = walk_of(leaf("a", next="b"), leaf("b", terminal=True))
    walk.failed("a")
    assert walk.ended == Ended("", "step 'a' failed")
    assert walk.skipped() == ("b",)


def test_after_a_failed_member_its_batch_may_end_but_no_later_batch_starts() -> None:
    walk = walk_of(group("a", "b", "c", max_concurrency=2), leaf("a"), leaf("b"), leaf("c"), JOIN)
    walk.failed("fan/a")
    assert walk.ended is None
    assert walk.failing == "step 'fan/a' failed"
    walk.finished("fan/b")
    assert walk.ended == Ended("", "step 'fan/a' failed")
    assert walk.skipped() == ("c", "join")


def test_the_first_failure_is_the_reason() -> None:
    walk = walk_of(group("a", "b"), leaf("a"), leaf("b"), JOIN)
    walk.failed("fan/b")
    walk.failed("fan/a")
    assert walk.ended == Ended("", "step 'fan/b' failed")


def test_an_open_step_that_never_started_can_be_abandoned_once_the_walk_is_failing() -> None:
    walk = walk_of(group("a", "b", parallel_mode="window"), leaf("a"), leaf("b"), JOIN)
    with pytest.raises(AnswerMismatch):
        walk.abandoned("fan/b")
    walk.failed("fan/a")
    walk.abandoned("fan/b")
    assert walk.ended == Ended("", "step 'fan/a' failed")


def test_a_question_of_another_branch_is_withdrawn_by_a_failure_and_its_late_answer_ignored() -> (
    None
):
    walk = walk_of(
        group("left", "right"),
        State("left", sequence=("l",), loop=LoopSpec(2, until="promote_checkpoint")),
        State("right", sequence=("r", "s")),
        leaf("l", writes_decision=True),
        leaf("r"),
        leaf("s"),
        JOIN,
    )
    walk.finished("fan/left[1]/l")
    walk.failed("fan/right/r")
    assert walk.ended == Ended("", "step 'fan/right/r' failed")
    walk.decided("fan/left[1]?until", "loop_back")
    assert open_paths(walk) == []


# Loops.


def refine(**fields: object) -> tuple[State, ...]:
    loop = LoopSpec(**{"max": 3, "until": "promote_checkpoint", **fields})  # type: ignore[arg-type]
    return (
        State("refine", sequence=("work", "grade"), loop=loop, next="end"),
        leaf("work"),
        leaf(
            "grade",
            writes_decision=True,
            outputs=(
                "s3://b/scores/{{loop.refine}}",
                IoSpec("s3://b/{{loop.refine}}/gate.json", "x.Decision.v1"),
            ),
        ),
        leaf("end", terminal=True),
    )


def test_a_loop_without_until_only_counts() -> None:
    walk = walk_of(*refine(max=2, until=""))
    assert run_all(walk) == [
        "refine[1]/work",
        "refine[1]/grade",
        "refine[2]/work",
        "refine[2]/grade",
        "end",
    ]


def test_after_each_iteration_the_decision_of_that_iteration_is_asked() -> None:
    walk = walk_of(*refine())
    walk.finished("refine[1]/work")
    walk.finished("refine[1]/grade")
    (asked,) = questions(walk)
    assert (asked.key, asked.writer) == ("refine[1]?until", "refine[1]/grade")
    assert asked.uris == ("s3://b/1/gate.json",)
    walk.decided(asked.key, "loop_back")
    walk.finished("refine[2]/work")
    walk.finished("refine[2]/grade")
    (asked,) = questions(walk)
    assert asked.uris == ("s3://b/2/gate.json",)
    walk.decided(asked.key, "promote")
    assert open_paths(walk) == ["end"]


def test_a_loop_that_never_promotes_runs_its_full_budget() -> None:
    walk = walk_of(*refine())
    paths = run_all(walk, decide=lambda _: "loop_back")
    assert paths.count("end") == 1
    assert [path for path in paths if path.endswith("grade")] == [
        f"refine[{number}]/grade" for number in (1, 2, 3)
    ]


def test_a_looped_leaf_reads_its_own_decision() -> None:
    walk = walk_of(
        leaf(
            "train",
            loop=LoopSpec("{{config.rounds}}", until="promote_checkpoint"),
            terminal=True,
        ),
        config={"rounds": 3, "decision_uri": "s3://b/d.json"},
    )
    (batch,) = batches(walk)
    assert (batch.steps[0].path, batch.steps[0].iteration) == ("train[1]", 1)
    walk.finished("train[1]")
    (asked,) = questions(walk)
    assert (asked.key, asked.writer, asked.uris) == (
        "train[1]?until",
        "train[1]",
        ("s3://b/d.json",),
    )
    walk.decided(asked.key, "loop_back")
    walk.finished("train[2]")
    walk.decided("train[2]?until", "promote_checkpoint")
    assert walk.ended == Ended("train")


def test_nested_loops_keep_their_decisions_apart_and_steps_carry_all_iterations() -> None:
    until = "promote_checkpoint"
    walk = walk_of(
        State("outer", sequence=("inner", "gate"), loop=LoopSpec(2, until), terminal=True),
        State("inner", sequence=("try", "check"), loop=LoopSpec(2, until)),
        leaf("try"),
        leaf("check", writes_decision=True),
        leaf("gate", writes_decision=True),
    )
    answers = {
        "outer[1]/inner[1]?until": "loop_back",
        "outer[1]/inner[2]?until": "loop_back",
        "outer[1]?until": "loop_back",
        "outer[2]/inner[1]?until": "promote",
        "outer[2]?until": "promote",
    }
    asked = []
    steps = {}
    while walk.ended is None:
        for ask in walk.take_new():
            if isinstance(ask, Batch):
                (step,) = ask.steps
                steps[step.path] = step
                walk.finished(step.path)
            else:
                asked.append((ask.key, getattr(ask, "writer", "")))
                walk.decided(ask.key, answers[ask.key])
    assert asked == [
        ("outer[1]/inner[1]?until", "outer[1]/inner[1]/check"),
        ("outer[1]/inner[2]?until", "outer[1]/inner[2]/check"),
        ("outer[1]?until", "outer[1]/gate"),
        ("outer[2]/inner[1]?until", "outer[2]/inner[1]/check"),
        ("outer[2]?until", "outer[2]/gate"),
    ]
    deep = steps["outer[1]/inner[2]/try"]
    assert deep.iterations == (("outer", 1), ("inner", 2))
    assert (deep.iteration, deep.loop_label) == (None, "inner")


def test_an_unknown_decision_ends_the_walk_with_a_reason() -> None:
    walk = walk_of(*refine())
    walk.finished("refine[1]/work")
    walk.finished("refine[1]/grade")
    walk.decided("refine[1]?until", "escalate")
    assert walk.ended is not None
    assert "'escalate'" in walk.ended.reason


def test_a_gate_ends_a_loop_by_a_measured_number() -> None:
    gate = GateSpec("s3://b/{{loop.refine}}/m.json", "score", ">=", "{{config.bar}}")
    states = refine(until="", gate=gate)
    walk = walk_of(*states, config={"bar": "0.5"})
    walk.finished("refine[1]/work")
    walk.finished("refine[1]/grade")
    (asked,) = questions(walk)
    assert asked.gates == (Gate("s3://b/1/m.json", "score", ">=", 0.5),)
    assert asked.options == ("gate:0", "gate:none")
    walk.decided(asked.key, "gate:none")
    assert open_paths(walk) == ["refine[2]/work"]


def test_the_writer_is_the_last_in_declared_order_whoever_was_faster() -> None:
    walk = walk_of(
        State("l", sequence=("fan",), loop=LoopSpec(2, "promote_checkpoint"), terminal=True),
        State("fan", parallel=("left", "right")),
        State("left", sequence=("x", "w")),
        State("right", sequence=("w",)),
        leaf("x"),
        leaf("w", writes_decision=True),
    )
    for path in ("l[1]/fan/right/w", "l[1]/fan/left/x", "l[1]/fan/left/w"):
        walk.finished(path)
    assert questions(walk)[0].writer == "l[1]/fan/right/w"


def test_an_iteration_in_which_nothing_wrote_does_not_ask_for_the_one_before() -> None:
    items = ForeachSpec(None, "s3://b/items.json", "it", 8)
    walk = walk_of(
        State("l", sequence=("w",), loop=LoopSpec(2, "promote_checkpoint"), terminal=True),
        leaf("w", foreach=items, writes_decision=True),
    )
    walk.expanded("l[1]/w?items", ("a",))
    walk.finished("l[1]/w[a]")
    assert questions(walk)[0].writer == "l[1]/w[a]"
    walk.decided("l[1]?until", "loop_back")
    walk.expanded("l[2]/w?items", ())
    assert questions(walk)[0].writer == ""


# Branches.


def ends(*names: str) -> list[State]:
    return [leaf(name, terminal=True) for name in names]


@pytest.mark.parametrize(("answer", "target"), [("promote", "good"), ("loop_back", "bad")])
def test_a_branch_follows_the_decision(answer: str, target: str) -> None:
    walk = walk_of(
        branch("route", "good", "bad"),
        *ends("good", "bad"),
        config={"decision_uri": "s3://b/d.json"},
    )
    walk.finished("route")
    (asked,) = questions(walk)
    assert (asked.key, asked.writer, asked.uris) == ("route?next", "route", ("s3://b/d.json",))
    assert walk.skipped() == ()
    walk.decided("route?next", answer)
    assert open_paths(walk) == [target]
    assert walk.skipped() == (("bad",) if target == "good" else ("good",))


def test_params_say_where_a_branch_reads_its_decision() -> None:
    walk = walk_of(
        branch("route", "good", "bad", params={"decision_uri": "s3://b/mine.json"}),
        *ends("good", "bad"),
        config={"decision_uri": "s3://b/d.json"},
    )
    walk.finished("route")
    assert questions(walk)[0].uris == ("s3://b/mine.json",)


@pytest.mark.req("B-01")
def test_an_unknown_decision_at_a_branch_ends_the_walk_with_a_reason() -> None:
    walk = walk_of(branch("route", "good", "bad"), *ends("good", "bad"))
    walk.finished("route")
    walk.decided("route?next", "escalate")
    assert walk.ended is not None
    assert walk.ended.terminal == ""
    assert "escalate" in walk.ended.reason


def test_a_branch_where_nothing_matches_and_no_next_exists_ends_with_a_reason() -> None:
    only = leaf("route", transitions=(TransitionSpec("good", when="promote_checkpoint"),))
    walk = walk_of(only, *ends("good"))
    walk.finished("route")
    walk.decided("route?next", "loop_back")
    assert walk.ended is not None
    assert "nothing matches after 'route'" in walk.ended.reason


def test_a_branch_falls_back_to_next() -> None:
    only = leaf(
        "route",
        transitions=(TransitionSpec("good", when="promote_checkpoint"),),
        next="else",
    )
    walk = walk_of(only, *ends("good", "else"))
    walk.finished("route")
    walk.decided("route?next", "loop_back")
    assert open_paths(walk) == ["else"]


@pytest.mark.parametrize("value", [False, "false", "False", 0, "0", "", None, "null"])
def test_a_false_flag_as_yaml_reads_it_closes_a_transition(value: object) -> None:
    route = leaf("route", transitions=(TransitionSpec("a", if_="config.flag"),), next="b")
    walk = walk_of(route, *ends("a", "b"), config={"flag": value})
    walk.finished("route")
    assert open_paths(walk) == ["b"]


@pytest.mark.parametrize("value", [True, "true", 1, "yes", "x"])
def test_a_true_flag_is_taken_without_asking_for_a_decision(value: object) -> None:
    transitions = (
        TransitionSpec("a", if_="{{config.flag}}"),
        TransitionSpec("b", when="promote_checkpoint"),
    )
    walk = walk_of(leaf("route", transitions=transitions), *ends("a", "b"), config={"flag": value})
    walk.finished("route")
    assert open_paths(walk) == ["a"]


def test_gates_of_a_branch_are_asked_together_and_the_first_that_holds_wins() -> None:
    def gate(value: float) -> GateSpec:
        return GateSpec("s3://b/m.json", "score", ">", value)

    route = leaf(
        "route",
        transitions=(TransitionSpec("a", gate=gate(0.9)), TransitionSpec("b", gate=gate(0.5))),
        next="c",
    )
    for answer, target in (("gate:0", "a"), ("gate:1", "b"), ("gate:none", "c")):
        walk = walk_of(route, *ends("a", "b", "c"))
        walk.finished("route")
        (asked,) = questions(walk)
        assert (asked.key, asked.options) == ("route?next", ("gate:0", "gate:1", "gate:none"))
        walk.decided(asked.key, answer)
        assert open_paths(walk) == [target]


def test_a_branch_without_a_declared_artifact_uses_the_decision_read_last() -> None:
    states = list(refine())
    states[0] = State("refine", sequence=("work", "grade"), loop=states[0].loop, next="route")
    states[3] = branch("route", "good", "bad")
    walk = walk_of(*states, *ends("good", "bad"))
    assert run_all(walk)[-2:] == ["route", "good"]


def test_every_branch_asks_anew() -> None:
    walk = walk_of(
        branch("first", "second", "bad"),
        branch("second", "good", "bad"),
        *ends("good", "bad"),
        config={"decision_uri": "s3://b/d.json"},
    )
    walk.finished("first")
    walk.decided("first?next", "promote")
    walk.finished("second")
    assert [asked.key for asked in questions(walk)] == ["second?next"]
    walk.decided("second?next", "loop_back")
    assert open_paths(walk) == ["bad"]


def test_words_and_gates_of_one_branch_are_asked_one_after_the_other() -> None:
    route = leaf(
        "route",
        transitions=(
            TransitionSpec("a", when="promote_checkpoint"),
            TransitionSpec("b", gate=GateSpec("s3://b/m.json", "score", ">", 1.0)),
            TransitionSpec("c", when="loop_back"),
        ),
    )
    for answer, target in (("gate:0", "b"), ("gate:none", "c")):
        walk = walk_of(route, *ends("a", "b", "c"))
        walk.finished("route")
        walk.decided("route?next", "loop_back")
        walk.decided("route?gate", answer)
        assert open_paths(walk) == [target]


def test_a_decision_of_the_last_declared_branch_is_remembered_after_a_window() -> None:
    until = LoopSpec(2, until="promote_checkpoint")
    walk = walk_of(
        State("fan", parallel=("left", "right"), next="route"),
        State("left", sequence=("l",), loop=until),
        State("right", sequence=("r",), loop=until),
        leaf("l", writes_decision=True),
        leaf("r", writes_decision=True),
        branch("route", "good", "bad"),
        *ends("good", "bad"),
    )
    walk.finished("fan/right[1]/r")
    walk.decided("fan/right[1]?until", "promote")
    for number in (1, 2):
        walk.finished(f"fan/left[{number}]/l")
        walk.decided(f"fan/left[{number}]?until", "loop_back")
    walk.finished("route")
    assert open_paths(walk) == ["good"]


# Fan-out over items.


def fan_out(items: tuple[object, ...] | None, **fields: object) -> State:
    spec = ForeachSpec(items, "" if items else "s3://b/items.json", "shard", 3)  # type: ignore[arg-type]
    return leaf(
        "train",
        text="train {{item.shard}} {{item.value}} {{item.index}}",
        foreach=spec,
        next="join",
        **fields,
    )


def test_items_become_members_named_after_them() -> None:
    walk = walk_of(fan_out(("x", "y"), max_concurrency=1), JOIN)
    (batch,) = batches(walk)
    assert (batch.kind, batch.group) == (BatchKind.WINDOW, "train")
    (step,) = batch.steps
    assert (step.path, step.item, step.group) == ("train[x]", ("shard", "x"), "train")
    assert step.command.shell == "train x x 0"
    assert run_all(walk) == ["train[x]", "train[y]", "join"]


def test_items_of_a_manifest_are_asked_for() -> None:
    walk = walk_of(fan_out(None), JOIN)
    assert walk.frontier() == (AskItems("train?items", "s3://b/items.json", 3),)
    walk.expanded("train?items", ("s3://b/part one.json", "s3://b/part one.json", True))
    assert open_paths(walk) == [
        "train[s3---b-part-one.json]",
        "train[s3---b-part-one.json#2]",
        "train[true]",
    ]


def test_too_many_items_end_the_walk_with_a_reason() -> None:
    walk = walk_of(fan_out(None), JOIN)
    walk.expanded("train?items", (1, 2, 3, 4))
    assert walk.ended is not None
    assert "4 items, more than `maxItems` 3" in walk.ended.reason


def test_no_items_are_no_steps() -> None:
    walk = walk_of(fan_out(None), JOIN)
    walk.expanded("train?items", ())
    assert open_paths(walk) == ["join"]


# Answers that do not fit.


def test_an_answer_that_fits_no_open_ask_is_refused() -> None:
    walk = walk_of(branch("route", "good", "bad"), *ends("good", "bad"))
    for wrong in (
        lambda: walk.finished("good"),
        lambda: walk.failed("nothing"),
        lambda: walk.decided("route?next", "promote"),
        lambda: walk.expanded("route?items", ()),
    ):
        with pytest.raises(AnswerMismatch):
            wrong()
    walk.finished("route")
    with pytest.raises(AnswerMismatch):
        walk.finished("route")
    assert issubclass(AnswerMismatch, ValueError)


def test_a_gate_that_does_not_exist_is_refused() -> None:
    gate = GateSpec("s3://b/m.json", "score", ">", 1.0)
    walk = walk_of(leaf("r", transitions=(TransitionSpec("a", gate=gate),)), *ends("a"))
    walk.finished("r")
    with pytest.raises(AnswerMismatch):
        walk.decided("r?next", "promote")


# Size: nothing recurses.


def test_ten_thousand_states_in_a_chain_walk_to_the_end() -> None:
    last = 10_000
    states = [leaf(f"s{n}", next=f"s{n + 1}") for n in range(last)]
    assert len(run_all(walk_of(*states, leaf(f"s{last}", terminal=True)))) == last + 1


@pytest.mark.parametrize("kind", ["sequence", "group", "window"])
def test_ten_thousand_members_walk_to_the_end(kind: str) -> None:
    names = tuple(f"s{n}" for n in range(10_000))
    head = State("g", sequence=names, terminal=True)
    if kind != "sequence":
        head = State("g", parallel=names, parallel_mode=kind, terminal=True)  # type: ignore[arg-type]
    assert len(run_all(walk_of(head, *(leaf(name) for name in names)))) == 10_000


def test_ten_thousand_groups_inside_each_other_walk_to_the_end() -> None:
    deep = 10_000
    states = [State(f"g{n}", sequence=(f"g{n + 1}",), terminal=n == 0) for n in range(deep)]
    (path,) = run_all(walk_of(*states, leaf(f"g{deep}")))
    assert path.count("/") == deep


def test_the_config_is_not_copied_for_a_step() -> None:
    walk = walk_of(leaf("a", next="b"), leaf("b", terminal=True), config={"k": "v"})
    (batch,) = batches(walk)
    assert batch.steps[0].config is walk.context.config
