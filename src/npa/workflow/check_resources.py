"""Rules about resource profiles: spellings, gang sizes, and who may run on several nodes."""

from __future__ import annotations

from collections.abc import Mapping

from npa.workflow.check_context import Context
from npa.workflow.check_shape import executes
from npa.workflow.codes import Code
from npa.workflow.meaning import State
from npa.workflow.profile import (
    ProfileError,
    parse_num_nodes,
    profile_problems,
)
from npa.workflow.tokens import NotAnInteger, Scopes, Token, integer, render_value, text_of
from npa.workflow.tools import GangMode, Tool


class _Sampled(Exception):
    """A token whose value is known only in a run."""


class _Resolver:
    """Resolves profile values with one state's params; refuses what only a run can know."""

    def __init__(self, ctx: Context, params: Mapping[str, object]) -> None:
        self._scopes = Scopes(config={**ctx.resolved, **params} if params else ctx.resolved)

    def lookup(self, token: Token) -> object:
        if token.scope != "config" or token.key not in self._scopes.config:
            raise _Sampled
        value = self._scopes.config[token.key]
        if isinstance(value, str) and "{{" in value:
            raise _Sampled
        return value

    def profile(self, raw: Mapping[str, object]) -> dict[str, object]:
        """The profile without the fields that cannot be known yet."""
        resolved = {}
        for key, value in raw.items():
            try:
                resolved[key] = render_value(value, self.lookup)
            except _Sampled:
                continue
        return resolved


def _holds_tokens(profile: Mapping[str, object]) -> bool:
    return "{{" in text_of(dict(profile))


def profiles(ctx: Context) -> None:
    """Each profile is judged once, or once for each set of params if it holds tokens."""
    users: dict[str, list[State]] = {}
    for state in ctx.workflow.states.values():
        users.setdefault(state.resources, []).append(state)
    for name, raw in ctx.workflow.resources.items():
        overlays: list[Mapping[str, object]] = [{}]
        if _holds_tokens(raw):
            overlays += [state.params for state in users.get(name, ()) if state.params]
        told: set[tuple[str, str]] = set()
        for params in overlays[:200]:
            resolved = _Resolver(ctx, params).profile(raw)
            for problem in profile_problems(name, resolved):
                if (problem.key, problem.message) not in told:
                    told.add((problem.key, problem.message))
                    ctx.add(
                        Code.BAD_RESOURCE,
                        f"{problem.message} in profile '{name}'",
                        ("resources", name, problem.key),
                        help=problem.hint,
                    )


_KUBERNETES_KEYS = frozenset({"pod_config", "provision_timeout"})


def kubernetes_blocks(ctx: Context) -> None:
    """Of `kubernetes` the provider is given two keys only."""
    for name, raw in ctx.workflow.resources.items():
        block = raw.get("kubernetes")
        for key in block if isinstance(block, dict) else ():
            if key not in _KUBERNETES_KEYS and not key.startswith("x-"):
                ctx.add(
                    Code.IDLE_FIELD,
                    f"`kubernetes.{key[:80]}` of profile '{name}' has no effect",
                    ("resources", name, "kubernetes", key),
                    at_key=True,
                    help=ctx.suggest.did_you_mean(key, _KUBERNETES_KEYS)
                    or "only `pod_config` and `provision_timeout` are passed on",
                )


def gangs(ctx: Context) -> None:
    """More than one node wants a command that knows its rank."""
    sizes: dict[str, int] = {}
    for state in ctx.sound_states():
        raw = ctx.workflow.resources.get(state.resources, {})
        if "num_nodes" not in raw and "numNodes" not in raw:
            continue
        if not executes(state):
            continue
        nodes = sizes.get(state.resources)
        if nodes is None or state.params:
            nodes = _nodes(ctx, state, raw)
            if not state.params:
                sizes[state.resources] = nodes
        if nodes > 1:
            _gang(ctx, state, nodes)


def _nodes(ctx: Context, state: State, raw: Mapping[str, object]) -> int:
    resolved = _Resolver(ctx, state.params).profile(raw)
    try:
        return parse_num_nodes(resolved.get("num_nodes", resolved.get("numNodes", 1)))
    except ProfileError:
        return 1  # `profiles` complains


def _gang(ctx: Context, state: State, nodes: int) -> None:
    tool = ctx.tool(state.tool_ref) if state.tool_ref else None
    if state.tool_ref and tool is None:
        return
    if tool is not None and tool.gang is GangMode.SHARDED:
        _contract(ctx, state, tool, nodes)
    elif tool is not None or not state.multi_node:
        what = f"tool '{tool.ref}'" if tool is not None else "its command"
        ctx.add(
            Code.NOT_RANK_AWARE,
            f"state '{state.name}' asks for {nodes} nodes, but {what} is not rank-aware",
            ctx.path(state, "resources"),
            help="set `num_nodes: 1`"
            if tool is not None
            else "promise it with `multiNodeMode: sharded`, or set `num_nodes: 1`",
        )


def _contract(ctx: Context, state: State, tool: Tool, nodes: int) -> None:
    config = {**ctx.resolved, **state.params}

    def complain(message: str) -> None:
        ctx.add(Code.GANG_CONTRACT, message, ctx.path(state, "resources"))

    activation = tool.gang_activation_key
    if activation and not text_of(config.get(activation, "")).strip():
        complain(f"tool '{tool.ref}' on {nodes} nodes needs the config key '{activation}'")
    output = tool.gang_output_key
    if output:
        place = text_of(config.get(output, "")).strip()
        if "://" not in place and "{{" not in place:
            complain(f"tool '{tool.ref}' on {nodes} nodes needs a URI in config key '{output}'")
    counted = tool.gang_count_key
    if counted and counted in config:
        try:
            count = integer(config[counted], config, f"config key '{counted}'")
        except NotAnInteger as error:
            complain(error.message)
            return
        if count < nodes:
            complain(f"config key '{counted}' is {count}, fewer than the {nodes} nodes")


RESOURCE_RULES = (profiles, kubernetes_blocks, gangs)
