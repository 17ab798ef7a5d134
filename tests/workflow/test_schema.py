"""The JSON Schema for editors."""

from __future__ import annotations

import pytest

from npa.workflow.explain import example_file, pages
from npa.workflow.schema import json_schema, schema_text, shipped_schema_text
from npa.workflow.source import parse_text
from workflow.test_load import EVERYTHING

jsonschema = pytest.importorskip("jsonschema")


def problems(text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(json_schema())
    return [error.message for error in validator.iter_errors(parse_text(text, "f").value)]


def test_the_shipped_copy_is_fresh() -> None:
    assert shipped_schema_text() == schema_text()


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_whole_example_and_every_right_page_fit_the_schema() -> None:
    assert problems(example_file(EVERYTHING)) == []
    for page in pages().values():
        assert problems(example_file(page.right)) == [], page.code


@pytest.mark.parametrize("code", ["NPA010", "NPA011", "NPA012", "NPA013", "NPA016"])
def test_what_the_schema_can_see_it_refuses(code: str) -> None:
    assert problems(example_file(pages()[code].wrong))


def test_snake_case_is_accepted_and_told_as_deprecated() -> None:
    state = json_schema()["$defs"]["StateBlock"]
    assert state["properties"]["tool_ref"]["deprecated"] is True
    assert "deprecated" not in state["properties"]["toolRef"]
    assert state["additionalProperties"] is False
