"""The tree of commands as tables: names, where each lies, and its line in the list."""

from __future__ import annotations

import click

from npa.cli.lazy import Lazy, LazyGroup

_AUTHOR = "Write and check"
_RUN = "Run and watch"
_LEARN = "Look up"

WORKFLOW = {
    "new": Lazy("npa.cli.new:new", "write a first pipeline from a template", _AUTHOR),
    "validate-spec": Lazy(
        "npa.cli.validate:validate_spec", "report every problem of a file", _AUTHOR
    ),
    "fmt": Lazy("npa.cli.fmt:fmt", "lay a file out, or check its layout", _AUTHOR),
    "plan-spec": Lazy("npa.cli.plan:plan_spec", "show the steps or waves that would run", _AUTHOR),
    "graph": Lazy("npa.cli.picture:graph", "draw the pipeline", _AUTHOR),
    "describe": Lazy("npa.cli.picture:describe", "list what can be set with --var", _AUTHOR),
    "submit": Lazy("npa.cli.submit:submit", "start a run", _RUN),
    "run-spec": Lazy("npa.cli.submit:run_spec", "plan a file, or run it here with --execute", _RUN),
    "status": Lazy("npa.cli.status:status", "say how a run stands", _RUN),
    "logs": Lazy("npa.cli.logs:logs", "print what the tasks wrote", _RUN),
    "artifacts": Lazy("npa.cli.artifacts:artifacts", "list what a run has produced", _RUN),
    "list": Lazy("npa.cli.status:list_runs", "list runs", _RUN),
    "cancel": Lazy("npa.cli.control:cancel", "cancel a run and prove it", _RUN),
    "resume": Lazy("npa.cli.control:resume", "go on with a run that has no driver", _RUN),
    "drive-detached": Lazy("npa.cli.control:drive_detached", "", ""),
    "explain": Lazy(
        "npa.cli.validate:explain", "explain a code with a wrong and a right example", _LEARN
    ),
    "schema": Lazy("npa.cli.picture:schema", "print the JSON Schema for editors", _LEARN),
    "tools": Lazy("npa.cli.tools:tools", "list the tools, or explain one", _LEARN),
    "gpus": Lazy("npa.cli.gpus:gpus", "list the accelerators of a cluster", _LEARN),
}


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from npa import __version__

        click.echo(f"npa {__version__}")
        ctx.exit()


workflow = LazyGroup("workflow", WORKFLOW, help="Pipelines: write, check, run, watch.")

workbench = LazyGroup(
    "workbench",
    {"workflow": Lazy("npa.cli.tree:workflow", "pipelines: write, check, run, watch")},
    help="The workbench's tools.",
)

npa = LazyGroup(
    "npa",
    {
        "run": Lazy("npa.cli.submit:run", "run a pipeline on this machine"),
        "workbench": Lazy(
            "npa.cli.tree:workbench", "pipelines and the other tools of the workbench"
        ),
        "workflow": Lazy("npa.cli.tree:workflow", "short for `npa workbench workflow`"),
        "artifact": Lazy("npa.cli.artifact:artifact", "read and write artifacts by URI"),
        "burst": Lazy("npa.cli.burst:burst", "run one SkyPilot task"),
        "skypilot": Lazy("npa.cli.skypilot:skypilot", "SkyPilot's environment and API servers"),
        "completion": Lazy("npa.cli.shell:completion", "print the completion script of a shell"),
        "exit-codes": Lazy("npa.cli.shell:exit_codes", "list every exit code and what it means"),
    },
    help=(
        "Run pipelines of robotics and physical-AI teams, on this machine or on GPU clusters, "
        "with truth under failure."
    ),
    elsewhere={name: f"workflow {name}" for name, entry in WORKFLOW.items() if entry.section},
)
npa.params.append(
    click.Option(
        ["--version", "-V"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_version,
        help="Show the version and exit.",
    )
)
