"""What can be turned on a workflow: its config keys, their types, and where each is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from npa.workflow.check_context import effective_config
from npa.workflow.diagnostics import path_text
from npa.workflow.meaning import GateSpec, State, Workflow
from npa.workflow.overrides import declared
from npa.workflow.source import resolve_plain
from npa.workflow.texts import deep_texts, state_texts
from npa.workflow.tokens import config_reference, parse
from npa.workflow.tools import Tools

ENGINE_KEYS = frozenset({"bucket", "prefix", "decision_uri", "plan_assume_decision"})
"""Keys that mean something to the engine even if no token mentions them."""


VAR = "--var"


class Override(Struct, frozen=True):
    """A value that stands where another would: of the whole run (`--var`), or in one state.

    `where` is `--var` or the path of a state's own param; `instead_of` is None if there was none.
    """

    where: str
    value: object
    instead_of: object

    def as_json(self) -> dict[str, object]:
        return {"where": self.where, "value": self.value, "instead_of": self.instead_of}


class ConfigKey(Struct, frozen=True):
    """One config key. `uses` are paths in the file, or `toolRef NAME`; `source` says who set it.

    `type` is one of string, integer, number, boolean, null, list, mapping, uri; text that spells a
    number or a boolean is told by what it spells, because `--var` values are always text.
    """

    key: str
    value: object
    type: str
    source: str  # file | tool default | missing
    uses: tuple[str, ...]
    line: int
    overridden: tuple[Override, ...] = ()

    def as_json(self) -> dict[str, object]:
        return {
            "key": self.key,
            "value": self.value,
            "type": self.type,
            "source": self.source,
            "uses": list(self.uses),
            "line": self.line,
            "overridden": [item.as_json() for item in self.overridden],
        }


class Description(Struct, frozen=True):
    """A workflow from outside: what it is called and what can be set."""

    name: str
    description: str
    initial: str
    states: tuple[str, ...]
    keys: tuple[ConfigKey, ...]

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys of the file that nothing refers to and the engine does not read."""
        return tuple(
            item.key
            for item in self.keys
            if item.source == "file" and not item.uses and item.key not in ENGINE_KEYS
        )

    def as_json(self) -> dict[str, object]:
        return {
            "workflow": self.name,
            "description": self.description,
            "initial": self.initial,
            "states": list(self.states),
            "config": [item.as_json() for item in self.keys],
            "unused": list(self.unused),
        }


def value_type(value: object) -> str:
    """The type that a config value has, or that its text spells."""
    if isinstance(value, str):
        if "://" in value:
            return "uri"
        spelt = resolve_plain(value.strip()) if value.strip() else value
        return "string" if isinstance(spelt, str) or spelt is None else value_type(spelt)
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case list() | tuple():
            return "list"
    return "mapping"


def describe(
    workflow: Workflow,
    tools: Tools,
    overrides: Mapping[str, str] | None = None,
    raw: object = None,
) -> Description:
    """Describe a workflow: every config key with its type and its uses, in file order.

    `overrides` are the `--var` values that it was loaded with, `raw` is the file as read.
    """
    config = effective_config(workflow, tools)
    overridden = _overridden(workflow, tools, config, overrides or {}, raw)
    uses: dict[str, list[str]] = {}
    for key, where in _uses(workflow, tools):
        found = uses.setdefault(key, [])
        if where not in found[-1:]:
            found.append(where)
    names = dict.fromkeys((*workflow.config, *config, *uses))
    keys = []
    for key in names:
        source = "file" if key in workflow.config else "tool default"
        place = None
        if source == "file" and workflow.positions is not None:
            place = workflow.positions.key(("config", key))
        keys.append(
            ConfigKey(
                key=key,
                value=config.get(key),
                type=value_type(config[key]) if key in config else "string",
                source=source if key in config else "missing",
                uses=tuple(uses.get(key, ())),
                line=place.line if place else 0,
                overridden=tuple(overridden.get(key, ())),
            )
        )
    return Description(
        workflow.name,
        workflow.description,
        workflow.initial,
        tuple(workflow.states),
        tuple(keys),
    )


def _overridden(
    workflow: Workflow,
    tools: Tools,
    config: Mapping[str, object],
    overrides: Mapping[str, str],
    raw: object,
) -> dict[str, list[Override]]:
    """By key: what `--var` sets, then what states set for themselves, in file order."""
    kept = {key: value for key, value in workflow.config.items() if key not in overrides}
    plain = replace(workflow, config={**kept, **declared(raw, overrides)})
    before = effective_config(plain, tools) if overrides else {}
    found = {key: [Override(VAR, text, before.get(key))] for key, text in overrides.items()}
    for state in workflow.states.values():
        for key, value in state.params.items():
            where = path_text(("states", state.name, "params", key))
            found.setdefault(key, []).append(Override(where, value, config.get(key)))
    return found


def _uses(workflow: Workflow, tools: Tools) -> Iterator[tuple[str, str]]:
    """(config key, where) of every mention, in file order.

    A state's own `params` hide a key from the state's texts: the override itself is the use.
    """
    for root in ("config", "resources"):
        part = workflow.config if root == "config" else workflow.resources
        for text in deep_texts(part, (root,), root):
            yield from ((key, path_text(text.path)) for key in _config_keys(text.text))
    for state in workflow.states.values():
        for key in state.params:
            if key in workflow.config:
                yield key, path_text(("states", state.name, "params", key))
        for text in state_texts(state):
            for key in _config_keys(text.text):
                if text.field == "params" or key not in state.params:
                    yield key, path_text(text.path)
        for field, value in _references(state):
            key = config_reference(value) if isinstance(value, str) else ""
            if key:
                yield key, path_text(("states", state.name, field))
        tool = tools.get(state.tool_ref) if state.tool_ref else None
        if tool is not None:
            mentioned = [key for text in tool.argv for key in _config_keys(text)]
            mentioned += [param.key for param in tool.params]
            for key in dict.fromkeys(mentioned):
                if key not in state.params:
                    yield key, f"toolRef {tool.ref}"


def _config_keys(text: str) -> Iterator[str]:
    if "{{" in text:
        yield from (token.key for token in parse(text).tokens() if token.scope == "config")


def _references(state: State) -> Iterator[tuple[str, object]]:
    """Fields that name a config key outside of general texts."""
    if state.loop is not None:
        yield "loop.max", state.loop.max
        yield from _gate("loop.gate.value", state.loop.gate)
    yield "maxConcurrency", state.max_concurrency
    yield "parallelCount", state.parallel_count
    if state.trigger is not None:
        yield "trigger.pollSeconds", state.trigger.poll_seconds
        yield "trigger.maxPolls", state.trigger.max_polls
        yield "trigger.minObjects", state.trigger.min_objects
    for number, transition in enumerate(state.transitions):
        yield f"transitions[{number}].if", transition.if_
        yield from _gate(f"transitions[{number}].gate.value", transition.gate)


def _gate(field: str, gate: GateSpec | None) -> Iterator[tuple[str, object]]:
    if gate is not None:
        yield field, gate.value
