"""Declared outputs whose `schema` is registered: their payload is validated before success.

A label is registered by a catalogue (`schemas:`), or names a file: `schema: metrics.schema.json`
is read from the folder of the pipeline. Any other label stays a label.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from npa.errors import UsageError
from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.outputs import Artifacts
from npa.storage import Blob, ObjectInfo
from npa.workflow.meaning import Workflow
from npa.workflow.payload import PayloadSchema, SchemaUnusable, read_schema
from npa.workflow.step import Artifact

SCHEMA_FILE = ".schema.json"
PAYLOAD_BYTES_MAX = 16 << 20  # of an artifact that is validated


@runtime_checkable
class HasSchemas(Protocol):
    """Tools that know schemas (`npa.catalog.Catalog`)."""

    @property
    def schemas(self) -> Mapping[str, Mapping[str, object]]: ...


def schemas_of(workflow: Workflow, tools: object, folder: Path) -> dict[str, PayloadSchema]:
    """The schemas that the file's outputs name, by label.

    Raises UsageError for a file that cannot be read or used, and for a prefix as the payload.
    """
    registered = tools.schemas if isinstance(tools, HasSchemas) else {}
    found: dict[str, PayloadSchema] = {}
    for state in workflow.states.values():
        for output in state.outputs:
            label = output.schema
            if label in registered:
                found[label] = read_schema(label, registered[label])
            elif label.endswith(SCHEMA_FILE):
                found[label] = _from_file(label, folder)
            if label in found and output.uri.endswith("/"):
                raise UsageError(
                    f"the output `{output.uri}` of `{state.name}` is a prefix, so `{label}` has no "
                    "one payload to validate",
                    not_done="nothing was started",
                    hint="declare the object itself, or give the prefix a label of its own",
                )
    return found


def _from_file(label: str, folder: Path) -> PayloadSchema:
    path = folder / label
    try:
        return read_schema(label, json.loads(path.read_bytes()))
    except OSError as error:
        said = error.strerror or "it cannot be read"
    except SchemaUnusable as error:
        said = str(error)
    except ValueError:
        said = "it is not JSON"
    raise UsageError(
        f"the payload schema `{path}` cannot be used: {said}", not_done="nothing was started"
    )


@dataclass(frozen=True)
class CheckedArtifacts:
    """Artifacts as they are read, with a word on payloads (`npa.orchestration.outputs` asks)."""

    inner: Artifacts
    schemas: Mapping[str, PayloadSchema]

    def get(self, uri: str) -> Observation[Blob]:
        return self.inner.get(uri)

    def head(self, uri: str) -> Observation[ObjectInfo]:
        return self.inner.head(uri)

    def list(self, uri: str, *, limit: int | None = None) -> Observation[tuple[ObjectInfo, ...]]:
        return self.inner.list(uri, limit=limit)

    def check(self, output: Artifact, info: ObjectInfo) -> Observation[str]:
        """What is wrong with an output that is there: Found("") if nothing is."""
        schema = self.schemas.get(output.schema)
        if schema is None:
            return Found("", "no schema", 0.0)
        if info.size > PAYLOAD_BYTES_MAX:
            said = f"it has {info.size} bytes; at most {PAYLOAD_BYTES_MAX} are validated"
            return Found(said, "head", 0.0)
        answer = self.inner.get(output.uri)
        match answer:
            case Found(value=blob, source=source, as_of=as_of):
                return Found("; ".join(schema.problems(blob.data)), source, as_of)
            case Absent() | Unavailable() | Ambiguous():
                return answer
