"""The front door of the language: a file becomes a checked workflow, or says why not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from npa.errors import UsageError
from npa.workflow import model
from npa.workflow.check import check
from npa.workflow.codes import Code, Severity
from npa.workflow.diagnostics import Diagnostic, has_errors, in_order, report
from npa.workflow.lower import lower_state
from npa.workflow.meaning import State, Workflow
from npa.workflow.shape import Shaper
from npa.workflow.source import FILE_BYTES_MAX, Source, no_collector, parse_bytes, parse_text
from npa.workflow.tools import Tools

DEFAULT_NAME = "unnamed"


class Loaded(Struct, frozen=True):
    """What came of a file. `workflow` is None when there is any error.

    `understood` is what could be understood in spite of errors: to look for more of them, only.
    """

    workflow: Workflow | None
    diagnostics: tuple[Diagnostic, ...]
    source: Source
    understood: Workflow | None = None

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity is Severity.ERROR)


def load_text(
    text: str, *, filename: str, tools: Tools, overrides: Mapping[str, str] | None = None
) -> Loaded:
    """Load and check a workflow. All problems are found at once; nothing is raised for them.

    `overrides` are `--var` values; they replace config values before anything is checked.
    """
    with no_collector():
        return _load(parse_text(text, filename), tools, overrides or {})


def load_file(
    path: FilePath | str, *, tools: Tools, overrides: Mapping[str, str] | None = None
) -> Loaded:
    """`load_text` of a file. Raises UsageError if it cannot be read; that is the only I/O."""
    path = FilePath(path)
    try:
        if not path.is_file():
            kind = "is a folder" if path.is_dir() else "does not exist"
            raise UsageError(f"workflow file {path} {kind}")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read workflow file {path}: {error.strerror}") from error
    with no_collector():
        return _load(parse_bytes(data, str(path)), tools, overrides or {})


def _load(source: Source, tools: Tools, overrides: Mapping[str, str]) -> Loaded:
    if not source.usable:
        return Loaded(None, in_order(source.diagnostics), source)
    shaper = Shaper(source.positions)
    workflow = _understand(source, shaper, overrides)
    problems = [*source.diagnostics, *shaper.problems]
    if workflow is not None:
        broken = frozenset(str(p[1]) for p in shaper.broken if len(p) > 1 and p[0] == "states")
        problems += check(
            workflow,
            tools,
            overrides=overrides,
            broken=broken,
            lines=source.lines,
            declared_config=_declared(source.value),
        )
    usable = None if has_errors(problems) else workflow
    return Loaded(usable, in_order(problems), source, workflow)


def _declared(raw: object) -> frozenset[str]:
    config = raw.get("config") if isinstance(raw, dict) else None
    return frozenset(config) if isinstance(config, dict) else frozenset()


def _understand(source: Source, shaper: Shaper, overrides: Mapping[str, str]) -> Workflow | None:
    """As much of the workflow as can be understood; None if there is not even a set of states."""
    raw = source.value
    if not isinstance(raw, dict):
        said = "the file is empty" if raw is None else "the file is not a mapping"
        shaper.problems.append(
            report(
                Code.WRONG_TYPE,
                said,
                source.positions,
                (),
                help="start with `apiVersion: npa.workflow/v0.0.1`",
            )
        )
        return None
    header = _header(raw, shaper)
    if header is None:
        return None
    states = _states(header.states, shaper)
    profiles = {}
    for name, block in header.resources.items():
        profiles[name] = _profile(name, block, shaper)
    metadata = header.metadata
    return Workflow(
        api_version=header.api_version,
        name=metadata.name if metadata else DEFAULT_NAME,
        description=metadata.description if metadata else "",
        config=MappingProxyType({**header.config, **overrides}),
        run=MappingProxyType(header.run),
        resources=MappingProxyType(profiles),
        initial=header.initial or next(iter(header.states), ""),
        states=MappingProxyType(states),
        labels=MappingProxyType(metadata.labels if metadata else {}),
        positions=source.positions,
    )


def _profile(name: str, raw: Any, shaper: Shaper) -> Mapping[str, object]:
    """A profile stays as written; its shape is checked."""
    raw = {} if raw is None else raw
    shaper.validate(model.ProfileBlock, raw, ("resources", name))
    if not isinstance(raw, dict):
        return {}
    for key in ("deployIfAbsent", "deploy_if_absent"):
        if isinstance(raw.get(key), dict):
            shaper.validate(model.DeployBlock, raw[key], ("resources", name, key))
    return raw


def _header(raw: dict[str, Any], shaper: Shaper) -> model.Header | None:
    """The top level; a file without `apiVersion` or `kind` is still judged by its states."""
    header = shaper.validate(model.Header, raw, ())
    if header is None and isinstance(raw.get("states"), dict) and raw["states"]:
        patched = {"apiVersion": model.API_VERSIONS[0], "kind": "Workflow", **raw}
        if isinstance(patched["apiVersion"], str) and patched["kind"] == "Workflow":
            header = Shaper(shaper.positions).validate(model.Header, patched, ())
    if header is not None and header.api_version not in model.API_VERSIONS:
        shaper.add(
            Code.BAD_VERSION,
            f"version {header.api_version!r} is not known",
            ("apiVersion",),
            at_key=False,
            hint="write " + " or ".join(f"`{version}`" for version in model.API_VERSIONS),
        )
    return header


def _states(raw: dict[str, Any], shaper: Shaper) -> dict[str, State]:
    states = {}
    for name, value in raw.items():
        block = shaper.validate(model.StateBlock, {} if value is None else value, ("states", name))
        states[name] = lower_state(name, block) if block is not None else State(name)
    return states
