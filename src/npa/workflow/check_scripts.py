"""Scripts that a command names and that are not among the pipeline's files.

Which files there are is known outside of the language, so this rule is called apart, with them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection

from npa.workflow.codes import Code
from npa.workflow.diagnostics import Diagnostic, report
from npa.workflow.meaning import State, Workflow
from npa.workflow.suggest import Suggester

_SUFFIXES = {
    "python": (".py",),
    "python3": (".py",),
    "bash": (".sh", ".bash"),
    "sh": (".sh",),
    "node": (".js", ".mjs", ".cjs"),
}


def _nowhere(_name: str) -> bool:
    return False


def missing_scripts(
    workflow: Workflow, files: Collection[str], on_disk: Callable[[str], bool] = _nowhere
) -> tuple[Diagnostic, ...]:
    """A warning for each script that its step would not find. `files`: what will be staged.

    `on_disk` says whether a file that is not staged lies in the pipeline's folder all the same.
    Says nothing where something may make the file first: a `setup`, an image's own folder, tokens.
    """
    suggest = Suggester()
    found = []
    for state in workflow.states.values():
        number, name = _script(state)
        profile = workflow.resources.get(state.resources, {})
        if not name or "image" in profile or posixpath.normpath(name) in files:
            continue
        if on_disk(name):
            help_line = "it is there, but `.npaignore` or `.gitignore` leaves it out"
        else:
            help_line = suggest.did_you_mean(name, files) or "put it beside the pipeline's file"
        found.append(
            report(
                Code.SCRIPT_NOT_THERE,
                f"'{name[:80]}' is not among the files that are staged for '{state.name}'",
                workflow.positions,
                ("states", state.name, "run", "argv", number),
                help=help_line,
            )
        )
    return tuple(found)


def _script(state: State) -> tuple[int, str]:
    """The relative script of an interpreter's command, with its place in `argv`; "" if none."""
    if state.run is None or state.tool_ref or state.run.setup:
        return 0, ""
    argv = state.run.argv
    if len(argv) < 2 or any("{{" in word for word in argv[:2]):
        return 0, ""
    name = argv[1]
    plain = name.endswith(_SUFFIXES.get(argv[0], ("\0",))) and not name.startswith(("-", "/", "~"))
    return (1, name) if plain and ".." not in name.split("/") else (0, "")
