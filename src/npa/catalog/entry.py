"""A catalogue entry as the rest of the program sees it: whole, frozen, and cheap to build.

An entry holds every fact about a tool: what runs, what it reads and writes, what it needs. It is
built from YAML through `npa.catalog.model`, or from the compiled form through `from_json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from npa.workflow.tools import GangMode, Tool, ToolParam


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: the config key that it is read from, and what it means.

    `role` is empty, `input`, `output` or `decision`; `schema` names what lies there, and `file` the
    object that the tool reads or writes below a prefix. `kind` is one of ToolParam's.
    """

    name: str
    key: str
    kind: str = "string"
    required: bool = True
    default: str | None = None
    values: tuple[str, ...] = ()
    unit: str = ""
    summary: str = ""
    role: str = ""
    schema: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A third-party package, installed when `probe` fails.

    `probe` is the name of an executable, or `python:` and a module to import (with checks).
    """

    requirement: str
    probe: str


@dataclass(frozen=True, slots=True)
class Gang:
    """How several nodes share the work: the config keys that switch it on, and what it counts."""

    mode: str = "forbidden"
    activation_key: str = ""
    output_key: str = ""
    count_key: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the tool asks of accelerators: how many at least on a node, and special hardware."""

    min_count: int = 0
    rt_cores: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """All facts about one tool.

    `command` and `args` are templates with tokens; `args` keeps the flags with their values.
    `image` is a key of the catalogue's images, or a full reference if it holds a `/`.
    `secrets` must be set at submit, `optional_secrets` are handed over when set.
    `setup` and `preamble` name pieces that the renderer knows; `setup_shell` is text.
    `checkpoint_loader` names what can resume inside the stage. `source` is the file of the entry.
    """

    ref: str
    command: tuple[str, ...]
    summary: str = ""
    family: str = ""
    args: tuple[tuple[str, ...], ...] = ()
    params: tuple[Param, ...] = ()
    config_defaults: Mapping[str, str] = field(default_factory=dict)
    omit_when_empty: tuple[str, ...] = ()
    image: str = ""
    extra: str = ""
    requirements: tuple[Requirement, ...] = ()
    interpreters: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    optional_secrets: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    licence: str = ""
    gang: Gang = Gang()
    gpu: Gpu = Gpu()
    setup: str = ""
    setup_shell: str = ""
    preamble: str = ""
    checkpoint_loader: str = ""
    writes_decision: bool = False
    alias_of: str = ""
    source: str = ""

    def tool(self) -> Tool:
        """The part that the language needs."""
        return Tool(
            ref=self.ref,
            argv=self.command + tuple(word for words in self.args for word in words),
            summary=self.summary,
            setup=self.setup_shell,
            params=tuple(_tool_param(param) for param in self.params),
            config_defaults=self.config_defaults,
            omit_when_empty=self.omit_when_empty,
            gang=GangMode(self.gang.mode),
            gang_activation_key=self.gang.activation_key,
            gang_output_key=self.gang.output_key,
            gang_count_key=self.gang.count_key,
            secrets=self.secrets,
            writes_decision=self.writes_decision,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data without what has its default; `from_json` reads it."""
        plain = asdict(self)
        blank = asdict(Entry(ref="", command=()))
        kept = {name: value for name, value in plain.items() if value != blank[name]}
        if "params" in kept:
            kept["params"] = [_sparse(param, _BLANK_PARAM) for param in kept["params"]]
        return kept


def from_json(data: Mapping[str, Any]) -> Entry:
    """An entry out of its plain form."""
    values = dict(data)
    for name in _TUPLES & values.keys():
        values[name] = tuple(values[name])
    if "args" in values:
        values["args"] = tuple(tuple(words) for words in values["args"])
    if "params" in values:
        values["params"] = tuple(
            Param(**{**param, "values": tuple(param.get("values", ()))})
            for param in values["params"]
        )
    if "requirements" in values:
        values["requirements"] = tuple(Requirement(**item) for item in values["requirements"])
    if "gang" in values:
        values["gang"] = Gang(**values["gang"])
    if "gpu" in values:
        values["gpu"] = Gpu(**values["gpu"])
    return Entry(**values)


_TUPLES = frozenset(["command", "omit_when_empty", "interpreters", "secrets", "optional_secrets"])
_BLANK_PARAM = asdict(Param("", ""))
_TOOL_PARAM_FIELDS = ToolParam.__struct_fields__


def _sparse(values: Mapping[str, Any], blank: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != blank[name]}


def _tool_param(param: Param) -> ToolParam:
    return ToolParam(**{name: getattr(param, name) for name in _TOOL_PARAM_FIELDS})
