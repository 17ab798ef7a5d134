"""`validate-spec` and `explain`: what is wrong with a file, and what a code means."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npa.cli.exit_codes import ExitCode
from npa.cli.options import catalog_option, json_option, spec_argument, var_option
from npa.cli.output import Ink, Output, colour_wanted
from npa.cli.spec import load, plural, tools_of, with_missing_scripts
from npa.errors import UsageError

if TYPE_CHECKING:
    from npa.workflow.load import Loaded


@click.command("validate-spec")
@spec_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github", "sarif"]),
    default="text",
    show_default=True,
    help="How to report.",
)
@json_option
@var_option
@catalog_option
def validate_spec(
    spec: Path, form: str, as_json: bool, var: Sequence[str], catalogs: Sequence[Path]
) -> int:
    """Report every problem of a file, each with its place and a way out.

    Exits with 0 if there are no errors (warnings are fine), with 1 if there are.
    """
    form = "json" if as_json else form
    not_done = "the file was not judged"
    loaded = with_missing_scripts(load(spec, var, tools_of(catalogs), not_done=not_done), spec)
    output = Output(as_json=form == "json")
    match form:
        case "json":
            output.document(as_document(loaded, spec))
        case "github":
            from npa.workflow.diagnostics import render_github

            if text := render_github(loaded.diagnostics, filename=str(spec)):
                output.text(text)
        case "sarif":
            from npa.workflow.diagnostics import render_sarif
            from npa.workflow.explain import titles

            output.text(render_sarif(loaded.diagnostics, filename=str(spec), titles=titles()))
        case _:
            _report(output, loaded, spec)
    return ExitCode.FAILED if loaded.errors else ExitCode.OK


def as_document(loaded: Loaded, spec: Path) -> dict[str, object]:
    """The public JSON: `status`, `diagnostics`, and for a valid file what it holds."""
    document: dict[str, object] = {
        "status": "valid" if loaded.workflow else "invalid",
        "file": str(spec),
        "errors": len(loaded.errors),
        "warnings": len(loaded.diagnostics) - len(loaded.errors),
        "diagnostics": [item.as_json() for item in loaded.diagnostics],
    }
    if (workflow := loaded.workflow) is not None:
        document |= {
            "apiVersion": workflow.api_version,
            "name": workflow.name,
            "states": sorted(workflow.states),
            "initial": workflow.initial,
        }
    return document


def _report(output: Output, loaded: Loaded, spec: Path) -> None:
    from npa.workflow.diagnostics import render_text

    colour = colour_wanted(sys.stdout, os.environ)
    text = render_text(
        loaded.diagnostics, filename=str(spec), lines=loaded.source.lines, colour=colour
    )
    if text:
        output.text(text)
    errors = len(loaded.errors)
    warnings = len(loaded.diagnostics) - errors
    if loaded.workflow is not None:
        found = f", {plural(warnings, 'warning')}" if warnings else ""
        states = plural(len(loaded.workflow.states), "state")
        word = output.paint("valid", Ink.GOOD)
        output.line(f"{spec}: {word}, {states}{found}")
    else:
        output.line()
        output.line(f"{spec}: {plural(errors, 'error')}, {plural(warnings, 'warning')}")
        output.hint(f"`npa workflow explain {loaded.errors[0].code}` explains a code")


@click.command()
@click.argument("code", required=False)
@json_option
def explain(code: str | None, as_json: bool) -> None:
    """Explain a code of a file's problem, or one that a run or a command ended with.

    Without a code, list them all.
    """
    from npa.orchestration.reasons import reasons
    from npa.workflow import explain as files

    output = Output(as_json=as_json)
    pages = files.pages()
    if code is None:
        rows = [(page.code, page.severity.value, page.title) for page in pages.values()]
        rows += [(reason.code, "", reason.means) for reason in reasons().values()]
        output.table(("CODE", "SEVERITY", "MEANS"), rows)
        output.document(
            [
                *(page.as_json() for page in pages.values()),
                *(reason.as_json() for reason in reasons().values()),
            ]
        )
        return
    wanted = code.strip().upper()
    page = pages.get(wanted) or reasons().get(wanted)
    if page is None:
        raise _no_such_code(code, (*pages, *reasons()))
    output.line(page.text().rstrip("\n"))
    output.document(page.as_json())


def _no_such_code(code: str, known: Sequence[str]) -> UsageError:
    from npa.workflow.suggest import Suggester

    return UsageError(
        f"no such code '{code[:40]}'",
        hint=Suggester().did_you_mean(code.strip().upper(), known)
        or "`npa workflow explain` lists all codes",
    )
