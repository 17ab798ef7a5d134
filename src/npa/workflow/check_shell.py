"""A rule about shell text: config values with metacharacters that meet an unquoted token."""

from __future__ import annotations

import re
from collections.abc import Iterator

from npa.workflow.check_context import Context
from npa.workflow.codes import Code
from npa.workflow.meaning import State
from npa.workflow.tokens import Scopes, Token, parse, text_of

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_HAZARDS = {
    "": re.compile(r"[\s$;&|<>()*?\[\]{}#\"'`\\!~]"),
    '"': re.compile(r"[\"$`\\]"),
    "'": re.compile(r"'"),
}
_SAFE_TRANSFORMS = frozenset({"base64", "quote"})


def shell_hazards(ctx: Context) -> None:
    for state in ctx.workflow.states.values():
        if state.run is None:
            continue
        for field, text in (("shell", state.run.shell), ("setup", state.run.setup)):
            if "{{" in text:
                _judge(ctx, state, field, text)


def _judge(ctx: Context, state: State, field: str, text: str) -> None:
    scopes = Scopes(config={**ctx.resolved, **state.params})
    told: set[str] = set()
    for token, quote in _quoting(text):
        if token.scope != "config" or token.key in told or token.key not in scopes.config:
            continue
        value = text_of(scopes.config[token.key])
        if "{{" in value or _SAFE_TRANSFORMS & set(token.transforms):
            continue
        found = _HAZARDS[quote].search(value)
        if found is None:
            continue
        told.add(token.key)
        where = {"": "unquoted", '"': "in double quotes", "'": "in single quotes"}[quote]
        shown = "a blank" if found.group().isspace() else f"`{found.group()}`"
        ctx.add_at_text(
            Code.SHELL_HAZARD,
            f"config key '{token.key}' holds {shown}, which means something to the shell {where}",
            ctx.path(state, "run", field),
            token.text,
            f"write `{{{{config.{token.key} | quote}}}}` outside of quotes",
        )


def _quoting(text: str) -> Iterator[tuple[Token, str]]:
    """Each token with the quote that it stands in ("" for none); here-documents are left out."""
    quote = ""
    awaited = ""  # end word of a here-document that is open
    for part in parse(text).parts:
        if isinstance(part, Token):
            if not awaited:
                yield part, quote
            continue
        position = 0
        while position < len(part):
            if awaited:
                end = re.compile(rf"\n[ \t]*{re.escape(awaited)}(?=\n|$)").search(part, position)
                if end is None:
                    break
                position, awaited = end.end(), ""
                continue
            position, quote, awaited = _advance(part, position, quote)


def _advance(text: str, position: int, quote: str) -> tuple[int, str, str]:
    """One character of shell text: the next position, the quote, an opened here-document."""
    char = text[position]
    if char == "\\" and quote != "'":
        return position + 2, quote, ""
    if quote:
        return position + 1, "" if char == quote else quote, ""
    if char in "'\"":
        return position + 1, char, ""
    if char == "<" and (opened := _HEREDOC.match(text, position)):
        return opened.end(), "", opened.group(2)
    if char == "#" and (position == 0 or text[position - 1].isspace()):
        end = text.find("\n", position)
        return (end if end >= 0 else len(text)), "", ""
    return position + 1, "", ""


SHELL_RULES = (shell_hazards,)
