"""`new`: a first pipeline from a template that runs as it is."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from npa.cli.options import json_option
from npa.cli.output import Output
from npa.errors import UsageError

TEMPLATES = {
    "single": "one step that writes one artifact",
    "chain": "three steps, each reading what the one before it wrote",
    "sweep": "the same step for each item of a list, then a step that reads all results",
    "gate": "measure a model, and publish or reject it by the measured number",
    "loop": "train and grade until the measured number is good enough",
    "gang": "one step on two nodes that know their rank",
}

SCHEMA_NAME = "npa.workflow.schema.json"  # as the first line of each template names it


def template_text(name: str) -> str:
    """The text of a template. It is data of the package."""
    return (files("npa.cli") / "templates" / f"{name}.yaml").read_text()


@click.command()
@click.argument("template", type=click.Choice(list(TEMPLATES)), required=False)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    help="Where to write it; `-` prints it.  [default: TEMPLATE.yaml]",
)
@json_option
def new(template: str | None, target: str | None, as_json: bool) -> None:
    """Write a first pipeline from a template; without a name, list the templates."""
    output = Output(as_json=as_json)
    if template is None:
        output.table(("TEMPLATE", "WHAT IT SHOWS"), list(TEMPLATES.items()))
        output.document([{"template": name, "summary": text} for name, text in TEMPLATES.items()])
        return
    if target == "-":
        output.text(template_text(template))
        return
    path = Path(target or f"{template}.yaml")
    _write_new(path, template_text(template))
    output.line(str(path))
    output.document({"template": template, "path": str(path)})
    output.hint(f"check it with `npa workflow validate-spec {path}`, run it with `npa run {path}`")
    schema = path.with_name(SCHEMA_NAME)
    output.hint(f"`npa workflow schema > {schema}` lets an editor complete and check it")


def _write_new(path: Path, text: str) -> None:
    """Create the file; one that exists is never overwritten."""
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"`{path}` exists",
            not_done="nothing was written",
            hint="choose another name with `--output`",
        ) from None
    except OSError as error:
        raise UsageError(
            f"`{path}` cannot be written: {error.strerror}", not_done="nothing was written"
        ) from error
