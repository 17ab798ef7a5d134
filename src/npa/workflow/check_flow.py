"""Rules about control flow: what is reached, what ends, what never fires, what contradicts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from npa.workflow.check_context import Context
from npa.workflow.codes import Code
from npa.workflow.meaning import State, TransitionSpec
from npa.workflow.order import Before, find_cycles, group_edges, group_members, state_targets

_SHOWN_MAX = 8


def shown_path(names: list[str]) -> str:
    """A path for people; the middle of a long one is left out."""
    if len(names) > _SHOWN_MAX:
        names = [*names[: _SHOWN_MAX - 2], f"({len(names) - _SHOWN_MAX + 1} more)", names[-1]]
    return " -> ".join(names)


def groups_in_themselves(ctx: Context) -> None:
    for cycle in find_cycles(group_edges(ctx.workflow)):
        group, member = cycle[-2], cycle[-1]
        state = ctx.workflow.states[group]
        field = "parallel" if state.parallel else "sequence"
        ctx.add(
            Code.GROUP_IN_ITSELF,
            f"group '{member}' contains itself: {shown_path(cycle)}",
            ctx.path(state, field, group_members(state).index(member)),
        )


def flow_cycles(ctx: Context) -> None:
    states = ctx.workflow.states
    for cycle in ctx.circles:
        source, target = states[cycle[-2]], cycle[-1]
        ctx.add(
            Code.FLOW_CYCLE,
            f"`next` and `goto` go round in a circle: {shown_path(cycle)}",
            _way_to(ctx, source, target),
            help="repeat with `loop` on a `sequence`",
        )


def _way_to(ctx: Context, source: State, target: str) -> tuple[str | int, ...]:
    for number, transition in enumerate(source.transitions):
        if transition.goto == target:
            return ctx.path(source, "transitions", number, "goto")
    return ctx.path(source, "next")


def terminals(ctx: Context) -> None:
    states = ctx.workflow.states
    if ctx.broken or ctx.flow.initial not in states:
        return
    ends = [name for name, state in states.items() if state.terminal]
    if not ends:
        ctx.add(
            Code.NO_TERMINAL,
            "no state is terminal, so the workflow cannot end",
            ("states",),
            at_key=True,
            help="add `terminal: true` to the last state",
        )
    elif not ctx.leads_astray and not any(name in ctx.reach.top for name in ends):
        ctx.add(
            Code.TERMINAL_UNREACHABLE,
            f"no terminal state can be reached from '{ctx.workflow.initial}'",
            ctx.path(ends[0], "terminal"),
            help="a member of a group does not end the workflow"
            if ends[0] in ctx.reach
            else "connect it with `next`",
        )


def unreachable(ctx: Context) -> None:
    """Of what is not reached, only where it begins; nothing while a way on is missing or wrong."""
    states = ctx.flow.states
    if ctx.flow.initial not in states or ctx.broken or ctx.leads_astray or ctx.dead_ends:
        return
    left = [name for name in states if name not in ctx.reach]
    told: set[str] = set()
    following = {target for name in left for target in state_targets(states[name])}
    # A circle of such states has no beginning: its first state in the file stands for it.
    for name in (*(n for n in left if n not in following), *left):
        if name not in told:
            told |= _from(states, name)
            ctx.add(
                Code.UNREACHABLE,
                f"state '{name}' is never reached",
                ("states", name),
                at_key=True,
                help="name it in `next`, `goto`, `sequence` or `parallel`",
            )


def _from(states: Mapping[str, State], first: str) -> set[str]:
    """The state and all that follows it."""
    found = {first}
    pending = [first]
    while pending:
        for name in state_targets(states[pending.pop()]):
            if name in states and name not in found:
                found.add(name)
                pending.append(name)
    return found


def dead_ends(ctx: Context) -> None:
    for state in ctx.dead_ends:
        ctx.add(
            Code.DEAD_END,
            f"the run would end at '{state.name}' without a terminal state",
            ctx.path(state),
            at_key=True,
            help="add `next:`, or `terminal: true`",
        )


def may_not_match(ctx: Context) -> None:
    for state in ctx.sound_states():
        if state.name not in ctx.reach.top or state.terminal or state.next:
            continue
        live = () if group_members(state) else state.transitions
        if live and not _exhaustive(live):
            ctx.add(
                Code.MAY_NOT_MATCH,
                f"if no transition of '{state.name}' matches, the run fails",
                ctx.path(state, "transitions"),
                at_key=True,
                help="add `next:` or a transition without a condition",
            )


def _unconditional(transition: TransitionSpec) -> bool:
    return not (transition.when or transition.if_ or transition.gate)


def _exhaustive(transitions: tuple[TransitionSpec, ...]) -> bool:
    plain = {t.when for t in transitions if not t.if_ and t.gate is None}
    return "" in plain or {"promote_checkpoint", "loop_back"} <= plain


def dead_transitions(ctx: Context) -> None:
    for state in ctx.workflow.states.values():
        if not state.transitions:
            continue
        path = ctx.path(state, "transitions")
        if group_members(state):
            why = "a group passes on by `next` alone"
        elif ctx.reach.only_member(state.name):
            why = "its group decides what follows"
        elif state.terminal:
            why = "the state is terminal"
        else:
            _dead_one_by_one(ctx, state)
            continue
        ctx.add(
            Code.DEAD_TRANSITION,
            f"transitions of '{state.name}' can never fire: {why}",
            path,
            at_key=True,
        )


def _dead_one_by_one(ctx: Context, state: State) -> None:
    seen: set[str] = set()
    for number, transition in enumerate(state.transitions):
        if "" in seen or (transition.when in seen and transition.when):
            ctx.add(
                Code.DEAD_TRANSITION,
                f"this transition of '{state.name}' can never fire: an earlier one always does",
                ctx.path(state, "transitions", number),
            )
        elif not transition.if_ and transition.gate is None:
            seen.add(transition.when)
    if state.next and _exhaustive(state.transitions):
        ctx.add(
            Code.DEAD_TRANSITION,
            f"`next` of '{state.name}' is never taken: its transitions cover every case",
            ctx.path(state, "next"),
        )


def member_ways_out(ctx: Context) -> None:
    for state in ctx.workflow.states.values():
        if state.terminal and state.next:
            ctx.add(
                Code.DEAD_TRANSITION,
                f"`next` of '{state.name}' is never taken: the state is terminal",
                ctx.path(state, "next"),
            )
        if not ctx.reach.only_member(state.name) or state.name in ctx.parallel_members:
            continue
        if state.next:
            ctx.add(
                Code.MEMBER_NEXT,
                f"'{state.name}' is a member of a group, so its `next` would not be followed",
                ctx.path(state, "next"),
                at_key=True,
                help=f"list '{state.next}' in the group's `sequence`, or put `next` on the group",
            )
        if state.terminal:
            ctx.add(
                Code.MEMBER_TERMINAL,
                f"'{state.name}' is a member of a group, so `terminal` does not end the workflow",
                ctx.path(state, "terminal"),
                at_key=True,
                help="put `terminal: true` on the group or on a state after it",
            )


def needs(ctx: Context) -> None:
    states = ctx.workflow.states
    edges = {name: tuple(n for n in state.needs if n in states) for name, state in states.items()}
    in_cycle: set[tuple[str, str]] = set()
    for cycle in find_cycles(edges):
        in_cycle.update(pairwise(cycle))
        source = states[cycle[-2]]
        ctx.add(
            Code.NEEDS_CYCLE,
            f"`needs` go round in a circle: {shown_path(cycle)}",
            ctx.path(source, "needs", source.needs.index(cycle[-1])),
        )
    if ctx.order is None:
        return
    for name, state in states.items():
        for number, needed in enumerate(state.needs):
            if needed not in states or (name, needed) in in_cycle:
                continue
            relation = ctx.order.before(needed, name)
            if relation in (Before.NEVER, Before.TOGETHER):
                how = "runs beside" if relation is Before.TOGETHER else "does not run before"
                ctx.add(
                    Code.NEEDS_AGAINST_ORDER,
                    f"'{name}' needs '{needed}', which {how} it",
                    ctx.path(state, "needs", number),
                    help="`needs` starts nothing; order comes from `next` and `sequence`",
                )


FLOW_RULES = (
    groups_in_themselves,
    flow_cycles,
    terminals,
    unreachable,
    dead_ends,
    may_not_match,
    dead_transitions,
    member_ways_out,
    needs,
)
