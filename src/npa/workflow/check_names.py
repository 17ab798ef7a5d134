"""Rules about names and references: what a word in the file refers to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from npa.workflow.check_context import Context
from npa.workflow.codes import Code
from npa.workflow.meaning import Path, State

NAME_CHARS_MAX = 63
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_ENV = ("NPA_", "SKYPILOT_")


def _name_hint(name: str) -> str:
    fixed = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:NAME_CHARS_MAX]
    return f"write '{fixed}'" if fixed and fixed != name else ""


def state_names(ctx: Context) -> None:
    for name in ctx.workflow.states:
        if not _NAME.fullmatch(name):
            ctx.add(
                Code.BAD_STATE_NAME,
                f"state name {name[:80]!r} is not 1 to 63 letters, digits, `-` and `_`",
                ("states", name),
                at_key=True,
                help=_name_hint(name),
            )


def workflow_name(ctx: Context) -> None:
    name = ctx.workflow.name
    if not _NAME.fullmatch(name):
        ctx.add(
            Code.BAD_WORKFLOW_NAME,
            f"workflow name {name[:80]!r} is not 1 to 63 letters, digits, `-` and `_`",
            ("metadata", "name"),
            help=_name_hint(name),
        )


def _references(state: State) -> Iterator[tuple[str, str, Path]]:
    """(name, field, path below the state) of every state that a state mentions."""
    if state.next:
        yield state.next, "next", ("next",)
    for number, transition in enumerate(state.transitions):
        yield transition.goto, "goto", ("transitions", number, "goto")
    for number, name in enumerate(state.needs):
        yield name, "needs", ("needs", number)
    for number, name in enumerate(state.sequence):
        yield name, "sequence", ("sequence", number)
    for number, name in enumerate(state.parallel):
        yield name, "parallel", ("parallel", number)


def state_references(ctx: Context) -> None:
    states = ctx.workflow.states
    if ctx.workflow.initial not in states:
        ctx.add(
            Code.UNKNOWN_STATE,
            f"unknown state '{ctx.workflow.initial}' in `initial`",
            ("initial",),
            help=_meant(ctx, ctx.workflow.initial),
        )
    for state in states.values():
        for name, field, below in _references(state):
            if name not in states:
                ctx.add(
                    Code.UNKNOWN_STATE,
                    f"unknown state '{name[:80]}' in `{field}`",
                    ctx.path(state, *below),
                    help=_meant(ctx, name),
                )


def _meant(ctx: Context, name: str) -> str:
    found = ctx.meant.get(name)
    return f"did you mean '{found}'?" if found else ""


def profile_references(ctx: Context) -> None:
    profiles = ctx.workflow.resources
    for state in ctx.workflow.states.values():
        if state.resources in profiles or state.resources == "default":
            continue
        hint = ctx.suggest.did_you_mean(state.resources, profiles)
        if not hint and profiles:
            hint = "profiles: " + ", ".join(list(profiles)[:8])
        ctx.add(
            Code.UNKNOWN_PROFILE,
            f"unknown resource profile '{state.resources[:80]}'",
            ctx.path(state, "resources"),
            help=hint,
        )


def environment_names(ctx: Context) -> None:
    for state in ctx.workflow.states.values():
        for name in state.env:
            if not _ENV_NAME.fullmatch(name) or name.startswith(_RESERVED_ENV):
                ctx.add(
                    Code.BAD_ENV_NAME,
                    _env_problem(name),
                    ctx.path(state, "env", name),
                    at_key=True,
                )
        for number, name in enumerate(state.secrets):
            path = ctx.path(state, "secrets", number)
            if not _ENV_NAME.fullmatch(name) or name.startswith(_RESERVED_ENV):
                hint = "give the name only, never the value" if "=" in name else ""
                shown = name.split("=", 1)[0]  # what follows may be a secret's value
                ctx.add(Code.BAD_ENV_NAME, _env_problem(shown), path, help=hint)
            elif name in state.env:
                ctx.add(
                    Code.BAD_ENV_NAME,
                    f"'{name}' stands in `env` and in `secrets`",
                    path,
                    help="a secret's value is taken at submit; remove it from `env`",
                )


def _env_problem(name: str) -> str:
    if name.startswith(_RESERVED_ENV):
        return f"environment name '{name[:80]}' is reserved for the engine"
    return f"{name[:80]!r} is not an environment name"


NAME_RULES = (
    state_names,
    workflow_name,
    state_references,
    profile_references,
    environment_names,
)
