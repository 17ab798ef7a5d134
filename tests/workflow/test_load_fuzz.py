"""Nothing that a file can say makes the loader fall over, and size does not matter."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npa.workflow.context import make_context
from npa.workflow.diagnostics import render_github, render_sarif, render_text
from npa.workflow.explain import FILE_HEAD
from npa.workflow.graph import compile_graph
from npa.workflow.load import Loaded, load_text
from npa.workflow.meaning import Workflow
from npa.workflow.model import StateBlock, known_keys
from npa.workflow.plan import PlanTooLarge, make_plan
from workflow.toolbox import SAMPLE_TOOLS


def plan(workflow: Workflow) -> None:
    """What passed the checks compiles, resolves and plans."""
    graph = compile_graph(workflow)
    context = make_context(workflow, run_id="r", run_uri="file:///r/", tools=SAMPLE_TOOLS)
    for decision in ("promote_checkpoint", "loop_back"):
        with suppress(PlanTooLarge):
            make_plan(graph, context, decision)


def show(text: str) -> Loaded:
    """Load and render in every format."""
    loaded = load_text(text, filename="f.yaml", tools=SAMPLE_TOOLS)
    render_text(loaded.diagnostics, filename="f.yaml", lines=loaded.source.lines, colour=True)
    render_github(loaded.diagnostics, filename="f.yaml")
    render_sarif(loaded.diagnostics, filename="f.yaml")
    if loaded.workflow is None:
        assert loaded.errors
    else:
        plan(loaded.workflow)
    for item in loaded.diagnostics:
        assert 0 <= item.line <= len(loaded.source.lines)
        assert item.end_column > item.column or not item.line
    return loaded


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text(text: str) -> None:
    show(text)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#\n \t,?<%@`0~", max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_of_yaml_characters(text: str) -> None:
    show(text)


_WORDS = st.sampled_from(
    ["a", "b", "c", "", "x y", "config.n", "{{config.n}}", "{{config.zz}}", "{{state.a.uri}}",
     "{{loop.a}}", "{{item.item}}", "{{run.uri}}o", "{{", "promote_checkpoint", "loop_back",
     "demo.train", "demo.shards", "H100:1", "s3://b/o", "<", "window", "sharded", "3"]
)  # fmt: skip
_LEAVES = st.one_of(
    _WORDS,
    st.integers(-2, 70),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=True),
    st.text(max_size=4),
)
_STATE_KEYS = st.sampled_from(
    [*known_keys(StateBlock), "uri", "max", "until", "gate", "goto", "when", "if", "shell", "argv",
     "setup", "path", "op", "value", "items", "as", "payload", "loader", "schema", "bogus", "x-a"]
)  # fmt: skip
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_STATE_KEYS, inner, max_size=4),
    max_leaves=12,
)
_STATES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d e"]),
    st.dictionaries(_STATE_KEYS, _TREES, max_size=6) | _TREES,
    max_size=4,
)
_FILES = st.fixed_dictionaries(
    {"apiVersion": st.just("npa.workflow/v0.0.1") | _TREES, "kind": st.just("Workflow") | _TREES},
    optional={
        "states": _STATES | _TREES,
        "config": st.dictionaries(_WORDS, _TREES, max_size=3) | _TREES,
        "run": st.dictionaries(_WORDS, _TREES, max_size=2) | _TREES,
        "resources": st.dictionaries(_WORDS, st.dictionaries(
            st.sampled_from(["cpus", "memory", "accelerators", "num_nodes", "disk_size", "image"]),
            _TREES, max_size=3) | _TREES, max_size=2) | _TREES,
        "metadata": st.fixed_dictionaries({"name": _LEAVES}) | _TREES,
        "initial": _LEAVES,
    },
)  # fmt: skip


@given(_FILES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tree(tree: object) -> None:
    show(yaml.safe_dump(tree))


class _Pipelines:
    """Draws pipelines that are nearly always well formed: groups, loops, branches, references."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.states: dict[str, dict[str, object]] = {}
        self.loops: list[str] = []

    def one_in(self, n: int) -> bool:
        return self.draw(st.integers(1, n)) == 1

    def name(self, body: dict[str, object]) -> str:
        name = f"s{len(self.states)}"
        self.states[name] = body
        return name

    def text(self) -> str:
        """Shell text that may mention an earlier output or loop, whether or not it has run."""
        known = [n for n, body in self.states.items() if "outputs" in body]
        tokens = [f"{{{{state.{n}.uri}}}}" for n in known]
        tokens += [f"{{{{loop.{n}}}}}" for n in self.loops]
        picked = self.draw(st.sampled_from(tokens)) if tokens and self.one_in(2) else "{{run.id}}"
        return f"echo {picked} {{{{config.k}}}}"

    def leaf(self) -> str:
        name = self.name({"run": {"shell": self.text()}})
        body = self.states[name]
        if self.one_in(2):
            body["outputs"] = [{"uri": f"s3://b/{name}"}]
        if self.one_in(4):
            body["loop"] = {"max": "config.k"}
            self.loops.append(name)
        if self.one_in(5):
            body["foreach"] = {"items": ["x", 1]}
            body["outputs"] = [{"uri": f"s3://b/{name}/{{{{item.item}}}}"}]
        if self.one_in(3):
            body["writesDecision"] = True
        return name

    def block(self, depth: int, *, parallel: bool = True) -> str:
        kind = self.draw(st.sampled_from(["leaf", "leaf", "sequence", "parallel"]))
        if depth == 0 or kind == "leaf" or (kind == "parallel" and not parallel):
            return self.leaf()
        name = self.name({})
        looped = kind == "sequence" and self.one_in(2)
        if looped:
            until = self.draw(st.sampled_from([{}, {"until": "promote_checkpoint"}]))
            self.states[name]["loop"] = {"max": 2, **until}
            self.loops.append(name)
        count = self.draw(st.integers(1, 3))
        members = [self.block(depth - 1, parallel=kind != "parallel") for _ in range(count)]
        self.states[name][kind] = members
        return name

    def whole(self) -> dict[str, object]:
        top = [self.block(2) for _ in range(self.draw(st.integers(1, 4)))]
        end = self.name({"terminal": True})
        for number, name in enumerate(top):
            following = [*top[number + 1 :], end]
            body = self.states[name]
            body["next"] = following[0]
            if "run" in body and self.one_in(2):
                ways = [{"when": "loop_back"}, {"if": "config.k"}]
                way = self.draw(st.sampled_from(ways))
                body["transitions"] = [{**way, "goto": self.draw(st.sampled_from(following))}]
        config = {"k": 2, "decision_uri": "s3://b/decision.json"}
        return {"config": config, "initial": top[0], "states": self.states}


