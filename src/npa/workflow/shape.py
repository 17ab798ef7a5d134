"""From raw values to models, with every complaint of pydantic turned into a diagnostic.

A level that fails is validated again without its bad keys, so that the rules can still judge the
rest of it; nothing stops at the first error.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct, field
from pydantic import ValidationError

from npa.workflow import model
from npa.workflow.codes import Code
from npa.workflow.diagnostics import Diagnostic, report
from npa.workflow.meaning import Path, Positions
from npa.workflow.suggest import Suggester

LevelT = TypeVar("LevelT", bound=model.Level)

_LEVELS: dict[str, type[model.Level]] = {
    "metadata": model.Metadata,
    "run": model.Run,
    "loop": model.Loop,
    "until": model.UntilGate,
    "gate": model.Gate,
    "transitions": model.Transition,
    "trigger": model.Trigger,
    "inputs": model.Io,
    "outputs": model.Io,
    "retry": model.RetryBlock,
    "checkpoint": model.CheckpointBlock,
    "foreach": model.Foreach,
}
_EXPECTED = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "bool_type": "`true` or `false`",
    "int_type": "an integer",
    "float_type": "a number",
}
_BOUNDS = {
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must match {pattern}",
}
# Words of other engines, without `-` and `_`, that spelling alone does not lead home.
_SYNONYMS = {
    "retries": "retry",
    "timeout": "timeoutSeconds",
    "dependson": "needs",
    "steps": "sequence",
    "command": "run",
    "cmd": "run",
    "script": "run",
    "tool": "toolRef",
    "environment": "env",
    "matrix": "foreach",
    "concurrency": "maxConcurrency",
    "gpus": "accelerators",
    "gpu": "accelerators",
    "cpu": "cpus",
    "mem": "memory",
    "nodes": "num_nodes",
    "disk": "disk_size",
    "condition": "when",
    "parameters": "params",
}
# Comparisons as other languages write them; spelling alone would lead `=<` to `<`.
_COMPARISONS = {
    "=<": "<=",
    "=>": ">=",
    "=": "==",
    "===": "==",
    "<>": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
_ROUNDS_MAX = 8


class Shaper(Struct):
    """Validates levels and collects diagnostics; `broken` are paths of levels that had errors."""

    positions: Positions
    suggester: Suggester = field(default_factory=Suggester)
    problems: list[Diagnostic] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)

    def validate(self, kind: type[LevelT], raw: Any, base: Path) -> LevelT | None:
        """The level, without its bad keys if need be; None if nothing of it can be used."""
        for _ in range(_ROUNDS_MAX):
            try:
                return kind.model_validate(raw)
            except ValidationError as error:
                self.broken.add(base)
                raw = self._explain(kind, raw, base, error)
                if raw is None:
                    return None
        return None

    def add(self, code: Code, message: str, path: Path, *, at_key: bool, hint: str) -> None:
        self.problems.append(report(code, message, self.positions, path, at_key=at_key, help=hint))

    def _explain(
        self, kind: type[model.Level], raw: Any, base: Path, error: ValidationError
    ) -> Any:
        """Report the errors and return `raw` without what caused them (None: all of it)."""
        wrong_types: dict[Path, list[str]] = {}
        bad: list[Path] = []
        told: set[Path] = set()
        repaired: list[Path] = []
        whole = False
        for item in error.errors(include_url=False, include_input=False):
            loc = _branch(raw, item["loc"])
            if loc is None:
                continue
            path = _raw_path(raw, loc)
            place = (*base, *path)
            what = item["type"]
            if what == "extra_forbidden":
                self._unknown_key(kind, base, path)
                bad.append(path)
            elif what == "missing":
                level = _level(kind, path)
                self.add(
                    Code.MISSING_KEY,
                    f"{level.what} has no `{item['loc'][-1]}`",
                    place,
                    at_key=True,
                    hint=f"add `{item['loc'][-1]}:`",
                )
                whole = whole or not path
                bad.append(_unusable(path))
            elif what == "literal_error":
                told.add(path)
                self._not_a_choice(raw, path, place, item.get("ctx", {}).get("expected", ""))
                if path[-2:] == ("gate", "op"):
                    repaired.append(path)  # the rest of the gate can still be judged
                else:
                    bad.append(_unusable(path))
            elif what in _BOUNDS:
                said = _BOUNDS[what].format(**item.get("ctx", {}))
                self.add(
                    Code.OUT_OF_BOUNDS, f"`{_named(place)}` {said}", place, at_key=False, hint=""
                )
                whole = whole or not path
                bad.append(_unusable(path))
            else:
                expected = _EXPECTED.get(what, item["msg"])
                wrong_types.setdefault(path, []).append(expected)
        for path, expectations in wrong_types.items():
            if path not in told:
                self._wrong_type(raw, base, path, expectations)
            whole = whole or not path
            bad.append(_unusable(path))
        if whole:
            return None
        for path in repaired:
            raw = _with(raw, path, model.GATE_OPS[0])
        left = _without(raw, bad)
        if kind is model.StateBlock and ("loop",) in bad:
            left["loop"] = {}  # still a loop: `{{loop.NAME}}` means it
        return left

    def _unknown_key(self, kind: type[model.Level], base: Path, path: Path) -> None:
        level = _level(kind, path[:-1])
        key = str(path[-1])
        known = model.known_keys(level)
        place = (*base, *path)
        if key in known:
            self.add(
                Code.TWO_SPELLINGS,
                f"`{key}` and `{known[key]}` are the same key",
                place,
                at_key=True,
                hint=f"keep `{known[key]}`",
            )
            return
        meant = _SYNONYMS.get(key.replace("-", "").replace("_", "").lower(), "")
        if meant in known:
            hint = f"did you mean '{meant}'?"
        else:
            hint = self.suggester.did_you_mean(key, dict.fromkeys(known.values()))
        if not hint:
            hint = self._from_elsewhere(key, level)
        self.add(
            Code.UNKNOWN_KEY, f"unknown key '{key}' in {level.what}", place, at_key=True, hint=hint
        )

    def _from_elsewhere(self, key: str, level: type[model.Level]) -> str:
        for other in (model.StateBlock, model.WorkflowFile, model.ProfileBlock):
            if other is not level:
                found = key if key in model.known_keys(other) else ""
                found = found or self.suggester.closest(key, model.known_keys(other))
                if found:
                    return f"'{found}' is a key of {other.what}"
        return "start a key of your own with `x-`"

    def _not_a_choice(self, raw: Any, path: Path, place: Path, expected: str) -> None:
        value = _at(raw, path)
        choices = [part.strip().strip("'") for part in expected.replace(" or ", ",").split(",")]
        listed = ", ".join(f"`{choice}`" for choice in choices)
        hint = ""
        if isinstance(value, str):
            meant = _COMPARISONS.get(value.strip().lower(), "")
            if meant in choices:
                hint = f"did you mean '{meant}'?"
            else:
                hint = self.suggester.did_you_mean(value, choices)
        self.add(
            Code.NOT_A_CHOICE,
            f"`{_named(place)}` cannot be {_shown(value)}",
            place,
            at_key=False,
            hint=hint or f"choose {listed}",
        )

    def _wrong_type(self, raw: Any, base: Path, path: Path, expectations: list[str]) -> None:
        value = _at(raw, path)
        place = (*base, *path)
        expected = " or ".join(dict.fromkeys(expectations))
        name = _named(place) if place else "the file"
        self.add(
            Code.WRONG_TYPE,
            f"`{name}` must be {expected}, not {_shown(value)}",
            place,
            at_key=False,
            hint=_type_hint(value, expectations),
        )


def _branch(raw: Any, loc: tuple[int | str, ...]) -> tuple[int | str, ...] | None:
    """A pydantic location without the branch of `until` that it names; None for the wrong branch.

    A mapping is meant as a gate, anything else as a word.
    """
    number = loc.index("until") + 1 if "until" in loc else len(loc)
    if number >= len(loc):
        return loc
    name = loc[number]
    value = _at(raw, _raw_path(raw, loc[:number]))
    if (name == model.UntilGate.__name__) != isinstance(value, dict):
        return None
    return (*loc[:number], *loc[number + 1 :])


def _unusable(path: Path) -> Path:
    """What has to go when the value at `path` is wrong: its whole field, of a loop its part."""
    return path[:2] if path[:1] == ("loop",) else path[:1]


def _raw_path(raw: Any, loc: tuple[int | str, ...]) -> Path:
    """The part of a pydantic location that exists in the raw value, as the file spells it."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(raw, dict):
            name = str(part)
            if name not in raw:
                name = _other_spelling(name)
            if name not in raw:
                break
            path.append(name)
            raw = raw[name]
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            path.append(part)
            raw = raw[part]
        else:
            break
    return tuple(path)


