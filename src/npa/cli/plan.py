"""`plan-spec`: what would run, as steps, waves or a tree of paths. Nothing is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from npa.cli.options import (
    catalog_option,
    decision_option,
    json_option,
    spec_argument,
    store_option,
    var_option,
)
from npa.cli.output import Output
from npa.cli.spec import plural, require_loaded, show_warnings, tools_of

if TYPE_CHECKING:
    from npa.workflow.context import Context
    from npa.workflow.graph import Graph
    from npa.workflow.plan import Plan, PlanTree
    from npa.workflow.step import Step

DEFAULT_RUN_ID = "plan"
_COMMAND_WIDTH = 60


@click.command("plan-spec")
@spec_argument
@click.option("--waves", is_flag=True, help="Show waves: what would be launched together.")
@click.option("--run-id", default=DEFAULT_RUN_ID, show_default=True, help="Run ID to plan for.")
@decision_option
@var_option
@store_option
@catalog_option
@json_option
def plan_spec(
    spec: Path,
    waves: bool,
    run_id: str,
    assume_decision: str | None,
    var: Sequence[str],
    store: str | None,
    catalogs: Sequence[Path],
    as_json: bool,
) -> None:
    """Show the steps or waves that would run; without an assumption, every path."""
    from npa.workflow.plan import plan_json, tree_lines, waves_json

    output = Output(as_json=as_json)
    planned = plan_file(spec, var, catalogs, run_id=run_id, store=store, assume=assume_decision)
    if waves:
        document = waves_json(planned.plan)
        output.document(document)
        _show_waves(output, cast("list[dict[str, object]]", document["waves"]))
        return
    output.document(plan_json(planned.plan, planned.context, planned.tree))
    if planned.tree is not None:
        for line in tree_lines(planned.tree):
            output.line(line)
        output.hint("`--assume-decision` shows one path")
        return
    show_steps(output, planned.plan.steps)
    ended = planned.plan.ended
    output.line(ended.reason or f"ends at {ended.terminal}")


class Planned:
    """A file planned for one run: its graph, its context, the plan, and the tree of its paths.

    `tree` is None when there is one path only, or one was assumed.
    """

    def __init__(self, graph: Graph, context: Context, plan: Plan, tree: PlanTree | None) -> None:
        self.graph = graph
        self.context = context
        self.plan = plan
        self.tree = tree


def plan_file(
    spec: Path,
    var: Sequence[str],
    catalogs: Sequence[Path],
    *,
    run_id: str,
    store: str | None,
    assume: str | None,
) -> Planned:
    """Load, compile and plan a file. Raises UsageError and SpecInvalid."""
    from npa.workflow.context import make_context
    from npa.workflow.graph import compile_graph
    from npa.workflow.plan import default_assumption, make_plan, make_plan_tree

    tools = tools_of(catalogs)
    workflow, loaded = require_loaded(spec, var, tools, not_done="nothing was planned")
    show_warnings(loaded, spec)
    graph = compile_graph(workflow)
    run_uri = root_uri(store, run_id)
    context = make_context(workflow, run_id=run_id, run_uri=run_uri, tools=tools)
    plan = make_plan(graph, context, assume or default_assumption(graph, context))
    tree = None if assume else make_plan_tree(graph, context)
    return Planned(graph, context, plan, tree if tree is not None and tree.decides else None)


def root_uri(store: str | None, run_id: str) -> str:
    """Where a run of that name would live."""
    from npa.target.home import Home

    base = store or Home.find().runs.as_uri()
    return f"{base.rstrip('/')}/{run_id}/"


def show_steps(output: Output, steps: Sequence[Step]) -> None:
    """The steps in order, each with its profile and the start of its command."""
    output.table(
        ("#", "STEP", "PROFILE", "COMMAND"),
        [
            (str(number), step.path, step.profile.name, command_text(step))
            for number, step in enumerate(steps, 1)
        ],
    )


def command_text(step: Step) -> str:
    """One line that tells what a step runs."""
    command = step.command
    if command.tool_ref:
        return command.tool_ref
    text = " ".join(command.argv) if command.argv else command.shell.strip()
    first, _, rest = text.partition("\n")
    short = first[:_COMMAND_WIDTH]
    return short + (" …" if rest or len(first) > _COMMAND_WIDTH else "")


def _show_waves(output: Output, waves: list[dict[str, object]]) -> None:
    for wave in waves:
        steps = cast("list[Mapping[str, object]]", wave["steps"])
        head = f"{wave['index']}  {wave['kind']}  {wave['path']}"
        if wave["kind"] == "parallel":
            size = f"{plural(len(steps), 'step')}, {wave['max_concurrency']} at a time"
            output.line(f"{head}  ({size})")
            for step in steps:
                output.line(f"     {step['path']}")
        else:
            output.line(head)
