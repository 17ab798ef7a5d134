"""Every public pipeline compiles, plans with both decisions, and draws both paths as a tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml

from npa.workflow.context import Context, make_context
from npa.workflow.graph import Graph, compile_graph
from npa.workflow.load import load_file
from npa.workflow.plan import make_plan, make_plan_tree, plan_json, waves_json
from npa.workflow.tools import GangMode, Tool

ROOT = Path(__file__).resolve().parents[2]
SPECS = Path(os.environ.get("NPA_COMPAT_SPECS", ROOT.parent / "shared" / "specs"))
TOOLS = SPECS.parent / "facts" / "workbench-tools.yaml"

pytestmark = pytest.mark.skipif(
    not TOOLS.is_file(), reason="the public specs and their catalogue are not here"
)


class PublicTools:
    """The interface of the public catalogue, as far as the language needs it."""

    def __init__(self, path: Path) -> None:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))["tools"]
        self._tools = {ref: _tool(ref, entry) for ref, entry in raw.items()}

    def get(self, ref: str) -> Tool | None:
        return self._tools.get(ref)

    def names(self) -> Sequence[str]:
        return tuple(self._tools)


def _tool(ref: str, entry: dict[str, object]) -> Tool:
    keys = entry.get("config_keys", [])
    args = entry.get("args", [])
    assert isinstance(keys, list)
    assert isinstance(args, list)
    argv = [*_words(entry.get("command", ["python3"])), *(word for arg in args for word in arg)]
    argv += [f"{{{{config.{key}}}}}" for key in keys]
    defaults = entry.get("config_defaults", {})
    assert isinstance(defaults, dict)
    return Tool(
        ref=ref,
        argv=tuple(map(str, argv)),
        config_defaults=defaults,
        omit_when_empty=tuple(_words(entry.get("omit_when_empty", []))),
        gang=GangMode.SHARDED if entry.get("multi_node") == "sharded" else GangMode.FORBIDDEN,
    )


def _words(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(word) for word in value]


@cache
def public_tools() -> PublicTools:
    return PublicTools(TOOLS)


def spec_files() -> list[Path]:
    return sorted(SPECS.glob("*.yaml")) if TOOLS.is_file() else []


def compiled(path: Path) -> tuple[Graph, Context]:
    tools = public_tools()
    loaded = load_file(path, tools=tools)
    assert loaded.workflow is not None, [d.message for d in loaded.errors]
    context = make_context(loaded.workflow, run_id="r1", run_uri="s3://b/r1/", tools=tools)
    return compile_graph(loaded.workflow), context


@pytest.mark.req("B-01")
@pytest.mark.parametrize("path", spec_files(), ids=lambda path: path.stem)
def test_a_public_pipeline_plans_with_both_decisions(path: Path) -> None:
    graph, context = compiled(path)
    for assume in ("promote_checkpoint", "loop_back"):
        plan = make_plan(graph, context, assume)
        assert plan.ended.terminal, plan.ended.reason
        assert len({step.path for step in plan.steps}) == len(plan.steps) > 0
        texts = [text for s in plan.steps for text in (*s.command.argv, s.command.shell)]
        assert not any("{{config." in text or "{{run." in text for text in texts)
        assert plan_json(plan, context)["steps"]
        assert waves_json(plan)["waves"]


@pytest.mark.req("B-01")
@pytest.mark.parametrize("path", spec_files(), ids=lambda path: path.stem)
def test_both_paths_of_a_public_pipeline_end_at_terminal_states(path: Path) -> None:
    graph, context = compiled(path)
    tree = make_plan_tree(graph, context)
    ends = [node.ended for node in tree.nodes if node.ended is not None]
    assert ends
    assert all(end.terminal for end in ends)
    branches = any(s.transitions or (s.loop and s.loop.until) for s in graph.states)
    assert tree.decides == branches
