"""Rules about the shape of a state: one shape, one executable, every field in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from npa.workflow.check_context import Context
from npa.workflow.codes import Code
from npa.workflow.meaning import State
from npa.workflow.order import group_members
from npa.workflow.texts import loop_gate
from npa.workflow.tokens import NotAnInteger, config_reference, integer, text_of

CONCURRENCY_MAX = 64
"""Members of one JobGroup at a time (group mode)."""
WINDOW_MAX = 10_000
ITERATIONS_MAX = 50_000
"""A plan has at most 50,000 steps, so no loop can be longer."""


def executes(state: State) -> bool:
    return bool(state.tool_ref) or state.run is not None


def shapes(ctx: Context) -> None:
    for state in ctx.workflow.states.values():
        command = "toolRef" if state.tool_ref else "run" if state.run is not None else ""
        if state.parallel and state.sequence:
            _clash(ctx, state, "sequence", "parallel")
        group = "parallel" if state.parallel else "sequence" if state.sequence else ""
        if group and command:
            _clash(ctx, state, command, group)
        if state.parallel and state.loop is not None:
            _clash(ctx, state, "loop", "parallel", "put the group in a `sequence` that loops")
        if state.parallel and state.foreach is not None:
            _clash(ctx, state, "foreach", "parallel", "put the group in a `sequence`")
        if state.foreach is not None and not (command or group):
            _out_of_place(ctx, state, "foreach", "a command or a `sequence`")
        if state.loop is not None and not (command or group):
            _out_of_place(ctx, state, "loop", "a command or a `sequence`")


def _clash(ctx: Context, state: State, one: str, other: str, hint: str = "") -> None:
    ctx.add(
        Code.TWO_SHAPES,
        f"state '{state.name}' has both `{one}` and `{other}`",
        ctx.path(state, one),
        at_key=True,
        help=hint or "split it into two states",
    )


def executables(ctx: Context) -> None:
    for state in ctx.sound_states():
        run = state.run
        if state.tool_ref and run is not None:
            ctx.add(
                Code.SEVERAL_EXECUTABLES,
                f"state '{state.name}' has both `toolRef` and `run`",
                ctx.path(state, "run"),
                at_key=True,
                help="keep one",
            )
        if run is None:
            continue
        if run.argv and run.shell:
            ctx.add(
                Code.SEVERAL_EXECUTABLES,
                f"`run` of '{state.name}' has both `argv` and `shell`",
                ctx.path(state, "run", "shell"),
                at_key=True,
                help="keep one",
            )
        elif not run.argv and not run.shell.strip():
            ctx.add(
                Code.EMPTY_RUN,
                f"`run` of '{state.name}' has no command",
                ctx.path(state, "run"),
                at_key=True,
                help="give `shell` or `argv`",
            )
        elif run.argv and not run.argv[0].strip():
            ctx.add(
                Code.EMPTY_RUN,
                f"the first item of `argv` of '{state.name}' is empty",
                ctx.path(state, "run", "argv", 0),
            )


def nothing_to_do(ctx: Context) -> None:
    for state in ctx.sound_states():
        if not (
            executes(state)
            or group_members(state)
            or state.transitions
            or state.next
            or state.terminal
        ):
            ctx.add(
                Code.DOES_NOTHING,
                f"state '{state.name}' has nothing to do",
                ctx.path(state),
                at_key=True,
                help="give it `run`, `toolRef`, `sequence`, `parallel`, `transitions` or `next`",
            )


def _command_fields(state: State) -> Iterator[str]:
    """Fields in use that mean something for a command only."""
    if state.trigger is not None:
        yield "trigger"
    if state.retry is not None:
        yield "retry"
    if state.timeout_seconds is not None:
        yield "timeoutSeconds"
    if state.env:
        yield "env"
    if state.secrets:
        yield "secrets"
    if state.checkpoint is not None:
        yield "checkpoint"
    if state.multi_node:
        yield "multiNodeMode"


def fields_in_place(ctx: Context) -> None:
    for state in ctx.sound_states():
        if not executes(state):
            for field in _command_fields(state):
                _out_of_place(ctx, state, field, "`run` or `toolRef`")
            if group_members(state):
                for field, used in (("params", state.params), ("outputs", state.outputs)):
                    if used:
                        ctx.add(
                            Code.IDLE_FIELD,
                            f"`{field}` of the group '{state.name}' has no effect",
                            ctx.path(state, field),
                            at_key=True,
                            help="put it on the members",
                        )
        if not state.parallel:
            if state.parallel_count is not None:
                _out_of_place(ctx, state, "parallelCount", "`parallel`")
            if state.foreach is None:
                if state.max_concurrency is not None:
                    _out_of_place(ctx, state, "maxConcurrency", "`parallel` or `foreach`")
                if state.parallel_mode == "window":
                    _out_of_place(ctx, state, "parallelMode", "`parallel` or `foreach`")
        if state.tool_ref and state.multi_node:
            ctx.add(
                Code.IDLE_FIELD,
                f"`multiNodeMode` of '{state.name}' has no effect: the toolRef's entry decides",
                ctx.path(state, "multiNodeMode"),
                at_key=True,
            )


def _out_of_place(ctx: Context, state: State, field: str, wanted: str) -> None:
    ctx.add(
        Code.FIELD_OUT_OF_PLACE,
        f"`{field}` of '{state.name}' needs {wanted} in the same state",
        ctx.path(state, field),
        at_key=True,
    )


def parallel_members(ctx: Context) -> None:
    states = ctx.workflow.states
    for group in states.values():
        seen: set[str] = set()
        for number, name in enumerate(group.parallel):
            why = ""
            if name in seen:
                why = "is listed twice"
            elif name in states and name != group.name:
                why = _unfit_member(states[name])
            seen.add(name)
            if why:
                ctx.add(
                    Code.BAD_MEMBER,
                    f"member '{name}' of the parallel group '{group.name}' {why}",
                    ctx.path(group, "parallel", number),
                )


def _unfit_member(member: State) -> str:
    if member.parallel:
        return "is a parallel group itself"
    if member.terminal:
        return "is terminal"
    if member.next:
        return "has `next`; the group's own `next` follows when all members have ended"
    if member.transitions:
        return "has transitions; the group's own `next` follows when all members have ended"
    return ""


def foreach_items(ctx: Context) -> None:
    """A fan-out takes its items from the file or from an artifact, and not too many."""
    for state in ctx.sound_states():
        spec = state.foreach
        if spec is None:
            continue
        path = ctx.path(state, "foreach")
        if spec.items is not None and spec.uri:
            ctx.add(
                Code.TWO_SHAPES,
                f"the foreach of '{state.name}' has both `items` and `uri`",
                (*path, "uri"),
                at_key=True,
                help="keep one",
            )
        elif spec.items is None and not spec.uri.strip():
            ctx.add(
                Code.MISSING_KEY,
                f"the foreach of '{state.name}' has no items",
                path,
                at_key=True,
                help="add `items:`, or `uri:` of a JSON list",
            )
        elif spec.items is not None and len(spec.items) > spec.max_items:
            ctx.add(
                Code.OUT_OF_BOUNDS,
                f"`foreach.items` of '{state.name}' has {len(spec.items)} items, more than "
                f"`maxItems` ({spec.max_items})",
                (*path, "items"),
                at_key=True,
            )


def numbers(ctx: Context) -> None:
    for state in ctx.workflow.states.values():
        if state.loop is not None:
            _number(ctx, state, ("loop", "max"), state.loop.max, 1, ITERATIONS_MAX)
        if state.max_concurrency is not None:
            most = CONCURRENCY_MAX if state.parallel_mode == "group" else WINDOW_MAX
            _number(ctx, state, ("maxConcurrency",), state.max_concurrency, 1, most)
        if state.parallel_count is not None and state.parallel:
            count = _number(ctx, state, ("parallelCount",), state.parallel_count, 0, None)
            if count is not None and count != len(state.parallel):
                ctx.add(
                    Code.COUNT_MISMATCH,
                    f"`parallelCount` is {count}, but '{state.name}' has "
                    f"{len(state.parallel)} members",
                    ctx.path(state, "parallelCount"),
                )
        if state.trigger is not None:
            trigger = state.trigger
            _number(ctx, state, ("trigger", "pollSeconds"), trigger.poll_seconds, 1, None)
            _number(ctx, state, ("trigger", "maxPolls"), trigger.max_polls, 0, None)
            _number(ctx, state, ("trigger", "minObjects"), trigger.min_objects, 1, None)
        _measures(ctx, state)


def _number(
    ctx: Context,
    state: State,
    below: tuple[str, ...],
    value: int | str,
    least: int,
    most: int | None,
) -> int | None:
    """Check one integer field; the number if it can be known."""
    field = ".".join(below)
    path = ctx.path(state, *below)
    try:
        config = ctx.seen_by(state) if below[0] == "trigger" else ctx.resolved
        number = integer(value, config, f"`{field}`")
    except NotAnInteger as error:
        if not ctx.reported_in_config(value):
            ctx.add(Code.BAD_NUMBER, error.message, path, help=ctx.config_hint(value))
        return None
    if number < least or (most is not None and number > most):
        bounds = f"{least} to {most:,}" if most is not None else f"{least} or more"
        ctx.add(Code.OUT_OF_BOUNDS, f"`{field}` is {number}, but must be {bounds}", path)
        return None
    return number


def _measures(ctx: Context, state: State) -> None:
    """Numbers that need not be whole: deadlines, pauses, the values of gates."""
    if state.timeout_seconds is not None:
        _measure(ctx, state, ("timeoutSeconds",), state.timeout_seconds, above=0.0)
    if state.retry is not None and not 0 <= state.retry.backoff_seconds < float("inf"):
        ctx.add(
            Code.OUT_OF_BOUNDS,
            "`retry.backoffSeconds` must be 0 or more",
            ctx.path(state, "retry", "backoffSeconds"),
        )
    if state.loop is not None and state.loop.gate is not None:
        below = loop_gate(state, ctx.workflow.positions)[2:]
        _measure(ctx, state, (*below, "value"), state.loop.gate.value)
    for number, transition in enumerate(state.transitions):
        if transition.gate is not None:
            below = ("transitions", number, "gate", "value")
            _measure(ctx, state, below, transition.gate.value)


def _measure(
    ctx: Context,
    state: State,
    below: tuple[str | int, ...],
    value: float | str,
    above: float | None = None,
) -> None:
    config = ctx.seen_by(state)
    number = ctx.number(value, config)
    path = ctx.path(state, *below)
    if number is None:
        if not ctx.reported_in_config(value):
            said = _no_measure(f"`{below[-1]}`", value, config)
            ctx.add(Code.BAD_NUMBER, said, path, help=ctx.config_hint(value))
    elif not (above is None or above < number < float("inf")):
        ctx.add(Code.OUT_OF_BOUNDS, f"`{below[-1]}` must be more than {above:g}", path)


def _no_measure(field: str, value: float | str, config: Mapping[str, object]) -> str:
    """Why there is no number: the field's own text, an unknown key, or what the key holds."""
    key = config_reference(value) if isinstance(value, str) else ""
    if not key:
        return f"{field} is {str(value)[:60]!r}, not a number or a reference to one"
    if key not in config:
        return f"{field} refers to the unknown config key '{key[:80]}'"
    return f"`config.{key[:80]}` is {text_of(config[key])[:60]!r}, not a number"


SHAPE_RULES = (
    shapes,
    executables,
    nothing_to_do,
    fields_in_place,
    parallel_members,
    foreach_items,
    numbers,
)
