"""Payload schemas: what is checked is checked as JSON Schema says; what is not is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npa.workflow.payload import PROBLEMS_MAX, SchemaUnusable, read_schema

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def problems(schema: object, value: object) -> tuple[str, ...]:
    return read_schema("s", schema).problems(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 1.0, -3], [1.5, True, "1", None]),
        ({"type": "number"}, [1, 1.5], [True, "1"]),
        ({"type": "boolean"}, [True], [1, 0]),
        ({"type": ["string", "null"]}, ["", None], [0, []]),
        ({"type": "array", "items": {"type": "string"}}, [[], ["a"]], [["a", 1], {}]),
        ({"minItems": 1, "maxItems": 2}, [[1], "free"], [[], [1, 2, 3]]),
        ({"uniqueItems": True}, [[1, 2]], [[1, 1]]),
        ({"minLength": 2, "maxLength": 3}, ["ab", 7], ["a", "abcd"]),
        ({"pattern": "^a+$"}, ["aa", 1], ["b", "ab"]),
        ({"minimum": 0, "exclusiveMaximum": 1}, [0, 0.5, "x"], [-1, 1]),
        ({"exclusiveMinimum": 0, "maximum": 1}, [0.5, 1], [0, 2]),
        ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [True, "b"]),
        ({"const": False}, [False], [0, None]),
        ({"required": ["a"]}, [{"a": 1}, 3], [{}]),
        ({"properties": {"a": {"type": "null"}}}, [{}, {"a": None, "b": 1}], [{"a": 1}]),
        ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "1"}]),
        ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 1}]),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["x", 6], [3]),
        ({"oneOf": [{"minimum": 2}, {"maximum": 4}]}, [1, 5], [3]),
        ({"allOf": [{"minimum": 2}, {"maximum": 4}]}, [3], [1, 5]),
        ({"not": {"type": "string"}}, [1], ["x"]),
        ({"$defs": {"n": {"type": "null"}}, "items": {"$ref": "#/$defs/n"}}, [[None]], [[1]]),
        (True, [1, None], []),
        (False, [], [1, None]),
    ],
)
def test_a_keyword_means_what_json_schema_says(
    schema: object, good: list[object], bad: list[object]
) -> None:
    for value in good:
        assert problems(schema, value) == ()
    for value in bad:
        assert problems(schema, value)


@pytest.mark.parametrize(
    "schema",
    [
        {"typ": "string"},
        {"properties": {"a": {"items": {"minimun": 1}}}},
        {"type": "text"},
        {"type": []},
        {"pattern": "("},
        {"required": "a"},
        {"enum": []},
        {"minimum": "1"},
        {"$ref": "#/$defs/absent"},
        {"$ref": "https://example.org/schema.json"},
        {"format": "date"},
        {"properties": ["a"]},
        {"anyOf": []},
        [],
        None,
    ],
)
def test_a_schema_with_a_rule_that_would_be_passed_over_is_refused(schema: object) -> None:
    with pytest.raises(SchemaUnusable):
        read_schema("s", schema)


def test_a_problem_names_its_place() -> None:
    schema = {"properties": {"runs": {"items": {"properties": {"loss": {"type": "number"}}}}}}
    assert problems(schema, {"runs": [{"loss": 1}, {"loss": "nan"}]}) == (
        '`runs.1.loss` is "nan", not of type number',
    )


def test_only_the_first_problems_are_told() -> None:
    assert len(problems({"items": {"type": "string"}}, list(range(100)))) == PROBLEMS_MAX


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000])
def test_what_is_no_json_is_a_problem_and_never_an_exception(data: bytes) -> None:
    assert read_schema("s", {}).problems(data)


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema: dict[str, Any] = {"properties": {"next": {"$ref": "#"}}, "required": ["value"]}
    assert problems(schema, {"value": 1, "next": {"value": 2}}) == ()
    assert problems(schema, {"value": 1, "next": {}}) == ("`next` has no 'value'",)
    assert problems({"$ref": "#"}, 1) == ("it is nested too deeply",)


@settings(max_examples=60)
@given(VALUES)
def test_a_value_satisfies_itself_as_a_constant_and_nothing_at_all(value: object) -> None:
    assert problems({"const": value}, value) == ()
    assert problems({"not": {"const": value}}, value)
