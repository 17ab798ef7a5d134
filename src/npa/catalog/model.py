"""What a catalogue file may say: one YAML mapping, checked here, turned into entries.

    catalogue: npa.catalog/v1
    family: vlm_eval                  # tools are named family.name; without it, by their full names
    images: {cosmos: registry/name:tag}
    defaults: {image: cosmos}         # any field of a tool; a tool's own value wins
    tools:
      run:
        summary: score one rollout
        command: [npa, workbench, vlm-eval, run]
        args:
        - [--input-path, '{{config.rollouts_uri}}']
        params:
          rollouts_uri: {kind: uri, role: input, summary: the rollouts to score}

    schemas:                          # what an output of that `schema` must hold, as JSON Schema
      report.v1: {type: object, required: [success_rate]}

Parameters that `args` mention and `params` does not describe are required strings.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from npa.catalog.entry import Entry, Gang, Gpu, Param, Requirement
from npa.workflow.payload import SchemaUnusable, read_schema

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$", max_length=120)]
ConfigKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", max_length=120)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=120)]
Word = Annotated[str, StringConstraints(max_length=20_000)]
Scalar = str | int | float | bool

_TOKEN = re.compile(r"\{\{\s*config\.([A-Za-z0-9_-]+)")
_CONTRACT_FIELDS = ("activation_key", "output_key", "count_key")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ParamModel(_Strict):
    """One parameter, by the config key of its name (or `key`)."""

    kind: Literal["string", "int", "float", "bool", "enum", "uri", "path", "json"] = "string"
    key: ConfigKey | None = None
    required: bool | None = None
    default: Scalar | None = None
    values: list[str] = Field(default_factory=list)
    unit: str = ""
    summary: str = ""
    role: Literal["", "input", "output", "decision"] = ""
    schema_: str = Field(default="", alias="schema")
    file: str = ""

    @model_validator(mode="after")
    def _sound(self) -> ParamModel:
        if (self.kind == "enum") != bool(self.values):
            raise ValueError("`values` goes with `kind: enum`, and only with it")
        if self.required and self.default is not None:
            raise ValueError("a parameter with a default is not required")
        if self.values and self.default is not None and text(self.default) not in self.values:
            raise ValueError(f"the default {text(self.default)!r} is not one of the values")
        return self

    def param(self, name: str, default: str | None) -> Param:
        """The finished parameter; `default` is what `config_defaults` says of its key."""
        own = text(self.default) if self.default is not None else default
        return Param(
            name=name,
            key=self.key or name,
            kind=self.kind,
            required=self.required if self.required is not None else own is None,
            default=own,
            values=tuple(self.values),
            unit=self.unit,
            summary=self.summary,
            role=self.role,
            schema=self.schema_,
            file=self.file,
        )


class RequirementModel(_Strict):
    requirement: str
    probe: str


class GangModel(_Strict):
    mode: Literal["forbidden", "sharded"] = "forbidden"
    activation_key: str = ""
    output_key: str = ""
    count_key: str = ""

    @model_validator(mode="after")
    def _sound(self) -> GangModel:
        if self.mode == "forbidden" and any(getattr(self, name) for name in _CONTRACT_FIELDS):
            raise ValueError("keys of a gang contract need `mode: sharded`")
        return self


class GpuModel(_Strict):
    min_count: int = Field(default=0, ge=0)
    rt_cores: bool = False


class Facts(_Strict):
    """Every field that a tool may have and that `defaults` may give to all tools of a file."""

    summary: str = ""
    args: list[list[Word]] = Field(default_factory=list)
    params: dict[ConfigKey, ParamModel] = Field(default_factory=dict)
    config_defaults: dict[ConfigKey, Scalar] = Field(default_factory=dict)
    omit_when_empty: list[str] = Field(default_factory=list)
    image: str = ""
    extra: str = ""
    requirements: list[RequirementModel] = Field(default_factory=list)
    interpreters: list[str] = Field(default_factory=list)
    secrets: list[EnvName] = Field(default_factory=list)
    optional_secrets: list[EnvName] = Field(default_factory=list)
    env: dict[EnvName, str] = Field(default_factory=dict)
    licence: str = ""
    gang: GangModel = Field(default_factory=GangModel)
    gpu: GpuModel = Field(default_factory=GpuModel)
    setup: str = ""
    setup_shell: str = ""
    preamble: str = ""
    checkpoint_loader: str = ""
    writes_decision: bool = False


class DefaultsModel(Facts):
    command: list[Word] = Field(default_factory=list)


class ToolModel(Facts):
    """One tool. `aliases` are further full names; `replaces` allows to take a built-in's name."""

    command: list[Word] = Field(default_factory=list)
    aliases: list[Name] = Field(default_factory=list)
    replaces: bool = False

    @model_validator(mode="after")
    def _sound(self) -> ToolModel:
        flags = {words[0].partition("=")[0] for words in self.args if words}
        unknown = [flag for flag in self.omit_when_empty if flag not in flags]
        if unknown:
            raise ValueError(f"`omit_when_empty` names {unknown[0]}, which `args` does not have")
        if any(not words for words in self.args):
            raise ValueError("an item of `args` is empty")
        return self

    def entry(self, ref: str, family: str, source: str) -> Entry:
        defaults = {key: text(value) for key, value in self.config_defaults.items()}
        params = self._params(defaults)
        for param in params:
            if param.default is not None:
                defaults.setdefault(param.key, param.default)
        return Entry(
            ref=ref,
            family=family,
            source=source,
            command=tuple(self.command),
            args=tuple(tuple(words) for words in self.args),
            params=params,
            config_defaults=defaults,
            requirements=tuple(
                Requirement(item.requirement, item.probe) for item in self.requirements
            ),
            omit_when_empty=tuple(self.omit_when_empty),
            interpreters=tuple(self.interpreters),
            secrets=tuple(self.secrets),
            optional_secrets=tuple(self.optional_secrets),
            env=dict(self.env),
            gang=Gang(**self.gang.model_dump()),
            gpu=Gpu(**self.gpu.model_dump()),
            **{name: getattr(self, name) for name in _PLAIN},
        )

    def _params(self, defaults: dict[str, str]) -> tuple[Param, ...]:
        """Described parameters first, then those that only the templates mention."""
        described = tuple(
            model.param(name, defaults.get(model.key or name))
            for name, model in self.params.items()
        )
        known = {param.key for param in described}
        words = [*self.command, *(word for words in self.args for word in words)]
        named = dict.fromkeys(key for word in words for key in _TOKEN.findall(word))
        plain = ParamModel()
        return described + tuple(
            plain.param(key, defaults.get(key)) for key in named if key not in known
        )


_PLAIN = (
    "summary",
    "image",
    "extra",
    "licence",
    "setup",
    "setup_shell",
    "preamble",
    "checkpoint_loader",
    "writes_decision",
)


class CatalogModel(_Strict):
    """One catalogue file."""

    catalogue: Literal["npa.catalog/v1"]
    family: Name | None = None
    images: dict[str, str] = Field(default_factory=dict)
    defaults: DefaultsModel = Field(default_factory=DefaultsModel)
    tools: dict[Name, ToolModel] = Field(default_factory=dict)
    schemas: dict[Name, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("schemas")
    @classmethod
    def _checkable(cls, schemas: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, schema in schemas.items():
            try:
                read_schema(name, schema)
            except SchemaUnusable as error:
                raise ValueError(f"`{name}`: {error}") from None
        return schemas


def text(value: Scalar) -> str:
    """A scalar as config spells it: booleans as JSON does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
