"""Rules about decisions: who writes them, who reads them, and config flags on transitions."""

from __future__ import annotations

from collections.abc import Iterable

from npa.workflow.check_context import Context
from npa.workflow.codes import Code
from npa.workflow.meaning import State
from npa.workflow.order import group_members
from npa.workflow.tokens import config_reference


def decision_writers(ctx: Context) -> None:
    """Every loop with `until` has a writer among its members, at any depth."""
    states = ctx.workflow.states
    for state in states.values():
        if state.loop is None or not state.loop.until or state.name in ctx.broken:
            continue
        path = ctx.path(state, "loop", "until")
        if not group_members(state):
            if not _has_place(ctx, state):
                ctx.add(
                    Code.NO_DECISION_WRITER,
                    f"'{state.name}' declares no place for its decision, so `until` never holds",
                    path,
                    help="add an output whose schema names a decision, or `config.decision_uri`",
                )
            continue
        inside = _inside(ctx, state)
        writers = [name for name in inside if states[name].writes_decision]
        if not writers and _all_known(ctx, (state.name, *inside)):
            ctx.add(
                Code.NO_DECISION_WRITER,
                f"no member of '{state.name}' has `writesDecision`, so `until` never holds",
                path,
                help="add `writesDecision: true` to the member that decides",
            )
        elif writers and not any(_has_place(ctx, states[name]) for name in writers):
            ctx.add(
                Code.NO_DECISION_WRITER,
                f"'{writers[-1]}' declares no place for its decision",
                ctx.path(writers[-1], "writesDecision"),
                at_key=True,
                help="add an output whose schema names a decision, or `config.decision_uri`",
            )


def _inside(ctx: Context, state: State) -> list[str]:
    """All states inside a group, in order, at any depth."""
    states = ctx.flow.states
    found: dict[str, None] = {}
    pending = list(reversed(group_members(states[state.name])))
    while pending:
        name = pending.pop()
        if name in states and name not in found:
            found[name] = None
            pending.extend(reversed(group_members(states[name])))
    return list(found)


def _all_known(ctx: Context, groups: Iterable[str]) -> bool:
    """Is each member of these groups a state of the file?"""
    states = ctx.flow.states
    return all(member in states for name in groups for member in group_members(states[name]))


def _has_place(ctx: Context, state: State) -> bool:
    """Is it known where the state's decision lies?"""
    if any("decision" in io.schema.lower() for io in state.outputs):
        return True
    place = state.params.get("decision_uri", ctx.config.get("decision_uri"))
    return isinstance(place, str) and bool(place.strip())


def idle_decisions(ctx: Context) -> None:
    """`writesDecision` means something only where a loop or a branch reads it."""
    states = ctx.workflow.states
    read: set[str] = set()
    for state in states.values():
        if state.loop is not None and (state.loop.until or state.name in ctx.broken):
            read.update(_inside(ctx, state) if group_members(state) else (state.name,))
    branches = any(
        transition.when
        for state in states.values()
        if not group_members(state) and not ctx.reach.only_member(state.name)
        for transition in state.transitions
    )
    for state in states.values():
        idle = state.name not in read and not branches and not ctx.may_belong(state)
        if state.writes_decision and idle:
            ctx.add(
                Code.IDLE_DECISION,
                f"nothing reads the decision of '{state.name}'",
                ctx.path(state, "writesDecision"),
                at_key=True,
                help="put it in a `sequence` with `loop.until`, or remove `writesDecision`",
            )


def flags(ctx: Context) -> None:
    """`if` names a config key: `config.KEY` or `{{config.KEY}}`."""
    for state in ctx.workflow.states.values():
        for number, transition in enumerate(state.transitions):
            if not transition.if_:
                continue
            key = config_reference(transition.if_)
            path = ctx.path(state, "transitions", number, "if")
            if not key:
                ctx.add(
                    Code.BAD_IF,
                    f"`if` is {transition.if_[:60]!r}, not a reference to a config key",
                    path,
                    help="write `config.KEY`",
                )
            elif key not in ctx.config and key not in state.params:
                ctx.add(
                    Code.BAD_IF,
                    f"`if` refers to the unknown config key '{key}'",
                    path,
                    help=ctx.suggest.did_you_mean(key, ctx.config),
                )


def gates(ctx: Context) -> None:
    """A transition or loop decides by a word or by a number, not by both."""
    for state in ctx.workflow.states.values():
        loop = state.loop
        if loop is not None and loop.gate is not None and loop.until:
            ctx.add(
                Code.TWO_SHAPES,
                f"the loop of '{state.name}' has both `until` and `gate`",
                ctx.path(state, "loop", "gate"),
                at_key=True,
                help="keep one",
            )
        for number, transition in enumerate(state.transitions):
            if transition.gate is not None and transition.when:
                ctx.add(
                    Code.TWO_SHAPES,
                    f"a transition of '{state.name}' has both `when` and `gate`",
                    ctx.path(state, "transitions", number, "gate"),
                    at_key=True,
                    help="keep one",
                )


DECISION_RULES = (decision_writers, idle_decisions, flags, gates)
