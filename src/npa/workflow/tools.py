"""What the language needs to know of a tool: the seam to the catalogue, which stands above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct, field


class GangMode(Enum):
    FORBIDDEN = "forbidden"
    SHARDED = "sharded"


class ToolParam(Struct, frozen=True):
    """One typed parameter; it is read from the config key of the same name unless `key` differs.

    `kind` is one of string, int, float, bool, enum, uri, path, json; `unit` is for people.
    """

    name: str
    key: str
    kind: str = "string"
    required: bool = True
    default: str | None = None
    values: tuple[str, ...] = ()
    unit: str = ""
    summary: str = ""


class Tool(Struct, frozen=True):
    """A catalogue entry as the language sees it.

    `argv` is a template with tokens; `omit_when_empty` names flags that vanish together with their
    value when the value resolves to nothing; `config_defaults` are additive (the file wins).
    """

    ref: str
    argv: tuple[str, ...]
    summary: str = ""
    setup: str = ""
    params: tuple[ToolParam, ...] = ()
    config_defaults: Mapping[str, str] = field(default_factory=dict)
    omit_when_empty: tuple[str, ...] = ()
    gang: GangMode = GangMode.FORBIDDEN
    gang_activation_key: str = ""
    gang_output_key: str = ""
    gang_count_key: str = ""
    secrets: tuple[str, ...] = ()
    writes_decision: bool = False


class Tools(Protocol):
    def get(self, ref: str) -> Tool | None: ...

    def names(self) -> Sequence[str]: ...
