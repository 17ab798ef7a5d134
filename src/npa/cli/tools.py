"""`tools`: the catalogue for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npa.cli.lazy import unknown
from npa.cli.options import catalog_option, json_option
from npa.cli.output import Output
from npa.cli.spec import plural, tools_of
from npa.errors import UsageError

if TYPE_CHECKING:
    from npa.workflow.tools import Tool, Tools


@click.command()
@click.argument("name", required=False)
@catalog_option
@json_option
def tools(name: str | None, catalogs: Sequence[Path], as_json: bool) -> None:
    """List the tools that `toolRef` may name, or explain one."""
    output = Output(as_json=as_json)
    known = tools_of(catalogs)
    if name is None:
        _list(output, known)
        return
    tool = known.get(name)
    if tool is None:
        raise UsageError(
            unknown(name, "tool", list(known.names())), next_command="npa workflow tools"
        )
    output.document(tool_document(tool))
    _explain(output, tool)


def _list(output: Output, known: Tools) -> None:
    found = [tool for name in known.names() if (tool := known.get(name)) is not None]
    output.table(("TOOL", "WHAT IT DOES"), [(tool.ref, tool.summary) for tool in found])
    output.document([{"ref": tool.ref, "summary": tool.summary} for tool in found])
    output.note(plural(len(found), "tool"))


def _explain(output: Output, tool: Tool) -> None:
    output.line(f"{tool.ref}: {tool.summary}" if tool.summary else tool.ref)
    output.line(f"  runs      {' '.join(tool.argv)}")
    if tool.secrets:
        output.line(f"  secrets   {', '.join(tool.secrets)}")
    output.line(f"  gang      {tool.gang.value}")
    if tool.params:
        output.line()
        output.table(
            ("CONFIG KEY", "TYPE", "DEFAULT", "MEANING"),
            [
                (
                    param.key,
                    "|".join(param.values) or param.kind,
                    "(required)" if param.required else (param.default or ""),
                    " ".join(part for part in (param.summary, param.unit) if part),
                )
                for param in tool.params
            ],
        )


def tool_document(tool: Tool) -> dict[str, object]:
    """The JSON of one tool."""
    return {
        "ref": tool.ref,
        "summary": tool.summary,
        "argv": list(tool.argv),
        "setup": tool.setup,
        "gang": tool.gang.value,
        "secrets": list(tool.secrets),
        "writes_decision": tool.writes_decision,
        "params": [
            {
                "name": param.name,
                "key": param.key,
                "kind": param.kind,
                "required": param.required,
                "default": param.default,
                "values": list(param.values),
                "unit": param.unit,
                "summary": param.summary,
            }
            for param in tool.params
        ],
    }
