"""Rules about toolRefs: the entry exists, its parameters are known, what it needs is given."""

from __future__ import annotations

import re
from collections.abc import Mapping

from npa.workflow.check_context import Context
from npa.workflow.codes import Code
from npa.workflow.meaning import State
from npa.workflow.texts import deep_texts, state_texts
from npa.workflow.tokens import parse, text_of
from npa.workflow.tools import Tool, ToolParam

_SHOWN_MAX = 12
_INTEGER = re.compile(r"\s*[-+]?[0-9]+\s*")
_BOOLEANS = frozenset({"true", "false", "1", "0", "yes", "no", "on", "off"})
_FLOAT = re.compile(r"\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")


def tools_exist(ctx: Context) -> None:
    for state in ctx.workflow.states.values():
        if state.tool_ref and ctx.tool(state.tool_ref) is None:
            ctx.add(
                Code.UNKNOWN_TOOL,
                f"unknown toolRef '{state.tool_ref[:80]}'",
                ctx.path(state, "toolRef"),
                help=ctx.suggest.did_you_mean(state.tool_ref, ctx.tool_names)
                or "`npa workbench workflow tools` lists them",
            )


def _command_keys(tool: Tool) -> dict[str, None]:
    """Config keys that the tool's command mentions, in order."""
    return dict.fromkeys(
        token.key
        for text in tool.argv
        if "{{" in text
        for token in parse(text).tokens()
        if token.scope == "config"
    )


def tool_params(ctx: Context) -> None:
    """A param of a state must mean something to its tool or to another text of the state."""
    for state in ctx.workflow.states.values():
        tool = ctx.tool(state.tool_ref) if state.tool_ref and state.params else None
        if tool is None or not tool.params:
            continue
        known = {param.key: None for param in tool.params} | _command_keys(tool)
        known |= dict.fromkeys(tool.config_defaults)
        extra = {"decision_uri", tool.gang_activation_key, tool.gang_output_key}
        for key in state.params:
            if key in known or key in extra or key in _keys_elsewhere(ctx, state):
                continue
            listed = ", ".join(list(known)[:_SHOWN_MAX])
            ctx.add(
                Code.UNKNOWN_TOOL_PARAM,
                f"tool '{tool.ref}' has no parameter '{key[:80]}'",
                ctx.path(state, "params", key),
                at_key=True,
                help=ctx.suggest.did_you_mean(key, known) or f"its parameters: {listed}",
            )


def _keys_elsewhere(ctx: Context, state: State) -> set[str]:
    """Config keys that other texts of the state, and its profile, mention."""
    texts = [text.text for text in state_texts(state) if text.field != "params"]
    profile = ctx.workflow.resources.get(state.resources, {})
    texts.extend(text.text for text in deep_texts(profile, (), ""))
    return {t.key for text in texts for t in parse(text).tokens() if t.scope == "config"}


def tool_keys(ctx: Context) -> None:
    """Every config key that the tool's command needs is there, and is of its kind."""
    told: set[tuple[str, str]] = set()
    for state in ctx.workflow.states.values():
        tool = ctx.tool(state.tool_ref) if state.tool_ref else None
        if tool is None:
            continue
        params = {param.key: param for param in tool.params}
        needed = _command_keys(tool)
        needed |= {p.key: None for p in tool.params if p.required and p.default is None}
        for key in {**needed, **dict.fromkeys(params)}:
            if key in state.params or key in ctx.config:
                if key in params:
                    _kind(ctx, state, tool, params[key], told)
            elif key in needed and (tool.ref, key) not in told:
                told.add((tool.ref, key))
                ctx.add(
                    Code.MISSING_TOOL_KEY,
                    f"tool '{tool.ref}' needs the config key '{key}'",
                    ctx.path(state, "toolRef"),
                    help=ctx.suggest.did_you_mean(key, ctx.config)
                    or f"add `{key}:` under `config` or under the state's `params`",
                )


def _kind(
    ctx: Context, state: State, tool: Tool, param: ToolParam, told: set[tuple[str, str]]
) -> None:
    """Judge a value that is known before the run. Empty values are the tool's own business."""
    own = param.key in state.params
    value = state.params[param.key] if own else ctx.resolved.get(param.key)
    text = text_of(value)
    wanted = _wanted(param, text)
    if value is None or not text.strip() or "{{" in text or not wanted:
        return
    if not own:
        if (tool.ref, param.key) in told or param.key not in ctx.workflow.config:
            return
        told.add((tool.ref, param.key))
    path = ctx.path(state, "params", param.key) if own else ("config", param.key)
    hint = ctx.suggest.did_you_mean(text, param.values) if param.values else ""
    ctx.add(
        Code.BAD_TOOL_VALUE,
        f"`{param.key}` is {text[:60]!r}, but tool '{tool.ref}' takes {wanted}",
        path,
        help=hint,
    )


def _wanted(param: ToolParam, text: str) -> str:
    """What the parameter takes, if the text is not that."""
    kinds: Mapping[str, tuple[str, bool]] = {
        "int": ("a whole number", bool(_INTEGER.fullmatch(text))),
        "float": ("a number", bool(_FLOAT.fullmatch(text))),
        "bool": ("`true` or `false`", text.strip().lower() in _BOOLEANS),
        "enum": (f"one of {', '.join(param.values)}", text in param.values),
        "uri": ("a URI", "://" in text),
    }
    wanted, fits = kinds.get(param.kind, ("", True))
    return "" if fits else wanted


TOOL_RULES = (tools_exist, tool_params, tool_keys)
