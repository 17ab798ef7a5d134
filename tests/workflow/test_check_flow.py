"""Control flow: what is reached, what ends, what contradicts."""

from __future__ import annotations

import pytest

from npa.workflow.order import Before, find_cycles, order_of, reach
from workflow.judged import found, messages, workflow_of

SHELL = "run: {shell: 'true'}"


def test_a_long_circle_is_told_shortened() -> None:
    chain = "\n".join(f"  s{n}: {{{SHELL}, next: s{(n + 1) % 50}}}" for n in range(50))
    text = f"states:\n{chain}\n"
    (message,) = [m for m in messages(text) if "circle" in m]
    assert message == (
        "`next` and `goto` go round in a circle: "
        "s0 -> s1 -> s2 -> s3 -> s4 -> s5 -> (44 more) -> s0"
    )


def test_a_way_back_by_a_dead_transition_is_no_circle() -> None:
    assert found(f"""
        config: {{f: true}}
        states:
          group: {{sequence: [a], next: end}}
          a: {{{SHELL}, transitions: [{{if: config.f, goto: group}}]}}
          end: {{terminal: true}}
    """) == [("NPA045", "states.a.transitions")]


def test_mutual_groups_are_told_once() -> None:
    codes = [
        c
        for c, _ in found("""
        states:
          a: {sequence: [b], terminal: true}
          b: {sequence: [c]}
          c: {sequence: [b]}
    """)
    ]
    assert codes == ["NPA035"]


def test_a_terminal_inside_a_group_does_not_count_as_reached() -> None:
    codes = [
        c
        for c, _ in found(f"""
        states:
          a: {{sequence: [b]}}
          b: {{{SHELL}, terminal: true}}
    """)
    ]
    assert "NPA041" in codes
    assert "NPA039" in codes


def test_transitions_on_a_group_never_fire() -> None:
    assert found(f"""
        config: {{f: true}}
        states:
          a: {{sequence: [b], transitions: [{{if: config.f, goto: end}}], next: end}}
          b: {{{SHELL}}}
          end: {{terminal: true}}
    """) == [("NPA045", "states.a.transitions")]


def test_a_transition_after_one_that_always_fires() -> None:
    assert found(f"""
        states:
          a: {{{SHELL}, transitions: [{{goto: b}}, {{goto: end}}], next: end}}
          b: {{{SHELL}, next: end}}
          end: {{terminal: true}}
    """) == [("NPA045", "states.a.transitions[1]"), ("NPA045", "states.a.next")]


def test_both_decisions_cover_every_case() -> None:
    assert (
        found(f"""
        config: {{decision_uri: "s3://b/d.json"}}
        states:
          a:
            {SHELL}
            transitions:
              - {{when: promote_checkpoint, goto: b}}
              - {{when: loop_back, goto: c}}
          b: {{terminal: true}}
          c: {{terminal: true}}
    """)
        == []
    )


def test_needs_on_a_sibling_of_a_parallel_group_contradict() -> None:
    assert found(f"""
        states:
          p: {{parallel: [a, b], terminal: true}}
          a: {{{SHELL}}}
          b: {{{SHELL}, needs: [a]}}
    """) == [("NPA048", "states.b.needs[0]")]


def test_needs_on_ones_own_group_or_member_contradict() -> None:
    assert found(f"""
        states:
          g: {{sequence: [a, b], needs: [a], terminal: true}}
          a: {{{SHELL}}}
          b: {{{SHELL}, needs: [a, g]}}
    """) == [("NPA048", "states.g.needs[0]"), ("NPA048", "states.b.needs[1]")]


def test_needs_on_a_branch_that_may_not_run_is_accepted() -> None:
    assert (
        found(f"""
        config: {{f: true}}
        states:
          a: {{{SHELL}, transitions: [{{if: config.f, goto: b}}], next: c}}
          b: {{{SHELL}, next: c}}
          c: {{{SHELL}, needs: [a, b], terminal: true}}
    """)
        == []
    )


def test_a_state_that_needs_itself() -> None:
    assert [c for c, _ in found(f"states: {{a: {{{SHELL}, needs: [a], terminal: true}}}}")] == [
        "NPA049"
    ]


ORDERED = f"""
    config: {{f: true}}
    states:
      start: {{{SHELL}, transitions: [{{if: config.f, goto: left}}], next: right}}
      left: {{{SHELL}, next: join}}
      right: {{{SHELL}, next: join}}
      join: {{sequence: [one, fan], next: after}}
      one: {{{SHELL}}}
      fan: {{parallel: [x, y]}}
      x: {{sequence: [x1, x2]}}
      x1: {{{SHELL}}}
      x2: {{{SHELL}}}
      y: {{{SHELL}}}
      after: {{{SHELL}, next: end}}
      end: {{terminal: true}}
      lost: {{{SHELL}, terminal: true}}
"""


