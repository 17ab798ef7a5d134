"""Making steps: a state, its place in the run and what is known there, resolved to a `Step`.

Parts that depend on config and run alone are resolved once per state and shared by its steps;
the config mapping is never copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from npa.errors import UsageError
from npa.workflow.context import Context, Overlay
from npa.workflow.frames import Item, Place, Scope
from npa.workflow.graph import Graph, texts_of
from npa.workflow.meaning import ForeachSpec, GateSpec, IoSpec, State
from npa.workflow.profile import parse_profile
from npa.workflow.step import Artifact, Checkpoint, Command, Profile, Scalar, Step, Trigger
from npa.workflow.tokens import (
    Scopes,
    config_reference,
    integer,
    parse,
    render_value,
    strings_in,
    truth,
)
from npa.workflow.tools import Tool

_SHARED_MAX = 1024  # states whose resolved parts are kept for their next step
_LASTING_SCOPES = ("config", "run")


class StepUnresolvable(UsageError):
    """A step's fields do not resolve to what they must be."""

    code = "STEP_UNRESOLVABLE"


class _Parts(Struct, frozen=True):
    """The resolved fields of a state that do not name its place."""

    command: Command
    profile: Profile
    inputs: tuple[Artifact, ...]
    outputs: tuple[Artifact, ...]
    config: Mapping[str, object]
    params: Mapping[str, Scalar]
    env: tuple[tuple[str, str], ...]
    timeout_seconds: float | None
    trigger: Trigger | None
    checkpoint: Checkpoint | None
    decision_uri: str


