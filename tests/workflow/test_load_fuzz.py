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


_TEXTS = st.sampled_from(
    ["true", "s3://b/1", "s3://b/2", "{{config.k}}", "{{state.a.uri}}", "{{state.b.output_2}}",
     "{{loop.a}}", "{{loop.b}}", "{{item.item}}", "{{item.index}}", "{{run.uri}}o"]
)  # fmt: skip
_GOOD = st.fixed_dictionaries(
    {},
    optional={
        "run": st.builds(lambda text: {"shell": text}, _TEXTS),
        "params": st.dictionaries(st.sampled_from(["k", "mode"]), _TEXTS, max_size=2),
        "env": st.dictionaries(st.just("E"), _TEXTS, max_size=1),
        "timeoutSeconds": st.sampled_from([3, "config.k", "{{config.k}}"]),
        "resources": st.sampled_from(["default", "p"]),
        "toolRef": st.sampled_from(["demo.plain", "demo.defaults"]),
        "sequence": st.lists(st.sampled_from("abcde"), max_size=3),
        "parallel": st.lists(st.sampled_from("abcde"), max_size=3),
        "next": st.sampled_from("abcde"),
        "needs": st.lists(st.sampled_from("abcde"), max_size=2),
        "terminal": st.booleans(),
        "loop": st.sampled_from([{"max": 2}, {"max": 2, "until": "loop_back"}]),
        "transitions": st.lists(
            st.builds(lambda goto: {"when": "loop_back", "goto": goto}, st.sampled_from("abcde")),
            max_size=2,
        ),
        "outputs": st.lists(
            st.builds(lambda n: {"uri": f"s3://b/{n}"}, st.integers(0, 3)), max_size=2
        ),
        "foreach": st.just({"items": [1]}),
    },
)


@given(st.fixed_dictionaries(dict.fromkeys("abcde", _GOOD)))
@settings(max_examples=150, deadline=None)
def test_any_graph_of_well_formed_states(states: object) -> None:
    config = {"k": "3", "decision_uri": "s3://b/decision.json"}
    resources = {"p": {"image": "{{config.k}}", "cpus": "{{config.k}}"}}
    whole = {"config": config, "resources": resources, "states": states}
    show(FILE_HEAD + yaml.safe_dump(whole))


@given(st.permutations("abcde"), st.fixed_dictionaries(dict.fromkeys("abcde", _GOOD)))
@settings(max_examples=150, deadline=None)
def test_chains_that_load_also_plan(order: list[str], states: dict[str, dict[str, object]]) -> None:
    """Mended to be a chain of commands, most of these load, so that planning is really reached."""
    for name, following in zip(order, [*order[1:], ""], strict=True):
        state = states[name]
        for key in ("sequence", "parallel", "needs", "transitions", "toolRef", "terminal", "next"):
            state.pop(key, None)
        state.setdefault("run", {"shell": "true"})
        state.update({"next": following} if following else {"terminal": True})
    whole = {"config": {"k": "3"}, "resources": {"p": {"cpus": "{{config.k}}"}},
             "initial": order[0], "states": states}  # fmt: skip
    show(FILE_HEAD + yaml.safe_dump(whole))


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