def test_what_comes_before_what() -> None:
    workflow = workflow_of(ORDERED)
    order = order_of(workflow, reach(workflow))
    assert order.before("start", "after") is Before.ALWAYS
    assert order.before("left", "after") is Before.SOMETIMES
    assert order.before("after", "start") is Before.NEVER
    assert order.before("one", "x2") is Before.ALWAYS
    assert order.before("x1", "x2") is Before.ALWAYS
    assert order.before("x2", "x1") is Before.NEVER
    assert order.before("x2", "y") is Before.TOGETHER
    assert order.before("y", "x1") is Before.TOGETHER
    assert order.before("y", "after") is Before.ALWAYS
    assert order.before("fan", "after") is Before.ALWAYS
    assert order.before("join", "one") is Before.NEVER
    assert order.before("lost", "end") is Before.UNKNOWN
    assert order.before("end", "end") is Before.NEVER
    assert order.ancestors("x1") == ["x", "fan", "join"]


def test_a_state_in_two_places_has_no_order() -> None:
    workflow = workflow_of(f"""
        states:
          a: {{sequence: [m], next: b}}
          b: {{sequence: [m], terminal: true}}
          m: {{{SHELL}}}
    """)
    assert order_of(workflow, reach(workflow)).before("m", "b") is Before.UNKNOWN


def test_cycles_are_found_without_recursion_and_bounded() -> None:
    n = 20_000
    edges = {str(k): (str((k + 1) % n),) for k in range(n)}
    (cycle,) = find_cycles(edges)
    assert len(cycle) == n + 1
    dense = {str(k): tuple(map(str, range(60))) for k in range(60)}
    assert len(find_cycles(dense)) == 20


LINE = """
    initial: prepare
    states:
      prepare: {SHELL, outputs: [{uri: "{{run.uri}}p"}], next: PREPARE}
      train: {SHELL, inputs: [{uri: "{{run.uri}}p"}], outputs: [{uri: "{{run.uri}}t"}], next: GRADE}
      grade: {SHELL, inputs: [{uri: "{{run.uri}}t"}], needs: [train], next: END}
      end: {terminal: true}
""".replace("SHELL", SHELL)


def line(prepare: str = "train", grade: str = "grade", end: str = "end", more: str = "") -> str:
    text = LINE.replace("PREPARE", prepare).replace("GRADE", grade).replace("END", end)
    return text + more


@pytest.mark.parametrize("prepare", ["trian", "somewhere-else", "Train"])
def test_one_wrong_next_is_one_problem(prepare: str) -> None:
    assert found(line()) == []
    assert found(line(prepare)) == [("NPA023", "states.prepare.next")]


def test_a_wrong_initial_is_one_problem() -> None:
    text = line().replace("initial: prepare", "initial: perpare")
    assert found(text) == [("NPA023", "initial")]


@pytest.mark.parametrize("member", ["graed", "something-else"])
def test_one_wrong_member_is_one_problem(member: str) -> None:
    text = """
        states:
          refine: {sequence: [train, MEMBER], loop: {max: 2, until: promote_checkpoint}, next: fan}
          train: {SHELL}
          grade:
            writesDecision: true
            run: {shell: "echo {{loop.refine}}"}
            outputs: [{uri: "{{run.uri}}{{loop.refine}}.json", schema: decision}]
          fan: {foreach: {items: [a], as: part}, sequence: [work, FAN], terminal: true}
          work: {SHELL}
          show: {run: {shell: "echo {{item.part}}"}}
    """.replace("SHELL", SHELL)
    assert found(text.replace("MEMBER", "grade").replace("FAN", "show")) == []
    assert found(text.replace("MEMBER", member).replace("FAN", "show")) == [
        ("NPA023", "states.refine.sequence[1]")
    ]
    assert found(text.replace("MEMBER", "grade").replace("FAN", "shwo")) == [
        ("NPA023", "states.fan.sequence[1]")
    ]
    assert found(text.replace("MEMBER", "grade").replace("FAN", "another-one")) == [
        ("NPA023", "states.fan.sequence[1]")
    ]


def test_problems_behind_a_wrong_next_are_told_in_the_same_run() -> None:
    more = f"      orphan: {{{SHELL}, next: end}}\n"
    text = line("trian", more=more).replace("needs: [train]", "needs: [end]")
    assert found(text) == [
        ("NPA023", "states.prepare.next"),
        ("NPA048", "states.grade.needs[0]"),
        ("NPA042", "states.orphan"),
    ]
    assert found(line("trian", grade="garde", end="edn")) == [
        ("NPA023", "states.prepare.next"),
        ("NPA023", "states.train.next"),
        ("NPA023", "states.grade.next"),
    ]
    dead = line("trian").replace("next: end", "retry: {payload: 1}")
    assert ("NPA043", "states.grade") in found(dead)


def test_what_follows_an_unreachable_state_is_not_told_again() -> None:
    more = "".join(f"      x{n}: {{{SHELL}, next: x{n + 1}}}\n" for n in range(5))
    assert found(line(more=more + f"      x5: {{{SHELL}, next: end}}\n")) == [
        ("NPA042", "states.x0")
    ]


def test_unreachable_states_that_lead_to_each_other_are_told_once() -> None:
    more = f"      x: {{{SHELL}, sequence: [y]}}\n      y: {{{SHELL}, needs: [x]}}\n"
    assert ("NPA042", "states.x") in found(line(more=more))
    assert ("NPA042", "states.y") not in found(line(more=more))


def test_behind_a_circle_nothing_is_said_to_be_unreachable() -> None:
    assert [code for code, _ in found(line(grade="prepare"))] == ["NPA044"]