@st.composite
def _pipelines(draw: st.DrawFn) -> dict[str, object]:
    return _Pipelines(draw).whole()


@given(_pipelines())
@settings(max_examples=250, deadline=None)
def test_pipelines_that_load_also_plan_with_both_decisions(whole: dict[str, object]) -> None:
    loaded = show(FILE_HEAD + yaml.safe_dump(whole, sort_keys=False))
    told = {item.code for item in loaded.errors}
    assert told <= {"NPA065", "NPA067"}  # only what `text` mentions too early


N = 10_000


def _leaf(n: int, more: str = "") -> str:
    return f"  s{n}:\n    run: {{shell: echo {n}}}\n{more}"


def _chain() -> str:
    ways = (f"    next: s{n + 1}\n" if n < N - 1 else "    terminal: true\n" for n in range(N))
    return "".join(_leaf(n, way) for n, way in enumerate(ways))


def _group(field: str) -> str:
    members = ", ".join(f"s{n}" for n in range(N))
    return f"  all:\n    {field}: [{members}]\n    terminal: true\n" + "".join(map(_leaf, range(N)))


def _nest() -> str:
    groups = (f"  s{n}:\n    sequence: [s{n + 1}]\n" for n in range(N))
    return "  top: {sequence: [s0], terminal: true}\n" + "".join(groups) + _leaf(N)


@pytest.mark.parametrize(
    "states", [_chain(), _group("sequence"), _group("parallel"), _nest()],
    ids=["chain", "sequence", "parallel", "nest"],
)  # fmt: skip
def test_ten_thousand_states_load_clean(states: str) -> None:
    loaded = load_text(f"{FILE_HEAD}states:\n{states}", filename="f", tools=SAMPLE_TOOLS)
    assert loaded.diagnostics == ()
    assert loaded.workflow is not None
    assert len(loaded.workflow.states) >= N
