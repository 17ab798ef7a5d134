"""A workflow file on the command line: load it, show what is wrong with it, or refuse it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from npa.cli.options import pairs
from npa.cli.output import Output, colour_wanted
from npa.errors import NpaError, UsageError

if TYPE_CHECKING:
    from npa.orchestration.raw_task import RawTask
    from npa.workflow.diagnostics import Diagnostic
    from npa.workflow.load import Loaded
    from npa.workflow.meaning import Workflow
    from npa.workflow.tools import Tools


WARNINGS_MAX = 5  # shown by a command that goes on; `validate-spec` shows all


class SpecInvalid(NpaError):
    """The file has errors; they were shown."""

    code = "SPEC_INVALID"


def tools_of(catalogs: Sequence[Path]) -> Tools:
    """The built-in catalogue, and the user's own over it. Raises UsageError."""
    from npa.catalog.loader import Catalog

    return Catalog.load(*catalogs)


def load(spec: Path, var: Sequence[str], tools: Tools, *, not_done: str = "") -> Loaded:
    """The file as loaded, with all its problems.

    Raises UsageError if it cannot be read, and if nothing but `--var` is wrong.
    """
    from npa.workflow.load import load_file
    from npa.workflow.overrides import of_overrides, with_misfits

    overrides = pairs(var, "--var")
    loaded = with_misfits(load_file(spec, tools=tools, overrides=overrides), overrides)
    if overrides and (wrong := of_overrides(loaded, overrides)):
        raise _wrong_vars(wrong, spec, not_done)
    return loaded


def _wrong_vars(wrong: Sequence[Diagnostic], spec: Path, not_done: str) -> UsageError:
    describe = shlex.join(["npa", "workflow", "describe", str(spec)])
    if len(wrong) == 1:
        (one,) = wrong
        return UsageError(one.message, not_done=not_done, hint=one.help, next_command=describe)
    lines = [f"  {one.message}" + (f"; {one.help}" if one.help else "") for one in wrong]
    return UsageError(
        "\n".join([f"{len(wrong)} values of `--var` cannot be used", *lines]),
        not_done=not_done,
        next_command=describe,
    )


def require(spec: Path, var: Sequence[str], tools: Tools, *, not_done: str) -> Workflow:
    """The workflow, or SpecInvalid after its problems went to stderr. Warnings do not stop."""
    return require_loaded(spec, var, tools, not_done=not_done)[0]


def require_loaded(
    spec: Path, var: Sequence[str], tools: Tools, *, not_done: str
) -> tuple[Workflow, Loaded]:
    """As `require`, with all that was loaded: `prepare` need not load the same text again."""
    loaded = load(spec, var, tools, not_done=not_done)
    if loaded.workflow is None:
        Output().note(_problems(loaded, spec).rstrip("\n"))
        count = len(loaded.errors)
        raise SpecInvalid(
            f"`{spec}` has {plural(count, 'error')}",
            not_done=not_done,
            hint="`npa workflow explain CODE` explains a code",
            next_command=_next_command(spec, var),
        )
    return loaded.workflow, loaded


def _next_command(spec: Path, var: Sequence[str]) -> str:
    """The command that shows the same problems."""
    options = [word for pair in var for word in ("--var", pair)]
    return shlex.join(["npa", "workflow", "validate-spec", str(spec), *options])


def require_submittable(
    spec: Path, var: Sequence[str], tools: Tools, *, not_done: str
) -> tuple[Workflow, Loaded, RawTask | None]:
    """As `require_loaded`; a SkyPilot file of one task counts too, as a workflow of one state."""
    from npa.orchestration.raw_task import is_raw, read_raw, workflow_text
    from npa.workflow.load import load_text

    text = _text(spec)
    if not is_raw(text):
        return *require_loaded(spec, var, tools, not_done=not_done), None
    if var:
        raise UsageError(
            f"{spec} is a SkyPilot file, and has no config that `--var` could set",
            not_done=not_done,
            hint="write the value into the file",
        )
    raw = read_raw(text, str(spec))
    loaded = load_text(workflow_text(text, str(spec)), filename=str(spec), tools=tools)
    if loaded.workflow is None:
        said = "; ".join(problem.message for problem in loaded.errors)
        raise UsageError(f"{spec}: {said}", not_done=not_done, code="RAW_TASK")
    return loaded.workflow, loaded, raw


def with_missing_scripts(loaded: Loaded, spec: Path) -> Loaded:
    """With a warning for each script that is not among the files beside the pipeline."""
    from npa.orchestration.source_listing import Limits, list_files
    from npa.workflow.check_scripts import missing_scripts
    from npa.workflow.diagnostics import in_order

    workflow = loaded.understood
    # Without files every script is missing: only then is the folder listed.
    if workflow is None or not missing_scripts(workflow, ()):
        return loaded
    folder = spec.resolve().parent
    try:
        files = list_files(folder, Limits(), os.environ).paths
    except (NpaError, OSError):
        return loaded  # what cannot be staged is told at submit
    found = missing_scripts(workflow, frozenset(files), lambda name: (folder / name).is_file())
    return replace(loaded, diagnostics=tuple(in_order([*loaded.diagnostics, *found])))


def show_warnings(loaded: Loaded, spec: Path) -> None:
    """On stderr, what is odd about a file that is about to be used; it stops nothing."""
    from npa.workflow.diagnostics import render_text

    warnings = with_missing_scripts(loaded, spec).diagnostics
    if not warnings:
        return
    shown, output = warnings[:WARNINGS_MAX], Output()
    colour = colour_wanted(sys.stderr, os.environ)
    lines = loaded.source.lines
    output.note(render_text(shown, filename=str(spec), lines=lines, colour=colour).rstrip("\n"))
    if len(warnings) > len(shown):
        more = plural(len(warnings) - len(shown), "more warning")
        output.hint(f"{more}: {shlex.join(['npa', 'workflow', 'validate-spec', str(spec)])}")


def _text(spec: Path) -> str:
    """The text, "" if it cannot be read: who needs it says why."""
    try:
        return spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _problems(loaded: Loaded, spec: Path) -> str:
    from npa.workflow.diagnostics import render_text

    colour = colour_wanted(sys.stderr, os.environ)
    return render_text(loaded.errors, filename=str(spec), lines=loaded.source.lines, colour=colour)


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
