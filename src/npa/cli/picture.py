"""`graph`: a file drawn as Mermaid, Graphviz, SVG or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npa.cli.options import catalog_option, spec_argument, var_option
from npa.cli.output import Output, to_json
from npa.cli.spec import require, tools_of
from npa.errors import UsageError

if TYPE_CHECKING:
    from npa.workflow.graph import Graph


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