def _other_spelling(name: str) -> str:
    """snake_case of a camelCase name and the other way round."""
    if "_" in name:
        head, *rest = name.split("_")
        return head + "".join(part.capitalize() for part in rest)
    return "".join(f"_{ch.lower()}" if ch.isupper() else ch for ch in name)


def _level(kind: type[model.Level], path: Path) -> type[model.Level]:
    for part in reversed(path):
        if isinstance(part, str):
            return _LEVELS.get(part, kind)
    return kind


def _named(path: Path) -> str:
    """The nearest key of a path, with the list index if it is a member of a list."""
    index = ""
    for part in reversed(path):
        if isinstance(part, str):
            return part + index
        index = f"[{part}]{index}"
    return "the file"


def _at(raw: Any, path: Path) -> Any:
    for part in path:
        raw = raw[part]
    return raw


def _without(raw: Any, bad: list[Path]) -> Any:
    """A copy of the raw mapping without the keys at `bad` (each a path of mapping keys)."""
    raw = dict(raw)
    for path in bad:
        level = raw
        for depth, part in enumerate(path):
            if not isinstance(level, dict) or part not in level:
                break
            inner = level[part]
            if depth == len(path) - 1 or not isinstance(inner, dict):
                del level[part]
                break
            level[part] = dict(inner)
            level = level[part]
    return raw


def _with(raw: Any, path: Path, value: object) -> Any:
    """A copy of the raw value with another value at `path`."""
    if not path:
        return value
    copy: Any = list(raw) if isinstance(raw, list) else dict(raw)
    copy[path[0]] = _with(raw[path[0]], path[1:], value)
    return copy


def _shown(value: object) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f"text {value[:40]!r}"
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return "this"


def _type_hint(value: object, expected: list[str]) -> str:
    if "a list" in expected and isinstance(value, str):
        return f"write `[{value[:40]}]`"
    if "`true` or `false`" in expected and isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in ("true", "yes", "on", "1"):
            return "write `true`"
        if lowered in ("false", "no", "off", "0"):
            return "write `false`"
    if any(item.startswith("text") for item in expected) and isinstance(value, int | float):
        return "quote it"
    return ""
