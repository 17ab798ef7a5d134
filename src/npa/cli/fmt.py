"""`fmt`: lays a file out in the canonical way, or says what is not."""

from __future__ import annotations

import difflib
import os
import shlex
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npa.cli.exit_codes import ExitCode
from npa.cli.options import json_option, spec_argument
from npa.cli.output import Output
from npa.cli.spec import SpecInvalid, load, plural
from npa.errors import UsageError

if TYPE_CHECKING:
    from npa.workflow.style import Remark


@click.command()
@spec_argument
@click.option("--check", is_flag=True, help="Report what is not canonical, and change nothing.")
@click.option("--diff", is_flag=True, help="Show what would change, and change nothing.")
@json_option
def fmt(spec: Path, check: bool, diff: bool, as_json: bool) -> int:
    """Lay a file out anew, in place: order and spelling of keys, indentation, line ends.

    Comments, quotes and line breaks stay, and the file means the same. Exits with 0 if it is
    canonical then, with 1 if something is left to do by hand; with `--check` or `--diff`, which
    write nothing, with 1 if it is not canonical.
    """
    from npa.workflow.layout import laid_out
    from npa.workflow.style import remarks

    if diff and as_json:
        raise click.UsageError("`--diff` is text; `--check --json` has the remarks")
    text = _readable(spec)
    made = laid_out(text)
    output = Output(as_json=as_json)
    if diff:
        _show_diff(output, spec, text, made)
    changed = made != text
    if changed and not (check or diff):
        _write(spec, made)
        found = remarks(made)
    else:
        found = remarks(text)
    rewritten = changed and not (check or diff)
    if not diff:
        _tell(output, spec, found, rewritten=rewritten)
    return ExitCode.FAILED if found or (changed and not rewritten) else ExitCode.OK


def _readable(spec: Path) -> str:
    from npa.catalog.loader import Catalog
    from npa.workflow.layout import is_workflow
    from npa.workflow.model import API_VERSIONS

    source = load(spec, (), Catalog.built_in()).source
    if not source.usable:
        raise SpecInvalid(
            f"`{spec}` is not readable as YAML",
            not_done="its layout was not looked at",
            next_command=f"npa workflow validate-spec {spec}",
        )
    if not is_workflow(source.value):
        raise SpecInvalid(
            f"`{spec}` is no workflow of ours: it does not say so by `apiVersion` and `kind`",
            not_done="its layout was not looked at",
            hint=f"a workflow begins with `apiVersion: {API_VERSIONS[0]}` and `kind: Workflow`",
            next_command=f"npa workflow validate-spec {spec}",
        )
    return source.text


def _show_diff(output: Output, spec: Path, text: str, made: str) -> None:
    before, after = text.splitlines(keepends=True), made.splitlines(keepends=True)
    for line in difflib.unified_diff(before, after, str(spec), str(spec)):
        output.line(line.rstrip("\r\n"))


def _tell(output: Output, spec: Path, found: tuple[Remark, ...], *, rewritten: bool) -> None:
    for remark in found:
        output.line(f"{spec}:{remark.line}:{remark.column} {remark.message}")
    left = plural(len(found), "remark") if found else "canonical"
    output.line(f"{spec}: laid out anew, {left}" if rewritten else f"{spec}: {left}")
    output.document(
        {
            "file": str(spec),
            "canonical": not found,
            "changed": rewritten,
            "remarks": [
                {"line": item.line, "column": item.column, "message": item.message}
                for item in found
            ],
        }
    )


def _write(spec: Path, text: str) -> None:
    """Replace the file as a whole, with the owner and the mode that it had, if we may give them.

    A symbolic link keeps its target. Raises UsageError if the file cannot be written, or has more
    names: the others would keep the old text.
    """
    path = spec.resolve()
    spare = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        before = path.stat()
        if before.st_nlink > 1:
            raise UsageError(
                f"`{spec}` has {before.st_nlink} hard links, of which a new file would cut one",
                not_done="nothing was changed",
                hint="`--diff` shows what would change",
                next_command=shlex.join(["npa", "workflow", "fmt", "--diff", str(spec)]),
            )
        made = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(made, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                _own_as(made, before)
                os.fchmod(made, stat.S_IMODE(before.st_mode))
            spare.replace(path)
        finally:
            spare.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"`{spec}` cannot be written: {error.strerror}", not_done="nothing was changed"
        ) from error


def _own_as(number: int, before: os.stat_result) -> None:
    """Owner and group as they were; the group alone where the owner is not ours to give."""
    for owner in (before.st_uid, -1):
        with suppress(PermissionError):
            os.fchown(number, owner, before.st_gid)
            return
