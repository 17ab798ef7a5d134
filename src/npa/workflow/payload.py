"""Payload schemas: a JSON Schema that an artifact's content must satisfy before its step succeeds.

The subset below is checked in full. A keyword outside it is refused when the schema is read: a
rule that would be passed over in silence is worse than none. Pure; `$ref` stays within the schema.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

PROBLEMS_MAX = 5  # that one look at a payload reports
_TYPES: Mapping[str, Callable[[object], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: _is_number(v) and float(v).is_integer(),  # type: ignore[arg-type]
    "number": lambda v: _is_number(v),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}
_ANNOTATIONS = frozenset(
    ("$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated")
)
_ONE = frozenset(("not", "items", "additionalProperties"))  # a schema
_LIST = frozenset(("allOf", "anyOf", "oneOf"))  # of schemas
_NAMED = frozenset(("properties", "$defs"))  # schemas by name
_VALUES = frozenset(("type", "enum", "const", "required", "$ref", "pattern", "uniqueItems"))
_COUNTS: Mapping[str, tuple[type, Callable[[int, int], bool], str]] = {
    "minLength": (str, lambda n, bound: n >= bound, "shorter than {} characters"),
    "maxLength": (str, lambda n, bound: n <= bound, "longer than {} characters"),
    "minItems": (list, lambda n, bound: n >= bound, "fewer than {} items"),
    "maxItems": (list, lambda n, bound: n <= bound, "more than {} items"),
    "minProperties": (dict, lambda n, bound: n >= bound, "fewer than {} keys"),
    "maxProperties": (dict, lambda n, bound: n <= bound, "more than {} keys"),
}
_BOUNDS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (lambda v, bound: v >= bound, "below {}"),
    "maximum": (lambda v, bound: v <= bound, "above {}"),
    "exclusiveMinimum": (lambda v, bound: v > bound, "not above {}"),
    "exclusiveMaximum": (lambda v, bound: v < bound, "not below {}"),
}


class SchemaUnusable(ValueError):
    """The schema itself is wrong, or uses what is not checked here; the text says where and why."""


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """A schema that was found to be usable. `name` is the label that outputs carry."""

    name: str
    document: object = field(repr=False)

    def problems(self, data: bytes) -> tuple[str, ...]:
        """What is wrong with a payload, at most PROBLEMS_MAX of it; empty if it satisfies."""
        try:
            value = json.loads(data, parse_constant=_no_such_number)
            found = _check(value, self.document, self.document, "")
            return tuple(text for text, _ in zip(found, range(PROBLEMS_MAX), strict=False))
        except RecursionError:
            return ("it is nested too deeply",)
        except ValueError:
            return ("it is not JSON",)


def read_schema(name: str, document: object) -> PayloadSchema:
    """The schema, if every keyword in it is one that is checked. Raises SchemaUnusable."""
    try:
        _usable(document, document, "")
    except RecursionError:
        raise SchemaUnusable("it is nested too deeply") from None
    return PayloadSchema(name, document)


# -- reading -----------------------------------------------------------------------------------


def _usable(schema: object, root: object, at: str) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise SchemaUnusable(f"{_place(at)} is neither a mapping nor a boolean")
    for key, value in schema.items():
        here = f"{at}.{key}" if at else str(key)
        if key in _ONE:
            _usable(value, root, here)
        elif key in _LIST and isinstance(value, list) and value:
            for number, item in enumerate(value):
                _usable(item, root, f"{here}.{number}")
        elif key in _NAMED and isinstance(value, Mapping):
            for name, item in value.items():
                _usable(item, root, f"{here}.{name}")
        elif key in _LIST | _NAMED:
            raise SchemaUnusable(f"{_place(here)} holds no schemas")
        elif key in _VALUES:
            _usable_value(key, value, root, here)
        elif key in _COUNTS or key in _BOUNDS:
            if not _is_number(value):
                raise SchemaUnusable(f"{_place(here)} is not a number")
        elif key not in _ANNOTATIONS:
            raise SchemaUnusable(f"the keyword {_place(here)} is not checked here")


def _usable_value(key: str, value: object, root: object, here: str) -> None:
    match key:
        case "type":
            kinds = value if isinstance(value, list) else [value]
            good = bool(kinds) and all(isinstance(k, str) and k in _TYPES for k in kinds)
        case "enum":
            good = isinstance(value, list) and bool(value)
        case "required":
            good = isinstance(value, list) and all(isinstance(name, str) for name in value)
        case "$ref":
            good = isinstance(value, str) and _target(value, root) is not None
        case "pattern":
            good = isinstance(value, str) and _compiles(value)
        case "uniqueItems":
            good = isinstance(value, bool)
        case _:
            good = True
    if not good:
        raise SchemaUnusable(f"{_place(here)} is {_short(value)}, which cannot be used")


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _target(ref: str, root: object) -> object | None:
    """What `#/$defs/name` (or `#`) names; None if that is not there."""
    at = root
    if ref != "#" and not ref.startswith("#/"):
        return None
    for part in ref.split("/")[1:]:
        if not isinstance(at, Mapping) or part not in at:
            return None
        at = at[part]
    return at


# -- checking ----------------------------------------------------------------------------------


def _check(value: object, schema: object, root: object, at: str) -> Iterator[str]:
    if schema is True:
        return
    if not isinstance(schema, Mapping):
        yield f"{_place(at)} is not allowed"
        return
    if "$ref" in schema:
        yield from _check(value, _target(schema["$ref"], root), root, at)
    if not _of_type(value, schema.get("type")):
        yield f"{_place(at)} is {_short(value)}, not {_named(schema['type'])}"
        return
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{_place(at)} is {_short(value)}, not {_short(schema['const'])}"
    if "enum" in schema and not any(_same(value, item) for item in schema["enum"]):
        yield f"{_place(at)} is {_short(value)}, none of {_short(schema['enum'])}"
    yield from _check_size(value, schema, at)
    if isinstance(value, dict):
        yield from _check_object(value, schema, root, at)
    if isinstance(value, list):
        yield from _check_array(value, schema, root, at)
    yield from _check_combined(value, schema, root, at)


def _check_size(value: object, schema: Mapping[str, object], at: str) -> Iterator[str]:
    for key, (kind, holds, text) in _COUNTS.items():
        bound = schema.get(key)
        if bound is not None and isinstance(value, kind) and not holds(len(value), bound):  # type: ignore[arg-type]
            yield f"{_place(at)} has {text.format(bound)}"
    for key, (within, text) in _BOUNDS.items():
        bound = schema.get(key)
        if bound is not None and _is_number(value) and not within(value, bound):  # type: ignore[arg-type]
            yield f"{_place(at)} is {_short(value)}, {text.format(bound)}"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and isinstance(value, str) and not re.search(pattern, value):
        yield f"{_place(at)} is {_short(value)}, which does not match {pattern!r}"


def _check_object(
    value: Mapping[str, object], schema: Mapping[str, object], root: object, at: str
) -> Iterator[str]:
    known = schema.get("properties", {})
    assert isinstance(known, Mapping)  # noqa: S101 - `read_schema` saw to it
    required = schema.get("required", ())
    assert isinstance(required, list | tuple)  # noqa: S101
    for name in required:
        if name not in value:
            yield f"{_place(at)} has no {name!r}"
    rest = schema.get("additionalProperties", True)
    for name, item in value.items():
        here = f"{at}.{name}" if at else name
        yield from _check(item, known.get(name, rest), root, here)


def _check_array(
    value: list[object], schema: Mapping[str, object], root: object, at: str
) -> Iterator[str]:
    for number, item in enumerate(value):
        yield from _check(item, schema.get("items", True), root, f"{at}.{number}".lstrip("."))
    if schema.get("uniqueItems"):
        seen = {json.dumps(item, sort_keys=True) for item in value}
        if len(seen) < len(value):
            yield f"{_place(at)} has an item twice"


def _check_combined(
    value: object, schema: Mapping[str, object], root: object, at: str
) -> Iterator[str]:
    def fits(part: object) -> bool:
        return next(_check(value, part, root, at), None) is None

    for part in _parts(schema, "allOf"):
        yield from _check(value, part, root, at)
    if "anyOf" in schema and not any(map(fits, _parts(schema, "anyOf"))):
        yield f"{_place(at)} is {_short(value)}, which fits none of `anyOf`"
    if "oneOf" in schema:
        count = sum(map(fits, _parts(schema, "oneOf")))
        if count != 1:
            yield f"{_place(at)} is {_short(value)}, which fits {count} of `oneOf`"
    if "not" in schema and fits(schema["not"]):
        yield f"{_place(at)} is {_short(value)}, which `not` forbids"


def _parts(schema: Mapping[str, object], key: str) -> list[object]:
    parts = schema.get(key, [])
    assert isinstance(parts, list)  # noqa: S101 - `read_schema` saw to it
    return parts


def _of_type(value: object, wanted: object) -> bool:
    if wanted is None:
        return True
    kinds = wanted if isinstance(wanted, list) else [wanted]
    return any(_TYPES[str(kind)](value) for kind in kinds)


def _same(one: object, two: object) -> bool:
    """Equal as JSON values: `1` and `1.0` are, `1` and `true` are not."""
    if _is_number(one) and _is_number(two):
        return one == two
    return type(one) is type(two) and one == two


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _named(wanted: object) -> str:
    return " or ".join(map(str, wanted)) if isinstance(wanted, list) else f"of type {wanted}"


def _place(at: str) -> str:
    return f"`{at}`" if at else "the document"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _no_such_number(_text: str) -> object:
    raise ValueError("JSON has no such number")
