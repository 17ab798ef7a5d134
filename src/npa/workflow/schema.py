"""JSON Schema of a workflow file, for editors: completion, hover text and red lines while typing.

The schema is generated from the models; a copy is committed beside this file, to point an editor
at. It knows shapes, not references: `npa workbench workflow validate-spec` knows both.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from pydantic import AliasChoices
from pydantic.json_schema import GenerateJsonSchema

from npa.workflow import model

SCHEMA_FILE = "npa.workflow.v0.0.1.schema.json"
SCHEMA_ID = "urn:npa:workflow:v0.0.1"


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12, with both spellings of every key."""
    schema = model.WorkflowFile.model_json_schema(mode="validation", ref_template="#/$defs/{model}")
    levels = {"WorkflowFile": model.WorkflowFile} | {
        kind.__name__: kind for kind in model.Level.__subclasses__()
    }
    for name, part in {**schema.get("$defs", {}), "WorkflowFile": schema}.items():
        if name in levels:
            _accept_both_spellings(levels[name], part)
            _accept_empty(part)
            part.pop("title", None)
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": SCHEMA_ID,
        "title": "npa.workflow/v0.0.1",
        **schema,
    }


def _accept_both_spellings(level: type[model.Level], part: dict[str, Any]) -> None:
    """Snake_case beside camelCase, told as deprecated so that editors offer only the latter."""
    properties = part.get("properties", {})
    required = set(part.get("required", ()))
    for name, info in level.model_fields.items():
        alias = info.validation_alias
        if not isinstance(alias, AliasChoices) or len(alias.choices) < 2:
            continue
        documented, other = map(str, alias.choices)
        found = properties.get(documented, properties.get(name))
        if found is None:
            continue
        properties[documented] = found
        properties[other] = {**found, "deprecated": True}
        if documented in required:
            required.discard(documented)
            part.setdefault("allOf", []).append(
                {"anyOf": [{"required": [documented]}, {"required": [other]}]}
            )
    if "required" in part:
        part["required"] = [key for key in part["required"] if key in required]


def _accept_empty(part: dict[str, Any]) -> None:
    """`inputs:` without a value is as if absent, so null is fine where a key is optional."""
    required = set(part.get("required", ()))
    for key, value in part.get("properties", {}).items():
        value.pop("title", None)
        if key in required or "anyOf" in value or value.get("type") == "null":
            continue
        kind = value.get("type")
        if isinstance(kind, str) and "enum" not in value and "const" not in value:
            value["type"] = [kind, "null"]


def schema_text() -> str:
    """The committed form: sorted keys, two blanks, a newline at the end."""
    return json.dumps(json_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def shipped_schema_text() -> str:
    """The copy inside the package."""
    return resources.files("npa.workflow").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")
