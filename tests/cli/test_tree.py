"""The tree of commands: complete, lazy, and helpful about a wrong name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import click
import pytest

from cli_harness import Golden, Run
from npa import __version__
from npa.cli.lazy import LazyGroup
from npa.cli.tree import WORKFLOW
from npa.cli.tree import npa as root


def commands(group: LazyGroup) -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, LazyGroup):
            found += [(f"{name} {inner}", leaf) for inner, leaf in commands(command)]
        else:
            found.append((name, command))
    return found


def test_each_entry_of_the_tables_leads_to_a_command_with_help() -> None:
    for name, command in commands(root):
        assert command.help, name
        assert name.split()[-1] == command.name


def test_workflow_is_short_for_workbench_workflow() -> None:
    names = {name for name, _ in commands(root)}
    for command in WORKFLOW:
        assert {f"workflow {command}", f"workbench workflow {command}"} <= names


@pytest.mark.parametrize(
    ("arguments", "never"),
    [
        (["--version"], {"click", "pydantic", "yaml", "rich", "obstore", "asyncio"}),
        (["--help"], {"pydantic", "yaml", "rich", "obstore", "npa.workflow", "asyncio"}),
        (["workflow", "--help"], {"pydantic", "yaml", "rich", "obstore", "npa.orchestration"}),
    ],
)
def test_what_only_prints_imports_nothing_heavy(arguments: list[str], never: set[str]) -> None:
    code = (
        "import sys; from npa.cli.main import main; main(sys.argv[1:]);"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert never & set(done.stderr.split()) == set()


def test_help_lists_the_groups(golden: Golden) -> None:
    golden("help", "--help")
    golden("help-workflow", "workflow", "--help")


def test_a_wrong_name_gets_a_suggestion(golden: Golden) -> None:
    golden("unknown-command", "workflow", "statsu")
    golden("unknown-command-at-the-root", "status")


def test_a_group_alone_shows_its_commands_and_is_a_usage_error(npa: Run) -> None:
    result = npa("workflow")
    assert result.code == 64
    assert "validate-spec" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("arguments", [["--version"], ["-V"], ["--version", "workflow"]])
def test_the_version_is_printed(npa: Run, arguments: list[str]) -> None:
    from npa import __version__

    assert npa(*arguments).stdout == f"npa {__version__}\n"


def ended(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A process that runs `console` after `code`, as the installed command does."""
    text = f"import sys; {code}; sys.argv = ['npa', '--version']; "
    text += "from npa.cli.main import console; console()"
    return subprocess.run(
        [sys.executable, "-c", text],
        text=True,
        timeout=60,
        **{"stdout": subprocess.PIPE, **options},
    )


def test_the_command_ends_without_taking_the_interpreter_down() -> None:
    said = ended("import atexit; atexit.register(print, 'late')")
    assert (said.returncode, said.stdout) == (0, f"npa {__version__}\n")


def test_a_thread_that_still_works_is_waited_for() -> None:
    said = ended(
        "import threading; "
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('done'))).start()"
    )
    assert (said.returncode, said.stdout) == (0, f"npa {__version__}\ndone\n")


def test_what_could_not_be_delivered_is_no_success() -> None:
    with open("/dev/full", "w") as full:
        said = ended("pass", stdout=full, stderr=subprocess.PIPE)
    assert said.returncode != 0
    assert "No space left on device" in said.stderr
