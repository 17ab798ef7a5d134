"""Rules about tokens: spelling, scopes, keys, and whether a value exists when it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from npa.workflow.check_context import Context
from npa.workflow.codes import Code
from npa.workflow.meaning import State
from npa.workflow.order import Before, group_members
from npa.workflow.texts import Text, deep_texts, state_texts
from npa.workflow.tokens import RUN_KEYS, Malformed, Token, config_reference, parse

_LITERAL_HINT = "write `{{scope.key}}`, or `{{{{` for a literal `{{`"
_ENGINE_KEYS = frozenset(
    {
        "bucket",
        "prefix",
        "decision_uri",
        "plan_assume_decision",
        "require_baked_npa",
        "source_sha",
        "pip_extra",
        "base_profile",
        "base_image",
        "sim_backend",
        "simulation_backend",
        "groot_runtime",
        "sim",
        "vlm_backend",
        "vlm_model",
        "vlm_models",
        "vlm_serve_port",
        "vlm_serve_ready_seconds",
        "vlm_trust_remote_code",
        "vlm_use_flashinfer_sampler",
        "input_source_kind",
    }
)
"""Config keys that the engine reads: `--var` may set them though the file does not."""


def config_tokens(ctx: Context) -> None:
    """Config sees itself and the run, in any order and depth, but no circle."""
    for key, value in ctx.workflow.config.items():
        for text in deep_texts(value, ("config", key), "config"):
            for problem in parse(text.text).problems:
                _malformed(ctx, text, problem)
            for token in parse(text.text).tokens():
                if token.scope not in ("config", "run"):
                    ctx.add_at_text(
                        Code.UNKNOWN_TOKEN_KEY,
                        f"`{token.text}` has no value in `config`",
                        text.path,
                        token.text,
                        "config is resolved before any state runs; use it in the state",
                    )
                elif token.scope == "run":
                    _run_key(ctx, text, token)
    resolution = ctx.resolution
    for cycle in resolution.cycles:
        ctx.add(
            Code.CONFIG_CYCLE,
            f"config refers to itself: {' -> '.join(cycle[:12])}",
            ("config", cycle[0]),
        )
    for key, token in resolution.unknown:
        if token.scope == "config":
            ctx.add_at_text(
                Code.UNKNOWN_TOKEN_KEY,
                f"unknown config key '{token.key}'",
                ("config", key),
                token.text,
                ctx.suggest.did_you_mean(token.key, ctx.config),
            )
    for key in resolution.too_long:
        ctx.add(
            Code.TOO_BIG,
            f"config key '{key}' grows beyond 1 MiB when its tokens are resolved",
            ("config", key),
        )


def _malformed(ctx: Context, text: Text, problem: Malformed) -> None:
    hint = _LITERAL_HINT
    if problem.known:
        hint = ctx.suggest.did_you_mean(problem.word, problem.known)
        hint = hint or "known: " + ", ".join(problem.known)
    ctx.add_at_text(problem.code, problem.message, text.path, problem.text, hint)


def _run_key(ctx: Context, text: Text, token: Token) -> None:
    if token.key not in RUN_KEYS and token.key not in ctx.workflow.run:
        known = (*RUN_KEYS, *ctx.workflow.run)
        _unknown(ctx, text, token, "run key", known)


def _unknown(ctx: Context, text: Text, token: Token, what: str, known: Iterable[str]) -> None:
    known = tuple(known)
    hint = ctx.suggest.did_you_mean(token.key, known)
    if not hint and known and len(known) <= 8:
        hint = "known: " + ", ".join(known)
    ctx.add_at_text(
        Code.UNKNOWN_TOKEN_KEY, f"unknown {what} '{token.key}'", text.path, token.text, hint
    )


def state_tokens(ctx: Context) -> None:
    items = _item_names(ctx)
    for state in ctx.workflow.states.values():
        for text in state_texts(state, ctx.workflow.positions):
            _text(ctx, state, text, items)
    _profile_tokens(ctx, items)


def _profile_tokens(ctx: Context, items: Mapping[str, frozenset[str]]) -> None:
    """Profiles are resolved in the name of each state that uses them; each complaint once."""
    users: dict[str, list[State]] = {}
    for state in ctx.workflow.states.values():
        users.setdefault(state.resources, []).append(state)
    for name, profile in ctx.workflow.resources.items():
        texts = list(deep_texts(profile, ("resources", name), "resources"))
        if not texts:
            continue
        for state in users.get(name, ())[:100] or [State("")]:
            before = len(ctx.problems)
            for text in texts:
                _text(ctx, state, text, items)
            if len(ctx.problems) > before:
                break


def _text(ctx: Context, state: State, text: Text, items: Mapping[str, frozenset[str]]) -> None:
    if text.field == "timeoutSeconds" and config_reference(text.text):
        return  # the rule about numbers tells what is wrong with it
    template = parse(text.text)
    for problem in template.problems:
        _malformed(ctx, text, problem)
    for token in template.tokens():
        match token.scope:
            case "config":
                overlaid = text.field != "params" and token.key in state.params
                if token.key not in ctx.config and not overlaid:
                    _unknown(ctx, text, token, "config key", ctx.config)
            case "run":
                _run_key(ctx, text, token)
            case "state":
                _state_token(ctx, state, text, token)
            case "loop":
                _loop_token(ctx, state, text, token)
            case "item":
                known = items.get(state.name, frozenset())
                if text.path[2:3] == ("foreach",):
                    known = frozenset()  # not yet inside its own items
                if token.key not in known and (known or not ctx.may_belong(state)):
                    _item_problem(ctx, text, token, known)


def _item_problem(ctx: Context, text: Text, token: Token, known: frozenset[str]) -> None:
    if known:
        _unknown(ctx, text, token, "item key", sorted(known))
    else:
        ctx.add_at_text(
            Code.UNKNOWN_TOKEN_KEY,
            f"`{token.text}` stands outside of any `foreach`",
            text.path,
            token.text,
            "add `foreach` to this state or to its group",
        )


def _item_names(ctx: Context) -> dict[str, frozenset[str]]:
    """For each state inside a `foreach`, the item keys that it sees."""
    states = ctx.flow.states
    names: dict[str, frozenset[str]] = {}
    for name, state in states.items():
        if state.foreach is None:
            continue
        own = frozenset({"value", "index", state.foreach.as_})
        pending = [name]
        while pending:
            inner = pending.pop()
            have = names.get(inner, frozenset())
            if inner in states and not own <= have:
                names[inner] = have | own
                pending.extend(group_members(states[inner]))
    return names


def _state_token(ctx: Context, state: State, text: Text, token: Token) -> None:
    name, _, part = token.key.partition(".")
    target = ctx.workflow.states.get(name)
    if target is None:
        ctx.add_at_text(
            Code.UNKNOWN_TOKEN_KEY,
            f"`{token.text}` names the unknown state '{name}'",
            text.path,
            token.text,
            ctx.suggest.did_you_mean(name, ctx.workflow.states),
        )
        return
    number = _output_number(part)
    if number is None or number > len(target.outputs):
        known = ["uri", *(f"output_{n + 1}" for n in range(len(target.outputs)))]
        hint = "known: " + ", ".join(known[:8]) if target.outputs else ""
        said = (
            f"state '{name}' has no '{part}'"
            if target.outputs
            else (f"state '{name}' declares no outputs")
        )
        if target.name not in ctx.broken:
            ctx.add_at_text(Code.UNKNOWN_TOKEN_KEY, said, text.path, token.text, hint)
        return
    if ctx.order is None or not state.name:
        return
    relation = ctx.order.before(name, state.name)
    if relation in (Before.ALWAYS, Before.UNKNOWN):
        return
    why = {
        Before.NEVER: f"'{name}' does not run before '{state.name}'",
        Before.SOMETIMES: f"'{name}' runs before '{state.name}' on some paths only",
        Before.TOGETHER: f"'{name}' runs beside '{state.name}'",
    }[relation]
    ctx.add_at_text(
        Code.NOT_YET_PRODUCED,
        f"`{token.text}` may have no value yet: {why}",
        text.path,
        token.text,
    )


def _output_number(part: str) -> int | None:
    """1-based number of the output that `uri` or `output_N` means; None if neither."""
    if part == "uri":
        return 1
    digits = part.removeprefix("output_")
    if digits != part and digits.isascii() and digits.isdigit() and len(digits) < 6:
        return int(digits) or None
    return None


def _loop_token(ctx: Context, state: State, text: Text, token: Token) -> None:
    loops = ctx.loops
    if token.key not in loops:
        _unknown(ctx, text, token, "loop", loops)
        return
    if ctx.order is None or not state.name or state.name == token.key:
        return
    if state.name in ctx.inside_loop(token.key):
        return
    relation = ctx.order.before(token.key, state.name)
    if relation not in (Before.ALWAYS, Before.UNKNOWN):
        ctx.add_at_text(
            Code.LOOP_NOT_RUN,
            f"`{token.text}` may have no value: loop '{token.key}' need not have run before "
            f"'{state.name}'",
            text.path,
            token.text,
            "use it inside the loop or after it",
        )


def unknown_vars(ctx: Context) -> None:
    """`--var` may set what the file declares, what it mentions, or what the engine reads."""
    unknown = [key for key in ctx.overrides if key not in ctx.declared]
    if not unknown:
        return
    known = set(_ENGINE_KEYS) | ctx.declared | _mentioned(ctx)
    for key in unknown:
        if key not in known:
            ctx.add_without_place(
                Code.UNKNOWN_VAR,
                f"unknown config key '{key[:80]}' in `--var`",
                "--var",
                ctx.suggest.did_you_mean(key, ctx.declared) or "declare it under `config` first",
            )


def _mentioned(ctx: Context) -> set[str]:
    """Config keys that some token, integer reference, flag or tool refers to."""
    workflow = ctx.workflow
    keys: set[str] = set()
    texts: list[str] = [t.text for s in workflow.states.values() for t in state_texts(s)]
    for part in (workflow.config, workflow.resources):
        texts.extend(t.text for t in deep_texts(part, (), ""))
    for ref in {s.tool_ref for s in workflow.states.values() if s.tool_ref}:
        tool = ctx.tool(ref)
        if tool is not None:
            texts.extend(tool.argv)
            keys.update(param.key for param in tool.params)
            keys.update(tool.config_defaults)
    for text in texts:
        keys.update(t.key for t in parse(text).tokens() if t.scope == "config")
    for state in workflow.states.values():
        references = [t.if_ for t in state.transitions]
        references += [state.loop.max] if state.loop and isinstance(state.loop.max, str) else []
        keys.update(config_reference(text) for text in references)
    return keys


TOKEN_RULES = (config_tokens, state_tokens, unknown_vars)
