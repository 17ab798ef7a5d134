"""`graph`, `describe` and `schema`: a file drawn, what can be set in it, and the format itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npa.cli.options import catalog_option, json_option, pairs, spec_argument, var_option
from npa.cli.output import Output, to_json
from npa.cli.spec import require, require_loaded, tools_of
from npa.errors import UsageError

if TYPE_CHECKING:
    from npa.workflow.describe import Override
    from npa.workflow.graph import Graph


_VALUE_WIDTH = 40


@click.command()
@spec_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "svg", "json"]),
    help="How to draw.  [default: by the ending of --output, else mermaid]",
)
@click.option("-o", "--output", "target", metavar="FILE", help="Write to a file.")
@var_option
@catalog_option
def graph(
    spec: Path,
    form: str | None,
    target: str | None,
    var: Sequence[str],
    catalogs: Sequence[Path],
) -> None:
    """Draw the pipeline."""
    from npa.workflow.graph import compile_graph

    form = form or _form_of(target)
    workflow = require(spec, var, tools_of(catalogs), not_done="nothing was drawn")
    output = Output()
    text = _draw(compile_graph(workflow), form)
    if target is None:
        output.text(text)
        return
    try:
        Path(target).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"`{target}` cannot be written: {error.strerror}", not_done="nothing was drawn"
        ) from error
    output.line(target)


def _form_of(target: str | None) -> str:
    endings = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".json": "json"}
    return endings.get(Path(target or "").suffix, "mermaid")


def _draw(compiled: Graph, form: str) -> str:
    from npa.workflow import drawing

    match form:
        case "json":
            return to_json(drawing.graph_json(compiled))
        case "svg":
            from npa.workflow.svg import svg

            return svg(drawing.draw(compiled))
        case "dot":
            return drawing.dot(drawing.draw(compiled))
        case _:
            return drawing.mermaid(drawing.draw(compiled))


@click.command()
@spec_argument
@var_option
@catalog_option
@json_option
def describe(spec: Path, var: Sequence[str], catalogs: Sequence[Path], as_json: bool) -> None:
    """List what can be set with `--var`: each key, its type, its value and where it is used.

    It also says what overrides a value: a `--var`, or a param that a state sets for itself.
    """
    from npa.workflow.describe import describe as describe_workflow

    tools = tools_of(catalogs)
    workflow, loaded = require_loaded(spec, var, tools, not_done="nothing was described")
    found = describe_workflow(workflow, tools, pairs(var, "--var"), loaded.source.value)
    output = Output(as_json=as_json)
    output.document(found.as_json())
    output.line(f"{found.name}: {found.description.strip()}" if found.description else found.name)
    output.line()
    output.table(
        ("KEY", "TYPE", "VALUE", "USED IN", "OVERRIDDEN IN"),
        [
            (
                item.key,
                item.type,
                _short(item.value),
                ", ".join(item.uses) or "-",
                "; ".join(map(_override, item.overridden)) or "-",
            )
            for item in found.keys
        ],
    )
    output.hint("every key also reaches the tasks, in the JSON of NPA_PARAMS")


def _override(item: Override) -> str:
    """`--var, was 2`; `states.b.params.limit = 3`."""
    if item.where == "--var":
        return "--var" if item.instead_of is None else f"--var, was {_short(item.instead_of)}"
    return f"{item.where} = {_short(item.value)}"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = " ".join(text.split())
    return line if len(line) <= _VALUE_WIDTH else line[: _VALUE_WIDTH - 1] + "…"


@click.command()
def schema() -> None:
    """Print the JSON Schema of the format, for editors."""
    from npa.workflow.schema import shipped_schema_text

    Output().text(shipped_schema_text())
