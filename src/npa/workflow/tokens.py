"""The token language: `{{ scope.key | transform }}` inside strings.

A string is split once into parts (cached) and rendered any number of times. `{{{{` is a literal
`{{`. Values are spelled as JSON spells them: `true`, `null`, lists and mappings compactly.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from msgspec import Struct, field

from npa.errors import UsageError
from npa.workflow.codes import Code
from npa.workflow.source import resolve_plain

SCOPES = ("config", "run", "state", "loop", "item")
RUN_KEYS = ("id", "prefix", "uri")
"""Keys of the `run` scope that every run has; the file's top-level `run` adds to them."""
_TOKEN_CHARS_MAX = 1024  # how far the end of a malformed one is looked for
RENDERED_CHARS_MAX = 1024 * 1024
"""One rendered config value may not grow beyond this (values that double each other)."""

_KEPT_CHARS_MAX = 16 * 1024  # longer texts are split anew each time, so that the cache stays small
_TOKEN = re.compile(
    r"\{\{\s*([A-Za-z0-9_-]+)\s*\.\s*([A-Za-z0-9_.-]+)\s*((?:\|\s*[A-Za-z0-9_-]+\s*)*)\}\}"
)


# Braces that are meant as a token although they are none: a scope's name, or one bare word. Other
# text between braces (a dict in inline Python, a Go template) is text, as the format always had it.
_MEANT = re.compile(r"\{\{\s*(?:(?:config|run|state|loop|item)\b|[A-Za-z_][A-Za-z0-9_-]*\s*\}\})")


def _base64(value: object) -> str:
    return base64.b64encode(text_of(value).encode()).decode()


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _quote(value: object) -> str:
    return shlex.quote(text_of(value))


TRANSFORMS: Mapping[str, Callable[[object], str]] = {
    "base64": _base64,
    "json": _json,
    "quote": _quote,
}


class UnresolvedToken(UsageError):
    """A token has no value at the moment it is needed."""

    code = "UNRESOLVED_TOKEN"


class ConfigUnresolvable(UsageError):
    """Config values refer to each other in a circle, to nothing, or grow without end."""

    code = "CONFIG_UNRESOLVABLE"


class NotAnInteger(UsageError):
    """An integer, or a config reference to one, was wanted."""

    code = "NOT_AN_INTEGER"


class Token(Struct, frozen=True):
    """One token; `text` is how it is written."""

    scope: str
    key: str
    transforms: tuple[str, ...] = ()
    text: str = ""


class Malformed(Struct, frozen=True):
    """Text that opens a token and is none, or a token of an unknown scope or transform."""

    code: Code
    text: str
    message: str
    word: str = ""  # what to look up among the known names
    known: tuple[str, ...] = ()


class Template(Struct, frozen=True):
    """A string in parts: literal text and tokens, in order."""

    parts: tuple[str | Token, ...]
    problems: tuple[Malformed, ...] = ()

    def tokens(self) -> Iterator[Token]:
        for part in self.parts:
            if isinstance(part, Token):
                yield part

    def render(self, lookup: Callable[[Token], object]) -> str:
        """Substitute every token. Errors are those of `lookup`."""
        return "".join(
            part if isinstance(part, str) else _transformed(lookup(part), part)
            for part in self.parts
        )


def text_of(value: object) -> str:
    """A value as text: strings as they are, all else as JSON spells it."""
    if isinstance(value, str):
        return value
    return _json(value)


def _transformed(value: object, token: Token) -> str:
    for name in token.transforms:
        value = TRANSFORMS[name](value)
    return text_of(value)


def _judge(match: re.Match[str]) -> Token | Malformed:
    scope, key, tail = match.groups()
    transforms = tuple(part.strip() for part in tail.split("|")[1:])
    text = match.group()
    if scope not in SCOPES:
        return Malformed(Code.UNKNOWN_SCOPE, text, f"unknown token scope '{scope}'", scope, SCOPES)
    for name in transforms:
        if name not in TRANSFORMS:
            return Malformed(
                Code.UNKNOWN_TRANSFORM,
                text,
                f"unknown transform '{name}' in `{text}`",
                name,
                tuple(TRANSFORMS),
            )
    return Token(scope, key, transforms, text)