class StepBuilder:
    """Builds the steps of one run. All errors are UsageErrors with the field or token in them."""

    def __init__(self, graph: Graph, context: Context) -> None:
        self._graph = graph
        self._context = context
        self._shared: dict[int, _Parts] = {}
        self._profiles: dict[str, Profile] = {}
        self._writers = frozenset(graph.writers.values())
        tool_texts = (text for tool in context.tools.values() for text in tool.argv)
        self._referenced = graph.referenced | set(_state_names(tool_texts))

    # Steps.

    def decides(self, state: int) -> bool:
        """May somebody ask for the decision that this state's step writes?"""
        spec = self._graph.states[state]
        return bool(state in self._writers or spec.transitions or spec.writes_decision)

    def build(self, number: int, place: Place, scope: Scope, iteration: int | None) -> Step:
        """The step of a state at a place; its outputs are noted in the scope."""
        state = self._graph.states[number]
        parts = self._shared.get(number)
        if parts is None:
            parts = self._resolve(state, number, scope)
            if number in self._graph.repeated and self._is_lasting(state):
                if len(self._shared) >= _SHARED_MAX:
                    self._shared.clear()
                self._shared[number] = parts
        if state.name in self._referenced:
            scope.outputs[state.name] = tuple(artifact.uri for artifact in parts.outputs)
        item = scope.find_item()
        tool = self._context.tools.get(state.tool_ref)
        secrets = state.secrets
        if tool is not None and tool.secrets:
            secrets = tuple(dict.fromkeys((*secrets, *tool.secrets)))
        return Step(
            path=place.path,
            state=state.name,
            command=parts.command,
            profile=parts.profile,
            iteration=iteration,
            iterations=place.iterations,
            loop_label=place.label,
            group=place.group,
            item=(item.name, item.value) if item is not None else None,
            inputs=parts.inputs,
            outputs=parts.outputs,
            config=parts.config,
            params=parts.params,
            env=parts.env,
            secrets=secrets,
            retry=state.retry,
            timeout_seconds=parts.timeout_seconds,
            trigger=parts.trigger,
            checkpoint=parts.checkpoint,
            writes_decision=state.writes_decision,
            decision_uri=parts.decision_uri,
        )

    def _resolve(self, state: State, number: int, scope: Scope) -> _Parts:
        scopes, params = self._scopes(state, scope)
        outputs = tuple(_artifact(io, scopes) for io in state.outputs)
        decision_uri = ""
        if self.decides(number):
            decision_uri = _decision_uri(outputs, scopes)
        return _Parts(
            command=self._command(state, scopes),
            profile=self._profile(state, scopes),
            inputs=tuple(_artifact(io, scopes) for io in state.inputs),
            outputs=outputs,
            config=scopes.config,
            params=params,
            env=tuple((name, scopes.render(value)) for name, value in state.env.items()),
            timeout_seconds=_timeout(state, scopes),
            trigger=_trigger(state, scopes),
            checkpoint=_checkpoint(state, scopes),
            decision_uri=decision_uri,
        )

    def _scopes(self, state: State, scope: Scope) -> tuple[Scopes, Mapping[str, Scalar]]:
        """Token scopes of a state: params resolve against config alone, then lie over it."""
        base = Scopes(
            config=self._context.config,
            run=self._context.run,
            state=_Outputs(scope) if self._referenced else {},
            loop=scope.find_loops(),
            item=_item_values(scope.find_item()),
        )
        if not state.params:
            return base, state.params
        params = {
            key: base.render(value) if isinstance(value, str) else value
            for key, value in state.params.items()
        }
        effective = Overlay(params, self._context.config)
        return Scopes(effective, base.run, base.state, base.loop, base.item), params

    def _command(self, state: State, scopes: Scopes) -> Command:
        tool = self._context.tools.get(state.tool_ref)
        if state.tool_ref:
            if tool is None:
                raise StepUnresolvable(f"unknown toolRef '{state.tool_ref}'")
            argv = tuple(_without_empty_flags(tool, scopes))
            return Command(argv=argv, setup=tool.setup, tool_ref=tool.ref)
        if state.run is None:
            raise StepUnresolvable(f"state '{state.name}' has no command")
        return Command(
            argv=tuple(scopes.render(item) for item in state.run.argv),
            shell="" if state.run.argv else scopes.render(state.run.shell),
            setup=scopes.render(state.run.setup),
        )

    def _profile(self, state: State, scopes: Scopes) -> Profile:
        name = state.resources
        known = self._profiles.get(name)
        if known is not None and not state.params:
            return known
        raw = self._graph.workflow.resources.get(name)
        if raw is None and name != "default":
            raise StepUnresolvable(f"unknown resource profile '{name}'")
        rendered = render_value(raw or {}, scopes.lookup)
        assert isinstance(rendered, dict)  # noqa: S101  a mapping renders to a mapping
        profile = parse_profile(name, rendered)
        if not state.params and self._all_lasting(strings_in(raw or {})):
            self._profiles[name] = profile
        return profile

    def _is_lasting(self, state: State) -> bool:
        """Do all texts of the state depend on config and run alone?"""
        tool = self._context.tools.get(state.tool_ref)
        profile = self._graph.workflow.resources.get(state.resources, {})
        texts = (*texts_of(state), *(tool.argv if tool else ()), *strings_in(profile))
        return self._all_lasting(texts)

    @staticmethod
    def _all_lasting(texts: Iterable[str]) -> bool:
        return all(
            token.scope in _LASTING_SCOPES
            for text in texts
            if "{{" in text
            for token in parse(text).tokens()
        )

    # What the walk asks for on its way.

    def loop_max(self, state: State) -> int:
        """Iterations of a loop, at least 1."""
        assert state.loop is not None  # noqa: S101  only looped states are asked
        count = integer(state.loop.max, self._context.config, "`loop.max`")
        if count < 1:
            raise StepUnresolvable(f"`loop.max` of '{state.name}' is {count}, below 1")
        return count

    def concurrency(self, state: State) -> int:
        """Limit of members that run at once; 0 when the file sets none."""
        if state.max_concurrency is None:
            return 0
        count = integer(state.max_concurrency, self._context.config, "`maxConcurrency`")
        if count < 1:
            raise StepUnresolvable(f"`maxConcurrency` of '{state.name}' is {count}, below 1")
        return count

    def flag(self, state: State, condition: str) -> bool:
        """Truth of a transition's `if`, as YAML reads it; `config.KEY`, or text with tokens."""
        scopes, _ = self._scopes(state, Scope(None))
        key = config_reference(condition)
        if not key:
            return truth(scopes.render(condition))
        if key not in scopes.config:
            raise StepUnresolvable(f"`if` refers to the unknown config key '{key}'")
        return truth(scopes.config[key])

    def gate(self, state: State, spec: GateSpec, scope: Scope) -> tuple[str, str, str, float]:
        """URI, path, operator and value of a gate."""
        scopes, _ = self._scopes(state, scope)
        value = _number(spec.value, scopes, f"`gate.value` of '{state.name}'")
        return scopes.render(spec.uri), spec.path, spec.op, value

    def fallback_decision_uri(self, state: State, scope: Scope) -> str:
        """Where a decision lies that no writer's output declares: `decision_uri`, "" if unset."""
        scopes, _ = self._scopes(state, scope)
        return _decision_uri((), scopes)

    def inline_items(self, state: State, scope: Scope) -> tuple[Scalar, ...]:
        """Items written in the file, tokens resolved."""
        scopes, _ = self._scopes(state, scope)
        items = _foreach(state).items or ()
        return tuple(scopes.render(i) if isinstance(i, str) else i for i in items)

    def items_uri(self, state: State, scope: Scope) -> str:
        """Where the manifest of a `foreach` lies."""
        scopes, _ = self._scopes(state, scope)
        return scopes.render(_foreach(state).uri)


