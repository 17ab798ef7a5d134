"""From models to meaning: defaults applied, spellings settled, everything immutable."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from npa.workflow import model
from npa.workflow.meaning import (
    ForeachSpec,
    GateSpec,
    IoSpec,
    LoopSpec,
    RunBlock,
    State,
    TransitionSpec,
    TriggerSpec,
)
from npa.workflow.step import Checkpoint, Retry
from npa.workflow.tokens import config_reference, text_of

_EMPTY: MappingProxyType[str, Any] = MappingProxyType({})


def lower_state(name: str, block: model.StateBlock) -> State:
    """The meaning of one state."""
    return State(
        name=name,
        description=block.description,
        tool_ref=block.tool_ref or "",
        run=_run(block.run) if block.run is not None else None,
        sequence=tuple(block.sequence) if block.sequence else (),
        parallel=tuple(block.parallel) if block.parallel else (),
        parallel_mode=block.parallel_mode,
        max_concurrency=block.max_concurrency,
        params=MappingProxyType(dict(block.params)) if block.params else _EMPTY,
        trigger=_trigger(block.trigger) if block.trigger is not None else None,
        loop=_loop(block.loop) if block.loop is not None else None,
        transitions=tuple(map(_transition, block.transitions)) if block.transitions else (),
        next=block.next or "",
        needs=tuple(block.needs) if block.needs else (),
        inputs=tuple(map(_io, block.inputs)) if block.inputs else (),
        outputs=tuple(map(_io, block.outputs)) if block.outputs else (),
        resources=block.resources,
        terminal=block.terminal,
        writes_decision=block.writes_decision,
        multi_node=block.multi_node_mode == "sharded",
        retry=(
            Retry(block.retry.payload, float(block.retry.backoff_seconds))
            if block.retry is not None
            else None
        ),
        timeout_seconds=_measure(block.timeout_seconds),
        env=MappingProxyType(dict(block.env)) if block.env else _EMPTY,
        secrets=tuple(block.secrets) if block.secrets else (),
        checkpoint=(
            Checkpoint(block.checkpoint.uri, block.checkpoint.loader)
            if block.checkpoint is not None
            else None
        ),
        foreach=_foreach(block.foreach) if block.foreach is not None else None,
        parallel_count=block.parallel_count,
    )


def _run(block: model.Run) -> RunBlock:
    return RunBlock(
        argv=tuple(text_of(item) for item in block.argv or ()),
        shell=block.shell or "",
        setup=block.setup or "",
    )


def _io(block: model.Io) -> IoSpec:
    return IoSpec(block.uri, block.schema_)


def _gate(block: model.Gate | None) -> GateSpec | None:
    if block is None:
        return None
    value = _measure(block.value)
    return GateSpec(block.uri, block.path, block.op, 0.0 if value is None else value)


def _measure(value: float | str | None) -> float | str | None:
    """A number, or text with tokens: a bare `config.KEY` becomes a token."""
    if isinstance(value, str):
        key = config_reference(value)
        return f"{{{{config.{key}}}}}" if key else value
    return value if value is None else float(value)


def _loop(block: model.Loop) -> LoopSpec:
    if isinstance(block.until, model.UntilGate):
        return LoopSpec(block.max, "", _gate(block.until.gate))
    return LoopSpec(block.max, block.until or "", _gate(block.gate))


def _transition(block: model.Transition) -> TransitionSpec:
    return TransitionSpec(block.goto, block.when or "", block.if_ or "", _gate(block.gate))


def _trigger(block: model.Trigger) -> TriggerSpec:
    return TriggerSpec(block.uri, block.poll_seconds, block.max_polls, block.min_objects)


def _foreach(block: model.Foreach) -> ForeachSpec:
    items = tuple(block.items) if block.items is not None else None
    return ForeachSpec(items, block.uri or "", block.as_, block.max_items)
