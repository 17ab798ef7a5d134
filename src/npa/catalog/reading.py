"""Read catalogue files: YAML to entries, with every problem at its line and column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from pydantic import BaseModel, ValidationError

from npa.catalog.entry import Entry
from npa.catalog.model import CatalogModel, ParamModel, ToolModel
from npa.errors import UsageError
from npa.workflow.diagnostics import path_text
from npa.workflow.source import Source, parse_bytes


class Problem(Struct, frozen=True):
    """One problem of a catalogue file; line and column are 1-based, 0 if it has no place."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place} {self.message}"


class CatalogError(UsageError):
    """A catalogue file cannot be used; `problems` are all of them, in the order of the file."""

    code = "CATALOG"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        rest = [str(problem) for problem in problems[1:]]
        super().__init__(
            str(problems[0]),
            not_done="no tool of this file was loaded",
            hint="also: " + "; ".join(rest) if rest else "",
        )
        self.problems = problems


class CatalogFile(Struct, frozen=True):
    """What one file gives: entries by name (aliases included), images by key, whose it replaces.

    `schemas` are JSON Schemas by the label that outputs carry.
    """

    name: str
    entries: Mapping[str, Entry]
    images: Mapping[str, str]
    replacing: frozenset[str]
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_catalog(data: bytes, filename: str) -> CatalogFile:
    """Read one file. Raises CatalogError with all its problems."""
    source = parse_bytes(data, filename)
    problems = [
        Problem(filename, item.line, item.column, item.message) for item in source.diagnostics
    ]
    if problems or not source.usable:
        raise CatalogError(tuple(problems))
    value = _with_defaults(source.value)
    try:
        model = CatalogModel.model_validate(value)
    except ValidationError as error:
        found = [_problem(source, item) for item in error.errors()]
        raise CatalogError(
            tuple(sorted(dict.fromkeys(found), key=lambda item: (item.line, item.column)))
        ) from None
    return _finish(model, source)


def _finish(model: CatalogModel, source: Source) -> CatalogFile:
    entries: dict[str, Entry] = {}
    replacing: set[str] = set()
    problems: list[Problem] = []
    for name, tool in model.tools.items():
        ref = f"{model.family}.{name}" if model.family else name
        family = model.family or ref.rpartition(".")[0]
        entry = tool.entry(ref, family, source.filename)
        if not entry.command:
            problems.append(_at(source, ("tools", name), f"`{ref}` has no command"))
        for known in (ref, *tool.aliases):
            if known in entries:
                problems.append(_at(source, ("tools", name), f"`{known}` is named twice"))
            entries[known] = entry if known == ref else _alias(entry, known)
            if tool.replaces:
                replacing.add(known)
    if problems:
        raise CatalogError(tuple(problems))
    return CatalogFile(source.filename, entries, model.images, frozenset(replacing), model.schemas)


def _alias(entry: Entry, name: str) -> Entry:
    from dataclasses import replace

    return replace(entry, ref=name, alias_of=entry.ref)


def _with_defaults(value: object) -> object:
    """Defaults of the file under each tool; mappings are merged one level deep."""
    if not isinstance(value, Mapping):
        return value
    defaults, tools = value.get("defaults"), value.get("tools")
    if not isinstance(defaults, Mapping) or not isinstance(tools, Mapping):
        return value
    merged = {name: _under(defaults, tool) for name, tool in tools.items()}
    return {**value, "tools": merged}


def _under(defaults: Mapping[str, Any], tool: object) -> object:
    if not isinstance(tool, Mapping):
        return tool
    result = {**defaults, **tool}
    for name, default in defaults.items():
        own = tool.get(name)
        if isinstance(default, Mapping) and isinstance(own, Mapping):
            result[name] = {**default, **own}
    return result


def _problem(source: Source, error: Any) -> Problem:
    loc: tuple[str | int, ...] = tuple(error["loc"])
    where = path_text(loc)
    kind = error["type"]
    if kind == "extra_forbidden":
        import difflib

        near = difflib.get_close_matches(str(loc[-1]), _known_keys(loc), 1)
        hint = f", did you mean '{near[0]}'?" if near else ""
        return _at(source, loc, f"unknown key '{loc[-1]}'{hint}", at_key=True)
    if kind == "missing":
        return _at(source, loc[:-1], f"the key '{loc[-1]}' is missing")
    if loc and loc[-1] == "[key]":
        return _at(source, loc[:-1], f"'{loc[-2]}' is not a valid name", at_key=True)
    message = str(error["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return _at(source, loc, f"{where}: {message}" if where else message)


def _known_keys(loc: tuple[str | int, ...]) -> list[str]:
    """Keys that are known where `loc` stands."""
    model: type[BaseModel] = CatalogModel
    if loc[0] in ("tools", "defaults"):
        inside = loc[2:] if loc[0] == "tools" else loc[1:]
        model = ToolModel if inside else CatalogModel
        if len(inside) >= 3 and inside[0] == "params":
            model = ParamModel
    return [field.alias or name for name, field in model.model_fields.items()]


def _at(
    source: Source, loc: tuple[str | int, ...], message: str, *, at_key: bool = False
) -> Problem:
    place = source.positions.key(loc) if at_key else source.positions.value(loc)
    if place is None:
        return Problem(source.filename, 0, 0, message)
    return Problem(source.filename, place.line, place.column, message)