class _Outputs(Mapping[str, object]):
    """The `state.` token scope: `NAME.uri` and `NAME.output_N` of steps made so far."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __getitem__(self, key: str) -> object:
        name, _, field = key.partition(".")
        uris = self._scope.find_outputs(name) or ()
        number = 1 if field == "uri" else _output_number(field)
        if not 1 <= number <= len(uris):
            raise KeyError(key)
        return uris[number - 1]

    def __contains__(self, key: object) -> bool:
        try:
            self[str(key)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _output_number(field: str) -> int:
    head, _, digits = field.partition("output_")
    return int(digits) if not head and digits.isascii() and digits.isdigit() else 0


def _state_names(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if "{{" in text:
            for token in parse(text).tokens():
                if token.scope == "state":
                    yield token.key.partition(".")[0]


def _item_values(item: Item | None) -> Mapping[str, object]:
    """`item.<as>` and `item.value` are the item; `item.index` counts from 0."""
    if item is None:
        return {}
    return {"value": item.value, "index": item.index, item.name: item.value}


def _artifact(io: IoSpec, scopes: Scopes) -> Artifact:
    return Artifact(scopes.render(io.uri), io.schema)


def _decision_uri(outputs: tuple[Artifact, ...], scopes: Scopes) -> str:
    """The public search order: first output whose schema says decision, else `decision_uri`."""
    for artifact in outputs:
        if "decision" in artifact.schema.lower() and artifact.uri:
            return artifact.uri
    uri = scopes.config.get("decision_uri")
    return uri if isinstance(uri, str) else ""


def _without_empty_flags(tool: Tool, scopes: Scopes) -> Iterator[str]:
    """The tool's argv; optional flags vanish together with a value that resolves to nothing."""
    items = iter(tool.argv)
    for template in items:
        text = scopes.render(template)
        flag, equals, value = text.partition("=")
        if text in tool.omit_when_empty:
            following = next(items, None)
            if following is not None:
                value = scopes.render(following)
                if value:
                    yield text
                    yield value
        elif not (equals and not value and flag in tool.omit_when_empty):
            yield text


def _number(value: float | str, scopes: Scopes, what: str) -> float:
    text = scopes.render(value) if isinstance(value, str) else value
    try:
        return float(text)
    except ValueError as error:
        raise StepUnresolvable(f"{what} is '{text}', not a number") from error


def _timeout(state: State, scopes: Scopes) -> float | None:
    if state.timeout_seconds is None:
        return None
    return _number(state.timeout_seconds, scopes, f"`timeoutSeconds` of '{state.name}'")


def _trigger(state: State, scopes: Scopes) -> Trigger | None:
    spec = state.trigger
    if spec is None:
        return None
    return Trigger(
        uri=scopes.render(spec.uri),
        poll_seconds=integer(spec.poll_seconds, scopes.config, "`pollSeconds`"),
        max_polls=integer(spec.max_polls, scopes.config, "`maxPolls`"),
        min_objects=integer(spec.min_objects, scopes.config, "`minObjects`"),
    )


def _checkpoint(state: State, scopes: Scopes) -> Checkpoint | None:
    if state.checkpoint is None:
        return None
    return Checkpoint(scopes.render(state.checkpoint.uri), scopes.render(state.checkpoint.loader))


def _foreach(state: State) -> ForeachSpec:
    assert state.foreach is not None  # noqa: S101  only such states are asked
    return state.foreach
