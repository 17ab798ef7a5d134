"""Tools for tests: a few made-up entries, and the public catalogue's interface facts as data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from npa.workflow.tools import GangMode, Tool, ToolParam


class DictTools:
    """The tools seam over a dict."""

    def __init__(self, *tools: Tool) -> None:
        self._tools: Mapping[str, Tool] = {tool.ref: tool for tool in tools}

    def get(self, ref: str) -> Tool | None:
        return self._tools.get(ref)

    def names(self) -> Sequence[str]:
        return sorted(self._tools)


NO_TOOLS = DictTools()

SAMPLE_TOOLS = DictTools(
    Tool(
        "demo.train",
        ("train", "--lr", "{{config.learning_rate}}", "--out", "{{config.output_uri}}"),
        params=(
            ToolParam("learning-rate", "learning_rate", kind="float"),
            ToolParam("output", "output_uri", kind="uri"),
            ToolParam("mode", "mode", kind="enum", required=False, values=("fast", "full")),
        ),
    ),
    Tool(
        "demo.shards",
        ("shards", "{{config.shard_count}}"),
        gang=GangMode.SHARDED,
        gang_activation_key="shard_mode",
        gang_output_key="shard_uri",
        gang_count_key="shard_count",
    ),
    Tool("demo.plain", ("plain",)),
    Tool("demo.defaults", ("x", "{{config.depth}}"), config_defaults={"depth": "3"}),
)


def specs_folder() -> Path:
    """Where public specs are looked for; tests skip when the folder is not there."""
    beside = Path(__file__).parents[2] / ".." / "shared" / "specs"
    return Path(os.environ.get("NPA_COMPAT_SPECS", beside))


@cache
def public_tools(facts: Path) -> DictTools:
    """The public catalogue's entries as the language sees them."""
    data = yaml.safe_load(facts.read_text(encoding="utf-8"))
    return DictTools(*(_public_tool(ref, entry) for ref, entry in data["tools"].items()))


def _public_tool(ref: str, entry: dict[str, object]) -> Tool:
    argv: list[str] = list(entry.get("command", ()))  # type: ignore[call-overload]
    for group in entry.get("args", ()):  # type: ignore[attr-defined]
        argv.extend(group)
    keys = entry.get("config_keys", ())
    return Tool(
        ref=ref,
        argv=tuple(map(str, argv)),
        params=tuple(ToolParam(key, key) for key in keys),  # type: ignore[attr-defined]
        config_defaults=entry.get("config_defaults", {}),  # type: ignore[arg-type]
        omit_when_empty=tuple(entry.get("omit_when_empty", ())),  # type: ignore[arg-type]
        gang=GangMode(entry.get("multi_node", "forbidden")),
        gang_activation_key=str(entry.get("shard_activation_key", "")),
        gang_output_key=str(entry.get("shard_output_key", "")),
        gang_count_key=str(entry.get("variant_count_key", "")),
    )
