"""What is to come is told as far as the plan knows it, and never more surely."""

from __future__ import annotations

import pytest

from npa.catalog.loader import Catalog
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Frame
from npa.orchestration.state import RunState
from npa.views.planned import Planned, planned
from npa.workflow.context import make_context
from npa.workflow.graph import compile_graph
from npa.workflow.load import load_text
from npa.workflow.walk import Walk

HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: t}\n"
CHAIN = """initial: a
states:
  a: {run: {shell: 'true'}, next: b}
  b: {run: {shell: 'true'}, next: c}
  c: {run: {shell: 'true'}, terminal: true}
"""
LOOP = """initial: refine
states:
  refine:
    sequence: [train, grade]
    loop: {max: 3, until: promote_checkpoint}
    next: end
  train: {run: {shell: 'true'}}
  grade:
    writesDecision: true
    run: {shell: 'true'}
    outputs: [{uri: "{{run.uri}}{{loop.refine}}/decision.json", schema: decision}]
  end: {run: {shell: 'true'}, terminal: true}
"""
GROWS = """initial: many
states:
  many:
    sequence: [one]
    loop: {max: 5000}
    next: end
  one: {run: {shell: 'true'}}
  end: {run: {shell: 'true'}, terminal: true}
"""


def state_of(*ended: str, running: str = "", decisions: dict[str, str] | None = None) -> RunState:
    """A run in which these steps have succeeded, and one runs."""
    entries: list[e.Entry] = [e.Genesis("s", {}, {}), e.DriverEntry("h", "b", 1, 1, "complete")]
    for path in (*ended, *((running,) if running else ())):
        entries.append(e.Reserved(path, path, 1, path, path, e.Cause.FIRST, {path: "d"}, (path,)))
        entries += [e.Intent(path, e.Verb.LAUNCH), e.Outcome(path, "1", "test")]
        if path in ended:
            good = {path: e.MemberEnd(e.Result.SUCCEEDED)}
            entries.append(e.Ended(path, e.Result.SUCCEEDED, "", "", good))
    for question, value in (decisions or {}).items():
        writer = f"{question.removesuffix('?until')}/grade"
        entries.append(e.Decision(question, value, writer, "", ""))
    state = RunState()
    frame = Frame(n=1, prev="", at=1.0, epoch=0, by="", entries=tuple(entries), digest="", size=0)
    state.apply([frame])
    return state


def plan(text: str, state: RunState) -> Planned | None:
    tools = Catalog.built_in()
    loaded = load_text(HEAD + text, filename="p.yaml", tools=tools, overrides={})
    assert loaded.workflow is not None, loaded.errors
    context = make_context(loaded.workflow, run_id="r", run_uri="file:///r/", tools=tools)
    return planned(Walk(compile_graph(loaded.workflow), context), state)


def test_a_chain_is_counted_exactly() -> None:
    found = plan(CHAIN, state_of("a", running="b"))
    assert found is not None
    assert (found.done, found.total, found.exact) == (1, 3, True)
    assert [(step.path, step.certain) for step in found.steps] == [("c", True)]


def test_a_loop_that_may_end_early_is_a_bound() -> None:
    found = plan(LOOP, state_of("refine[1]/train", running="refine[1]/grade"))
    assert found is not None
    assert (found.done, found.total, found.exact) == (1, 7, False)
    assert {step.path for step in found.steps if step.certain} == {"end"}
    assert len(found.steps) == 5


@pytest.mark.parametrize(
    ("decision", "total", "exact"), [("promote_checkpoint", 3, True), ("loop_back", 7, False)]
)
def test_a_decision_that_was_made_is_taken(decision: str, total: int, exact: bool) -> None:
    state = state_of("refine[1]/train", "refine[1]/grade", decisions={"refine[1]?until": decision})
    found = plan(LOOP, state)
    assert found is not None
    assert (found.done, found.total, found.exact) == (2, total, exact)


def test_a_step_that_is_to_run_again_is_to_come() -> None:
    state = state_of("a", "b", "c")
    state.stale["c"] = 2
    found = plan(CHAIN, state)
    assert found is not None
    assert (found.done, found.total) == (2, 3)
    assert [step.path for step in found.steps] == ["c"]


def test_thousands_of_steps_are_counted_exactly() -> None:
    found = plan(GROWS, state_of("many[1]/one"))
    assert found is not None
    assert (found.done, found.total, found.exact) == (1, 5001, True)


def test_a_plan_that_is_larger_than_any_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npa.views.planned.STEPS_MAX", 1000)
    found = plan(GROWS, state_of("many[1]/one"))
    assert found == Planned(1, None, exact=False, steps=(), too_large=True)


def test_hundreds_of_decisions_are_followed_without_going_through_every_way() -> None:
    states = "".join(
        f"  g{n}: {{run: {{shell: x}}, transitions: [{{if: config.f, goto: a{n}}}, "
        f"{{when: promote_checkpoint, goto: a{n}}}], next: b{n}}}\n"
        f"  a{n}: {{run: {{shell: x}}, next: g{n + 1}}}\n"
        f"  b{n}: {{run: {{shell: x}}, next: g{n + 1}}}\n"
        for n in range(300)
    )
    head = "config: {f: false, decision_uri: 's3://b/d'}\ninitial: g0\nstates:\n"
    found = plan(f"{head}{states}  g300: {{run: {{shell: x}}, terminal: true}}\n", state_of())
    assert found is not None
    assert (found.total, found.exact) == (601, False)
    certain = {step.path for step in found.steps if step.certain}
    assert certain == {f"g{n}" for n in range(301)}


def test_a_step_on_both_ways_of_a_decision_is_certain() -> None:
    text = """config: {decision_uri: "s3://b/d"}
initial: grade
states:
  grade: {run: {shell: x}, transitions: [{when: promote_checkpoint, goto: good}], next: bad}
  good: {run: {shell: x}, next: end}
  bad: {run: {shell: x}, next: end}
  end: {run: {shell: x}, terminal: true}
"""
    found = plan(text, state_of())
    assert found is not None
    assert {step.path for step in found.steps if step.certain} == {"grade", "end"}


def test_items_that_nobody_has_read_are_bounded() -> None:
    text = """initial: list
states:
  list:
    run: {shell: 'true'}
    outputs: [{uri: "{{run.uri}}items.json"}]
    next: each
  each:
    foreach: {uri: "{{run.uri}}items.json", maxItems: 8}
    run: {shell: 'true'}
    terminal: true
"""
    found = plan(text, state_of(running="list"))
    assert found is not None
    assert (found.total, found.exact) == (9, False)
    (step,) = found.steps
    assert (step.path, step.certain, step.at_most) == ("each[*]", False, 8)
