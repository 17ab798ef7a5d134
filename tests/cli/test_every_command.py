"""Every command's help, and what the commands on artifacts say, word for word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli_harness import Golden
from npa.cli.main import root


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that people see. `workbench workflow` is `workflow`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden or name == "workbench":
            continue
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


ALL = tuple(commands(root()))


def test_the_walk_finds_the_commands() -> None:
    assert {("run",), ("workflow", "submit"), ("skypilot", "stop"), ("artifact", "put")} <= {*ALL}
    assert len(ALL) >= 35


@pytest.mark.parametrize("words", ALL, ids="-".join)
def test_the_help_of_each_command(golden: Golden, words: tuple[str, ...]) -> None:
    golden(f"help/{'-'.join(words)}", *words, "--help")


def test_the_commands_on_artifacts(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    uri = (tmp_path / "store" / "a.json").as_uri()
    golden("artifact-put", "artifact", "put", "a.json", uri)
    golden("artifact-ls", "artifact", "ls", (tmp_path / "store").as_uri() + "/")
    golden("artifact-get", "artifact", "get", uri, "b.json")
    golden("artifact-get-missing", "artifact", "get", uri + ".no", "c.json")
