"""`--var` values by the type of the key's default in the file: which fit, and what they mean.

Tokens render an override as it was typed, and the seal of a run covers its text. The type matters
where a step reads its parameters as JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec.structs import replace

from npa.workflow.codes import Code
from npa.workflow.diagnostics import Diagnostic, in_order, report
from npa.workflow.load import Loaded
from npa.workflow.source import resolve_plain
from npa.workflow.step import Scalar

_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_NUMBER = re.compile(r"[-+]?([0-9]{1,400}\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?")
_WANTED = {bool: "`true` or `false`", int: "a number", float: "a number"}


def read_as(text: str, default: object) -> Scalar:
    """The override as the type of `default`: boolean or number; any other keeps the text.

    A default of `1` may stand for any number: an integer is read as one, `0.5` as 0.5.
    Raises ValueError if the text is no such value. Truth is that of `if`: 1 and 0 count.
    """
    word = text.strip()
    if isinstance(default, bool):
        found = resolve_plain(word) if word else None
        if found not in (0, 1):
            raise ValueError(text)
        return bool(found)
    if isinstance(default, int | float):
        if isinstance(default, int) and _INTEGER.fullmatch(word):
            return int(word)
        if not _NUMBER.fullmatch(word) or not math.isfinite(float(word)):
            raise ValueError(text)
        return float(word)
    return text


def declared(raw: object, overrides: Mapping[str, str]) -> dict[str, object]:
    """The file's own defaults of the overridden keys. `raw` is the file as read."""
    config = raw.get("config") if isinstance(raw, dict) else None
    return {k: config[k] for k in overrides if k in config} if isinstance(config, dict) else {}


def typed(
    config: Mapping[str, object], params: Mapping[str, object], defaults: Mapping[str, object]
) -> dict[str, object]:
    """A step's config with its overrides typed; what the state's own `params` say stays."""
    found = dict(config)
    for key, default in defaults.items():
        value = found.get(key)
        if isinstance(value, str) and key not in params:
            try:
                found[key] = read_as(value, default)
            except ValueError:
                continue  # a token in it became text; or the run began before this was refused
    return found


def misfits(loaded: Loaded, overrides: Mapping[str, str]) -> list[Diagnostic]:
    """An error for each override that is not of its default's type, at the default.

    Asked for when something is about to begin: a run that has begun keeps what it began with.
    """
    problems = []
    for key, default in declared(loaded.source.value, overrides).items():
        text = overrides[key]
        if "{{" in text:
            continue
        try:
            read_as(text, default)
        except ValueError:
            kind = type(default)
            problems.append(
                report(
                    Code.WRONG_TYPE if kind is bool else Code.BAD_NUMBER,
                    f"`config.{key[:80]}` is {text[:60]!r} in `--var`, not {_WANTED[kind]}",
                    loaded.source.positions,
                    ("config", key),
                    help="`--var` takes a value of the default's type",
                )
            )
    return problems


def with_misfits(loaded: Loaded, overrides: Mapping[str, str]) -> Loaded:
    """With the errors of `misfits`; there is no workflow then."""
    problems = misfits(loaded, overrides)
    if not problems:
        return loaded
    return replace(loaded, workflow=None, diagnostics=in_order([*loaded.diagnostics, *problems]))


def of_overrides(loaded: Loaded, overrides: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """The errors that `--var` made, if the file itself has none: then only they are to mend."""
    own = misfits(loaded, overrides)
    errors = loaded.errors
    theirs = [item for item in errors if item.path != "--var" and item not in own]
    return () if theirs else tuple(errors)
