"""Groups whose commands are imported when they are called, and not to be listed.

`npa --help` needs only the table of names and summaries; the module of a command, and all that it
imports, is loaded when the command runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

import click
import click.shell_completion
from msgspec import Struct


class Lazy(Struct, frozen=True):
    """Where a command lies (`package.module:attribute`), and its line in the list."""

    target: str
    summary: str
    section: str = "Commands"  # "" hides the command


class LazyGroup(click.Group):
    """A click group over a table of `Lazy` entries."""

    def __init__(
        self,
        name: str,
        table: Mapping[str, Lazy],
        *,
        help: str,  # noqa: A002
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, help=help)
        self.table = table
        self.elsewhere = dict(elsewhere or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.target} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            raise click.UsageError(unknown(name, "command", self._spellings()), ctx)
        return super().resolve_command(ctx, args)

    def _spellings(self) -> dict[str, str]:
        """What may have been meant: our commands, and at the root those of `npa workflow` too."""
        return self.elsewhere | {name: name for name, entry in self.table.items() if entry.section}

    def shell_complete(
        self,
        ctx: click.Context,
        incomplete: str,
    ) -> list[click.shell_completion.CompletionItem]:
        """Names and summaries from the table: completing a name imports no command."""
        item = click.shell_completion.CompletionItem
        names = [
            name
            for name, entry in self.table.items()
            if entry.section and name.startswith(incomplete)
        ]
        own = [item(name, help=self.table[name].summary) for name in names]
        return own + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {name: entry for name, entry in self.table.items() if entry.section}
        sections = dict.fromkeys(entry.section for entry in shown.values())
        width = max(len(name) for name in shown)
        for section in sections:
            rows = [
                (name.ljust(width), entry.summary)
                for name, entry in shown.items()
                if entry.section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)


def unknown(name: str, kind: str, known: Mapping[str, str] | Sequence[str]) -> str:
    """`unknown command 'statsu', did you mean 'status'?`

    `known` may map a name to how it has to be written (`status` to `workflow status`).
    """
    spelt = known if isinstance(known, Mapping) else {word: word for word in known}
    import difflib

    close = difflib.get_close_matches(name, list(spelt), n=1)
    return f"unknown {kind} {name!r}" + (f", did you mean {spelt[close[0]]!r}?" if close else "")
