"""Every text of a workflow in which tokens are resolved, with its place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from npa.workflow.meaning import GateSpec, Path, Positions, State


class Text(Struct, frozen=True):
    """One text. `field` is the state's key it stands under; `params` texts see base config only."""

    text: str
    path: Path
    field: str


def deep_texts(value: object, path: Path, field: str) -> Iterator[Text]:
    """All strings inside a value that hold `{{`. Iterative."""
    pending: list[tuple[object, Path]] = [(value, path)]
    while pending:
        item, place = pending.pop()
        if isinstance(item, str):
            if "{{" in item:
                yield Text(item, place, field)
        elif isinstance(item, Mapping):
            pending.extend((inner, (*place, key)) for key, inner in item.items())
        elif isinstance(item, list | tuple):
            pending.extend((inner, (*place, number)) for number, inner in enumerate(item))


def loop_gate(state: State, positions: Positions | None) -> Path:
    """Where the gate of a state's loop stands: `loop.gate`, or `loop.until.gate`."""
    loop: Path = ("states", state.name, "loop")
    until: Path = (*loop, "until")
    if positions is not None and positions.key((*until, "gate")) != positions.key(until):
        return (*until, "gate")
    return (*loop, "gate")


def state_texts(state: State, positions: Positions | None = None) -> Iterator[Text]:
    """Texts of a state that hold `{{`. Its profile and its tool's command are not among them."""
    for text in _all_texts(state, positions):
        if "{{" in text.text:
            yield text


def _all_texts(state: State, positions: Positions | None) -> Iterator[Text]:
    base: Path = ("states", state.name)
    run = state.run
    if run is not None:
        yield Text(run.shell, (*base, "run", "shell"), "run")
        if run.setup:
            yield Text(run.setup, (*base, "run", "setup"), "run")
        for number, item in enumerate(run.argv):
            yield Text(item, (*base, "run", "argv", number), "run")
    for key, value in state.params.items():
        if isinstance(value, str):
            yield Text(value, (*base, "params", key), "params")
    for field, artifacts in (("inputs", state.inputs), ("outputs", state.outputs)):
        for number, io in enumerate(artifacts):
            yield Text(io.uri, (*base, field, number, "uri"), field)
    for key, text in state.env.items():
        yield Text(text, (*base, "env", key), "env")
    if state.trigger is not None:
        yield Text(state.trigger.uri, (*base, "trigger", "uri"), "trigger")
    if isinstance(state.timeout_seconds, str):
        yield Text(state.timeout_seconds, (*base, "timeoutSeconds"), "timeoutSeconds")
    if state.checkpoint is not None:
        yield Text(state.checkpoint.uri, (*base, "checkpoint", "uri"), "checkpoint")
        yield Text(state.checkpoint.loader, (*base, "checkpoint", "loader"), "checkpoint")
    if state.foreach is not None:
        yield Text(state.foreach.uri, (*base, "foreach", "uri"), "foreach")
        for number, value in enumerate(state.foreach.items or ()):
            if isinstance(value, str):
                yield Text(value, (*base, "foreach", "items", number), "foreach")
    yield from _gate_texts(state, base, positions)


def _gate_texts(state: State, base: Path, positions: Positions | None) -> Iterator[Text]:
    gates: list[tuple[GateSpec, Path]] = []
    if state.loop is not None and state.loop.gate is not None:
        gates.append((state.loop.gate, loop_gate(state, positions)))
    for number, transition in enumerate(state.transitions):
        if transition.gate is not None:
            gates.append((transition.gate, (*base, "transitions", number, "gate")))
    for gate, path in gates:
        yield Text(gate.uri, (*path, "uri"), "gate")