def _malformed(text: str, start: int) -> Malformed:
    line = text[start : start + _TOKEN_CHARS_MAX].partition("\n")[0]
    end = line.find("}}")
    if end < 0:
        return Malformed(Code.BAD_TOKEN, line[:40], "a token is opened by `{{` and never closed")
    written = line[: end + 2]
    return Malformed(Code.BAD_TOKEN, written, f"malformed token `{written[:60]}`")


def parse(text: str) -> Template:
    """Split a string into parts. Never raises; what is wrong is in `problems`, kept as text."""
    return _parse_kept(text) if len(text) <= _KEPT_CHARS_MAX else _parse(text)


@lru_cache(maxsize=32_768)
def _parse_kept(text: str) -> Template:
    return _parse(text)


def _parse(text: str) -> Template:
    at = text.find("{{")
    if at < 0:
        return Template((text,) if text else ())
    parts: list[str | Token] = []
    problems: list[Malformed] = []
    literal: list[str] = []
    done = 0
    while at >= 0:
        literal.append(text[done:at])
        if text.startswith("{{{{", at):
            literal.append("{{")
            done = at + 4
        elif text.startswith("{{{", at):  # a brace before a token: `{{{config.x}}}`
            literal.append("{")
            done = at + 1
        elif match := _TOKEN.match(text, at):
            found = _judge(match)
            done = match.end()
            if isinstance(found, Token):
                if any(literal):
                    parts.append("".join(literal))
                literal = []
                parts.append(found)
            else:
                problems.append(found)
                literal.append(match.group())
        else:
            if _MEANT.match(text, at):
                problems.append(_malformed(text, at))
            literal.append("{{")
            done = at + 2
        at = text.find("{{", done)
    literal.append(text[done:])
    if any(literal):
        parts.append("".join(literal))
    return Template(tuple(parts), tuple(problems))


def strings_in(value: object) -> Iterator[str]:
    """All strings inside a value, keys of mappings left out. Iterative."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)


def render_value(value: object, lookup: Callable[[Token], object]) -> object:
    """A value with every string in it rendered. Nesting is bounded by the reader (64 levels)."""
    if isinstance(value, str):
        return parse(value).render(lookup) if "{{" in value else value
    if isinstance(value, Mapping):
        return {key: render_value(item, lookup) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [render_value(item, lookup) for item in value]
    return value


class Scopes(Struct, frozen=True):
    """The values that tokens stand for. `state` keys are `NAME.uri` and `NAME.output_N`."""

    config: Mapping[str, object] = field(default_factory=dict)
    run: Mapping[str, object] = field(default_factory=dict)
    state: Mapping[str, object] = field(default_factory=dict)
    loop: Mapping[str, object] = field(default_factory=dict)
    item: Mapping[str, object] = field(default_factory=dict)

    def lookup(self, token: Token) -> object:
        """The token's value; raises `UnresolvedToken` when there is none (yet)."""
        values: Mapping[str, object] = getattr(self, token.scope)
        if token.key not in values:
            raise UnresolvedToken(
                f"`{token.text or token.scope + '.' + token.key}` has no value here"
            )
        return values[token.key]

    def render(self, text: str) -> str:
        return parse(text).render(self.lookup) if "{{" in text else text


class ConfigResolution(Struct, frozen=True):
    """Config resolved against itself, and what stood in the way (empty when all went well).

    `cycles` are key paths that close on themselves; `unknown` pairs a key with a token that has no
    value; `too_long` names keys whose text grew beyond `RENDERED_CHARS_MAX`. The values of such
    keys stay as written.
    """

    values: Mapping[str, object]
    cycles: tuple[tuple[str, ...], ...] = ()
    unknown: tuple[tuple[str, Token], ...] = ()
    too_long: tuple[str, ...] = ()

    def required(self) -> Mapping[str, object]:
        """The values, or `ConfigUnresolvable` when anything stood in the way."""
        if self.cycles:
            raise ConfigUnresolvable("config refers to itself: " + " -> ".join(self.cycles[0]))
        if self.unknown:
            key, token = self.unknown[0]
            raise ConfigUnresolvable(f"`{token.text}` in config key '{key}' has no value")
        if self.too_long:
            raise ConfigUnresolvable(f"config key '{self.too_long[0]}' is too long when resolved")
        return self.values


