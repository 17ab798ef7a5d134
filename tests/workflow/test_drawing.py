"""Drawings: Mermaid, DOT, JSON and SVG say the same, with statuses in words."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npa.workflow.drawing import Line, Shape, Status, Tone, dot, draw, graph_json, mermaid
from npa.workflow.graph import Graph, compile_graph
from npa.workflow.meaning import GateSpec, LoopSpec, State, TransitionSpec
from npa.workflow.svg import svg
from workflow.hand_made import leaf, workflow

SVG = "{http://www.w3.org/2000/svg}"


def pipeline() -> Graph:
    """A looped sequence with a parallel group in it, then a branch."""
    return compile_graph(
        workflow(
            State(
                "refine",
                sequence=("work", "fan", "grade"),
                loop=LoopSpec("{{config.rounds}}", until="promote_checkpoint"),
                next="route",
            ),
            leaf("work"),
            State("fan", parallel=("left", "right")),
            leaf("left"),
            leaf("right"),
            leaf("grade", writes_decision=True),
            leaf(
                "route",
                transitions=(
                    TransitionSpec("publish", when="promote_checkpoint"),
                    TransitionSpec("escalate", gate=GateSpec("s3://b/m", "score", "<", 0.5)),
                ),
                next="publish",
            ),
            leaf("publish", terminal=True),
            leaf("escalate", terminal=True),
        )
    )


STATUSES = {
    "work": Status("succeeded", Tone.GOOD),
    "fan": Status("1 of 2 running", Tone.RUNNING),
    "escalate": Status("skipped", Tone.MUTED),
    "left": Status("failed: <exit 3>", Tone.BAD),
    "right": Status("waiting"),
}


def test_groups_are_frames_and_arrows_carry_when_they_are_taken() -> None:
    drawing = draw(pipeline())
    boxes = {box.name: (number, box) for number, box in enumerate(drawing.boxes)}
    refine, fan = boxes["refine"], boxes["fan"]
    assert refine[1].shape is Shape.SEQUENCE
    assert refine[1].initial
    assert fan[1].parent == refine[0]
    assert [drawing.boxes[child].name for child in fan[1].children] == ["left", "right"]
    told = {
        (drawing.boxes[a.source].name, drawing.boxes[a.target].name, a.line): a.label
        for a in drawing.arrows
    }
    assert told == {
        ("refine", "route", Line.NEXT): "",
        ("route", "publish", Line.NEXT): "promote_checkpoint / otherwise",
        ("route", "escalate", Line.GOTO): "score < 0.5",
        ("work", "fan", Line.ORDER): "",
        ("fan", "grade", Line.ORDER): "",
        ("grade", "work", Line.AGAIN): "repeat up to config.rounds, until promote_checkpoint",
    }


def test_a_group_listed_twice_is_drawn_once_and_named_again() -> None:
    graph = compile_graph(
        workflow(
            State("all", sequence=("part", "part"), terminal=True),
            State("part", sequence=("a",)),
            leaf("a"),
        )
    )
    names = [(box.name, len(box.children)) for box in draw(graph).boxes]
    assert sorted(names) == [("a", 0), ("all", 2), ("part", 0), ("part", 1)]


@pytest.mark.parametrize("form", [mermaid, dot, svg])
def test_every_status_is_told_in_words(form: object) -> None:
    assert callable(form)
    text = form(draw(pipeline(), STATUSES))
    for status in ("succeeded", "1 of 2 running", "skipped", "waiting", "failed: "):
        assert status in text


def test_mermaid_frames_open_and_close() -> None:
    lines = mermaid(draw(pipeline(), STATUSES)).splitlines()
    assert lines[0] == "flowchart TD"
    assert sum(" subgraph " in line for line in lines) == 2
    assert sum(line.strip() == "end" for line in lines) == 2
    assert any("-.->" in line and "repeat up to" in line for line in lines)


def test_dot_braces_balance_and_edges_of_groups_end_at_their_frames() -> None:
    text = dot(draw(pipeline(), STATUSES))
    assert text.count("{") == text.count("}")
    assert "ltail=cluster_s0" in text


def test_text_of_a_file_cannot_break_out_of_a_label() -> None:
    hostile = 'a"]; click x "javascript:1" <script>'
    graph = compile_graph(workflow(leaf("a", next="b", tool_ref=hostile), leaf("b", terminal=True)))
    drawing = draw(graph)
    assert '"]; click' not in mermaid(drawing)
    assert '"]; click' not in dot(drawing).replace('\\"', "")
    assert "<script>" not in svg(drawing)


def test_the_json_names_states_and_edges() -> None:
    document = graph_json(pipeline(), STATUSES)
    json.dumps(document, sort_keys=True)
    states = document["states"]
    assert isinstance(states, list)
    by_name = {state["name"]: state for state in states}
    assert by_name["fan"]["kind"] == "group"
    assert by_name["fan"]["members"] == ["left", "right"]
    assert by_name["work"]["status"] == {"text": "succeeded", "tone": "good"}
    assert "status" not in by_name["publish"]
    edges = document["edges"]
    assert isinstance(edges, list)
    assert {
        "source": "route",
        "target": "escalate",
        "kind": "goto",
        "label": "score < 0.5",
    } in edges


Rect = tuple[float, float, float, float]


def rects(text: str) -> list[Rect]:
    """Outer rectangles of all boxes, in document order."""
    root = ElementTree.fromstring(text)  # noqa: S314  our own text
    found = []
    for group in root.iter(f"{SVG}g"):
        if group.get("data-state") is not None:
            rect = group.find(f"{SVG}rect")
            assert rect is not None
            x, y, w, h = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
            found.append((x, y, x + w, y + h))
    return found


def overlap(one: Rect, two: Rect) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def inside(inner: Rect, outer: Rect) -> bool:
    return (
        outer[0] <= inner[0]
        and outer[1] <= inner[1]
        and inner[2] <= outer[2]
        and inner[3] <= outer[3]
    )


@st.composite
def graphs(draw_: st.DrawFn) -> Graph:
    """Top-level states with edges that only lead on, some of them groups of groups."""
    count = draw_(st.integers(1, 7))
    states = [leaf("w"), leaf("a-rather-long-name-of-a-state-in-a-group"), leaf("z")]
    names = [state.name for state in states]
    for number in range(draw_(st.integers(0, 4))):
        members = tuple(dict.fromkeys(draw_(st.lists(st.sampled_from(names), min_size=1))))
        loop = draw_(st.sampled_from((None, LoopSpec(2))))
        kind = draw_(st.sampled_from(("sequence", "parallel")))
        states.append(
            State(f"g{number}", loop=loop, **{kind: members})  # type: ignore[arg-type]
        )
        names.append(f"g{number}")
    tops = []
    for number in range(count):
        later = [f"t{other}" for other in range(number + 1, count)]
        targets = draw_(st.lists(st.sampled_from(later), max_size=3)) if later else []
        body = draw_(st.sampled_from(names))
        group = draw_(st.booleans())
        tops.append(
            State(f"t{number}", sequence=(body,), next=targets[0] if targets else "")
            if group
            else leaf(
                f"t{number}",
                transitions=tuple(TransitionSpec(t, when="loop_back") for t in targets),
                next=later[0] if later else "",
            )
        )
    return compile_graph(workflow(*tops, *states))


@settings(max_examples=80, deadline=None)
@given(graph=graphs())
def test_boxes_lie_in_their_frames_and_siblings_never_overlap(graph: Graph) -> None:
    drawing = draw(graph)
    placed = rects(svg(drawing))
    assert len(placed) == len(drawing.boxes)
    for (i, one), (j, two) in combinations(enumerate(drawing.boxes), 2):
        if one.parent == two.parent:
            assert not overlap(placed[i], placed[j]), (one.name, two.name)
    for index, box in enumerate(drawing.boxes):
        if box.parent >= 0:
            assert inside(placed[index], placed[box.parent])


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_arrows_of_the_chain_lead_down(graph: Graph) -> None:
    drawing = draw(graph)
    placed = rects(svg(drawing))
    for arrow in drawing.arrows:
        if arrow.line in (Line.NEXT, Line.GOTO):
            assert placed[arrow.source][3] < placed[arrow.target][1]


def test_an_svg_names_itself_for_readers_who_do_not_see_it() -> None:
    root = ElementTree.fromstring(svg(draw(pipeline())))  # noqa: S314  our own text
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "made"
    tips = [g.findtext(f"{SVG}title") for g in root.iter(f"{SVG}g") if g.get("data-state")]
    assert "grade, writes the decision" in tips


def test_a_cycle_that_was_never_checked_still_draws() -> None:
    graph = compile_graph(workflow(leaf("a", next="b"), leaf("b", next="a")))
    assert len(rects(svg(draw(graph)))) == 2


@pytest.mark.parametrize("kind", ["chain", "sequence", "parallel", "nested"])
def test_ten_thousand_states_draw_in_every_form(kind: str) -> None:
    count = 10_000
    names = tuple(f"s{number}" for number in range(count))
    match kind:
        case "chain":
            links = [leaf(a, next=b) for a, b in pairwise(names)]
            states = [*links, leaf(names[-1], terminal=True)]
        case "nested":
            pairs = pairwise(names)
            states = [*(State(a, sequence=(b,)) for a, b in pairs), leaf(names[-1])]
        case _:
            head = State("g", terminal=True, **{kind: names})  # type: ignore[arg-type]
            states = [head, *(leaf(name) for name in names)]
    graph = compile_graph(workflow(*states))
    drawing = draw(graph)
    assert len(re.findall("data-state=", svg(drawing))) >= count
    assert mermaid(drawing).count("\n") >= count
    assert dot(drawing).count("\n") >= count
    assert len(json.dumps(graph_json(graph))) > count
