"""What a tool knows of the task in which it runs: its environment, and its artifacts as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from npa.errors import NpaError, StorageError, UsageError
from npa.observation import Absent, Ambiguous, Found, Unavailable
from npa.storage import Stores
from npa.target.credentials import storage_access

EXIT_FAILED = 1
EXIT_USAGE = 2


class Task(Struct, frozen=True):
    """The declared artifacts of the state that runs now, and the stores in which they lie."""

    stores: Stores
    name: str = ""
    run_id: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Task:
        """Raises UsageError when `NPA_INPUTS` or `NPA_OUTPUTS` is not what the engine sets."""
        return cls(
            stores=Stores(storage_access(environ).options),
            name=environ.get("NPA_WORKFLOW_STATE", ""),
            run_id=environ.get("NPA_WORKFLOW_RUN_ID", ""),
            inputs=_uris(environ, "NPA_INPUTS"),
            outputs=_uris(environ, "NPA_OUTPUTS"),
        )

    def read_json(self, uri: str) -> dict[str, object]:
        """The JSON object at `uri`. Raises UsageError if it is absent or no object."""
        match self.stores.get(uri):
            case Found(value=blob):
                return _json_object(blob.data, uri)
            case Absent():
                raise UsageError(f"there is no object at {uri}")
            case Unavailable(cause=cause, detail=detail):
                raise StorageError(f"cannot read {uri}: {cause} {detail}".rstrip())
            case Ambiguous():
                raise StorageError(f"cannot read {uri}: it names several objects")

    def write_json(self, uri: str, value: Mapping[str, object]) -> None:
        """Write a JSON object with sorted keys. Raises StorageError."""
        store, key = self.stores.resolve(uri)
        store.put(key, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())
        print(f"wrote {uri}")  # noqa: T201 - the task's log

    def find_json(self, uris: Sequence[str]) -> dict[str, dict[str, object]]:
        """Those of `uris` that hold a JSON object; prefixes and other content are passed over."""
        found: dict[str, dict[str, object]] = {}
        for uri in uris:
            if not uri.endswith("/"):
                try:
                    found[uri] = self.read_json(uri)
                except UsageError as error:
                    print(f"passed over: {error.message}", file=sys.stderr)  # noqa: T201
        return found


def _uris(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    try:
        declared = json.loads(environ.get(name) or "[]")
        return tuple(str(artifact["uri"]) for artifact in declared)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"`{name}` is no JSON list of artifacts") from error


def _json_object(data: bytes, uri: str) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise UsageError(f"{uri} holds no JSON") from error
    if not isinstance(value, dict):
        raise UsageError(f"{uri} holds no JSON object")
    return value


def run_tool(tool: Callable[[Sequence[str], Task], int]) -> int:
    """Run a tool with the command line and environment of this process; the exit code."""
    try:
        return tool(sys.argv[1:], Task.from_environment(os.environ))
    except NpaError as error:
        print(f"error: {error.message}", file=sys.stderr)  # noqa: T201 - the task's log
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
