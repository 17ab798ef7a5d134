"""`fmt --check`: is a file laid out in the canonical way?"""

from __future__ import annotations

from pathlib import Path

import click

from npa.cli.exit_codes import ExitCode
from npa.cli.options import json_option, spec_argument
from npa.cli.output import Output
from npa.cli.spec import SpecInvalid, load, plural
from npa.errors import UsageError


@click.command()
@spec_argument
@click.option("--check", is_flag=True, help="Report what is not canonical, and change nothing.")
@json_option
def fmt(spec: Path, check: bool, as_json: bool) -> int:
    """Check the order and spelling of keys, indentation and line ends.

    Exits with 0 if the file is canonical, with 1 if not. Files are never rewritten.
    """
    from npa.catalog.loader import Catalog
    from npa.workflow.style import remarks

    if not check:
        raise UsageError(
            "`fmt` does not rewrite files, because comments would be lost",
            not_done="nothing was changed",
            next_command=f"npa workflow fmt --check {spec}",
        )
    source = load(spec, (), Catalog.built_in()).source
    if not source.usable:
        raise SpecInvalid(
            f"`{spec}` is not readable as YAML",
            not_done="its layout was not looked at",
            next_command=f"npa workflow validate-spec {spec}",
        )
    found = remarks(source.text)
    output = Output(as_json=as_json)
    for remark in found:
        output.line(f"{spec}:{remark.line}:{remark.column} {remark.message}")
    output.line(f"{spec}: {plural(len(found), 'remark') if found else 'canonical'}")
    output.document(
        {
            "file": str(spec),
            "canonical": not found,
            "remarks": [
                {"line": item.line, "column": item.column, "message": item.message}
                for item in found
            ],
        }
    )
    return ExitCode.FAILED if found else ExitCode.OK