def _config_needs(value: object) -> tuple[Token, ...]:
    return tuple(
        token for text in strings_in(value) if "{{" in text for token in parse(text).tokens()
    )


def resolve_config(
    config: Mapping[str, object], run: Mapping[str, object] | None = None
) -> ConfigResolution:
    """Resolve config against itself in dependency order, any depth, without recursion."""
    values = dict(config)
    tokens = {key: found for key, item in config.items() if (found := _config_needs(item))}
    waiting: dict[str, int] = {}
    users: dict[str, list[str]] = {}
    for key, found in tokens.items():
        needed = {t.key for t in found if t.scope == "config" and t.key in tokens}
        waiting[key] = len(needed)
        for name in needed:
            users.setdefault(name, []).append(key)
    ready = [key for key, count in waiting.items() if count == 0]
    scopes = Scopes(config=values, run=run or {})
    unknown: list[tuple[str, Token]] = []
    too_long: list[str] = []
    for key in ready:  # grows while it is read
        missing = [t for t in tokens[key] if t.key not in getattr(scopes, t.scope)]
        unknown.extend((key, token) for token in missing)
        if not missing:
            length = sum(len(text_of(scopes.lookup(t))) for t in tokens[key])
            if length > RENDERED_CHARS_MAX:
                too_long.append(key)
            else:
                values[key] = render_value(config[key], scopes.lookup)
        for user in users.get(key, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    stuck = {key for key, count in waiting.items() if count > 0}
    return ConfigResolution(values, _cycles(stuck, tokens), tuple(unknown), tuple(too_long))


def _cycles(
    stuck: set[str], tokens: Mapping[str, tuple[Token, ...]]
) -> tuple[tuple[str, ...], ...]:
    """The circles among keys that never became ready; each key of a circle is told once."""
    seen: set[str] = set()
    cycles: list[tuple[str, ...]] = []
    for start in tokens:
        walked: dict[str, int] = {}
        key = start
        while key in stuck and key not in seen:
            walked[key] = len(walked)
            following = next(t.key for t in tokens[key] if t.scope == "config" and t.key in stuck)
            if following in walked:
                circle = list(walked)[walked[following] :]
                cycles.append((*circle, following))
                break
            key = following
        seen.update(walked)
    return tuple(cycles)


def config_reference(text: str) -> str:
    """The key that `config.KEY` or `{{config.KEY}}` (whole string) names, else ""."""
    text = text.strip()
    if text.startswith("config."):
        return text[len("config.") :]
    parts = parse(text).parts
    if len(parts) == 1 and isinstance(parts[0], Token):
        token = parts[0]
        if token.scope == "config" and not token.transforms:
            return token.key
    return ""


def integer(value: object, config: Mapping[str, object], what: str = "this number") -> int:
    """An integer field: a number, digits, or a reference to a config key that holds one.

    Raises `NotAnInteger`. `config` is the resolved config. Booleans and floats are refused.
    """
    key = config_reference(value) if isinstance(value, str) else ""
    source = f"config key '{key}'" if key else what
    if key:
        if key not in config:
            raise NotAnInteger(f"{what} refers to the unknown config key '{key}'")
        value = config[key]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?[0-9]{1,18}\s*", value):
        return int(value)
    raise NotAnInteger(f"{source} is {text_of(value)[:60]!r}, not an integer")


def truth(value: object) -> bool:
    """Config truth as YAML has it: `false`, `"false"`, 0, `"0"`, null and empty are false."""
    return bool(resolve_plain(value.strip()) if isinstance(value, str) else value)
