"""`submit`, `run` and `run-spec`: from a file to a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from npa.cli.exit_codes import ExitCode
from npa.cli.options import (
    catalog_option,
    decision_option,
    json_option,
    pairs,
    spec_argument,
    store_option,
    var_option,
)
from npa.cli.output import Output
from npa.cli.skypilot_options import skypilot_options, take_settings
from npa.cli.spec import require_submittable, show_warnings, tools_of

if TYPE_CHECKING:
    from npa.orchestration.prepare import Prepared
    from npa.orchestration.runs import Host

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    spec_argument,
    click.option("--run-id", metavar="ID", help="Name of the run.  [default: generated]"),
    store_option,
    var_option,
    catalog_option,
    decision_option,
    click.option(
        "--retries",
        type=click.IntRange(0, 100),
        default=0,
        show_default=True,
        help="New attempts of a step whose command failed.",
    ),
    click.option(
        "--max-infrastructure-recoveries",
        type=click.IntRange(0, 100),
        default=1,
        show_default=True,
        help="New attempts after a failure of the infrastructure, counted apart.",
    ),
    click.option(
        "--max-wait-seconds",
        type=click.FloatRange(0),
        default=0,
        show_default="no limit",
        help="Deadline of each attempt; a state's own timeoutSeconds wins.",
    ),
    click.option(
        "--max-concurrency",
        type=click.IntRange(0, 64),
        default=0,
        show_default="as declared",
        help="Members of a group at one time, at most.",
    ),
    click.option(
        "--secret-env",
        metavar="NAME",
        multiple=True,
        help="Hand a secret of this shell to the tasks; only its name is recorded.",
    ),
    click.option(
        "--env", metavar="NAME", multiple=True, help="Hand a variable of this shell to the tasks."
    ),
    click.option(
        "--stage-src/--no-stage-src",
        default=True,
        show_default=True,
        help="Run the tasks in a copy of the file's folder, pinned for the whole run.",
    ),
    click.option("--detach", is_flag=True, help="Return once the run has begun."),
    click.option("--plan-only", is_flag=True, help="Show what would be submitted, and stop."),
    json_option,
)


def submit_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command()
@click.option(
    "--engine",
    type=click.Choice(["local", "skypilot"]),
    help="What runs the tasks: `local` is this machine.  [default: skypilot for a SkyPilot file, "
    "else local]",
)
@submit_options
@skypilot_options
def submit(engine: str | None, **options: Any) -> int:
    """Start a run and drive it to its end.

    Ctrl-C cancels the run; a second Ctrl-C leaves it as it is, for `resume`.
    """
    return submit_file(engine or "", engine_options=take_settings(options), **options)


@click.command()
@submit_options
def run(**options: Any) -> int:
    """Run a pipeline on this machine: short for `npa workflow submit --engine local`."""
    return submit_file("local", **options)


def submit_file(
    engine: str,
    *,
    spec: Path,
    run_id: str | None,
    store: str | None,
    var: Sequence[str],
    catalogs: Sequence[Path],
    assume_decision: str | None,
    retries: int,
    max_infrastructure_recoveries: int,
    max_wait_seconds: float,
    max_concurrency: int,
    secret_env: Sequence[str],
    env: Sequence[str],
    stage_src: bool,
    detach: bool,
    plan_only: bool,
    as_json: bool,
    documents: str = "",
    engine_options: Mapping[str, object] | None = None,
) -> int:
    """Prepare, check, begin, drive. Each step has no effect unless the ones before it are done."""
    from npa.cli.host import host_for
    from npa.cli.plan_only import show_plan
    from npa.orchestration.hosts import make_host
    from npa.orchestration.prepare import prepare
    from npa.orchestration.submission import make_request, refuse_incomplete
    from npa.target.home import Home

    if documents and not plan_only:
        raise click.UsageError("`--documents` shows a plan, so it needs `--plan-only`")
    output = Output(as_json=as_json)
    tools = tools_of(catalogs)
    workflow, loaded, raw = require_submittable(spec, var, tools, not_done="nothing was started")
    if raw is None:
        show_warnings(loaded, spec)
    engine = engine or ("local" if raw is None else "skypilot")
    request = make_request(
        spec,
        spec.read_text(encoding="utf-8"),
        workflow,
        tools,
        home=Home.find(),
        engine=engine,
        run_id=run_id,
        store=store or "",
        overrides=pairs(var, "--var"),
        policy={
            "retries": retries,
            "recoveries": max_infrastructure_recoveries,
            "max_wait_seconds": max_wait_seconds,
            "max_concurrency": max_concurrency,
            "assume_decision": assume_decision or "",
        },
        stage_source=stage_src and (raw is None or raw.staged),
        secrets=secret_env,
        env=env,
        catalogs=catalogs,
        engine_options=engine_options,
    )
    if plan_only:
        host = host_for(replace(request, secrets=(), env=()))
        prepared = prepare(request, tools, environment=os.environ, loaded=loaded)
        show_plan(output, host, prepared, documents)
        return ExitCode.OK
    if engine == "skypilot":
        prepared = prepare(request, tools, environment=os.environ, loaded=loaded)
        refuse_incomplete(request, prepared, make_host(tools))
        return _begin(output, host_for(request), prepared, detach=detach)
    host = host_for(request)
    prepared = prepare(request, tools, environment=os.environ, loaded=loaded)
    return _begin(output, host, prepared, detach=detach)


def _begin(output: Output, host: Host, prepared: Prepared, *, detach: bool) -> int:
    from npa.cli.detach import hand_over
    from npa.cli.driving import drive
    from npa.orchestration.runs import create
    from npa.orchestration.submission import findings, refuse

    refuse(findings(host, prepared), prepared.request.spec_path)
    run = create(host, prepared)
    if detach:
        return hand_over(output, run)
    return drive(output, host, run, prepared=prepared)


@click.command("run-spec")
@click.option("--execute/--plan-only", default=False, help="Run it here.  [default: plan]")
@click.option("--run-id", metavar="ID", help="Name of the run.  [default: generated]")
@spec_argument
@decision_option
@var_option
@store_option
@catalog_option
@json_option
@click.pass_context
def run_spec(ctx: click.Context, /, execute: bool, **options: Any) -> int:
    """Plan a file, or run it on this machine with `--execute`."""
    if execute:
        return int(ctx.invoke(run, **options))
    return _plan_of_steps(**options)


def _plan_of_steps(
    *,
    spec: Path,
    run_id: str | None,
    store: str | None,
    var: Sequence[str],
    catalogs: Sequence[Path],
    assume_decision: str | None,
    as_json: bool,
) -> int:
    from npa.cli.plan import DEFAULT_RUN_ID, plan_file, show_steps
    from npa.workflow.plan import plan_json

    output = Output(as_json=as_json)
    name = run_id or DEFAULT_RUN_ID
    planned = plan_file(spec, var, catalogs, run_id=name, store=store, assume=assume_decision)
    output.document(
        {
            "workflow": planned.plan.workflow,
            "run_id": name,
            "status": "planned",
            "steps": [
                {
                    "path": step.path,
                    "state": step.state,
                    "iteration": step.iteration,
                    "status": "planned",
                    "resources": step.profile.name,
                    "resources_profile": dict(step.profile.raw),
                    **_command(step.command.argv, step.command.shell, step.command.tool_ref),
                }
                for step in planned.plan.steps
            ],
            "plan": plan_json(planned.plan, planned.context),
            "run_prefix_uri": planned.context.run_uri,
        }
    )
    show_steps(output, planned.plan.steps)
    output.hint("`--execute` runs it on this machine")
    return ExitCode.OK


def _command(argv: Sequence[str], shell: str, tool_ref: str) -> dict[str, object]:
    whole = {"argv": list(argv), "shell": shell, "tool_ref": tool_ref}
    return {name: value for name, value in whole.items() if value}
