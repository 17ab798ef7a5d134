"""Entries to bytes and back: canonical JSON, strict on reading.

The layout is public: golden files of every release are read by every later one. New kinds and new
fields with defaults may be added; an unknown kind or field means that a newer npa wrote it, and
that is an error, never skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from npa.errors import JournalCorrupt
from npa.orchestration.journal import entries as e

KINDS: Mapping[str, type[Any]] = {
    "genesis": e.Genesis,
    "driver": e.DriverEntry,
    "reserved": e.Reserved,
    "intent": e.Intent,
    "outcome": e.Outcome,
    "observed": e.Observed,
    "cancel_unverified": e.CancelUnverified,
    "vouched": e.Vouched,
    "ended": e.Ended,
    "decision": e.Decision,
    "expansion": e.Expansion,
    "triggered": e.Triggered,
    "invalidated": e.Invalidated,
    "cancel_requested": e.CancelRequested,
    "reopened": e.Reopened,
    "preflight": e.Preflight,
    "held": e.Held,
    "heartbeat": e.Heartbeat,
    "released": e.Released,
    "completed": e.Completed,
    "run_failed": e.RunFailed,
    "run_cancelled": e.RunCancelled,
}
_NAME_OF = {cls: name for name, cls in KINDS.items()}
_KNOWN: tuple[type[Any], ...] = (*KINDS.values(), e.MemberEnd)
_FIELDS: Mapping[type[Any], tuple[FieldInfo, ...]] = {cls: fields(cls) for cls in _KNOWN}
_NAMES: Mapping[type[Any], frozenset[str]] = {
    cls: frozenset(f.name for f in known) for cls, known in _FIELDS.items()
}
_LEFT_OUT: Mapping[type[Any], tuple[tuple[str, object, bool], ...]] = {
    cls: tuple((f.name, f.default, f.default_factory is not NODEFAULT) for f in known)
    for cls, known in _FIELDS.items()
}
"""Name, the default (NODEFAULT equals nothing), and whether an empty value is one."""
_ENUMS: Mapping[str, Callable[[Any], object]] = {
    "verb": e.Verb,
    "cause": e.Cause,
    "result": e.Result,
}


_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)
_LEAVES = frozenset({str, int, float, bool, type(None)})


def canonical(value: object) -> bytes:
    """Canonical JSON: sorted keys, no blanks, UTF-8, no NaN."""
    return _CANONICAL.encode(value).encode()


def encode(entry: e.Entry) -> dict[str, object]:
    """The `{kind, body}` of one entry; fields that hold their default are left out."""
    return {"kind": _NAME_OF[type(entry)], "body": _body(entry)}


def _body(value: Any) -> dict[str, object]:
    body: dict[str, object] = {}
    for name, default, made in _LEFT_OUT[type(value)]:
        v = getattr(value, name)
        if v == default or (made and not v):
            continue
        body[name] = v if type(v) in _LEAVES else _plain(v)
    return body


def _plain(value: Any) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, e.MemberEnd):
        return _body(value)
    return value


def decode(raw: object) -> e.Entry:
    """Read one `{kind, body}`. Raises JournalCorrupt for anything that is not exactly an entry."""
    if not isinstance(raw, dict) or set(raw) != {"kind", "body"}:
        raise JournalCorrupt("a journal entry is not a kind with a body")
    cls = KINDS.get(raw["kind"]) if isinstance(raw["kind"], str) else None
    if cls is None:
        raise JournalCorrupt(
            f"a journal entry has the unknown kind {raw['kind']!r}",
            hint="a newer npa wrote this run; use that version or a later one",
        )
    entry: e.Entry = _build(cls, raw["body"])
    return entry


def _build(cls: type[Any], body: object) -> Any:
    if not isinstance(body, dict):
        raise JournalCorrupt(f"the body of a {cls.__name__} entry is not an object")
    unknown = body.keys() - _NAMES[cls]
    if unknown:
        raise JournalCorrupt(
            f"a {cls.__name__} entry has unknown fields: {', '.join(sorted(unknown))}",
            hint="a newer npa wrote this run; use that version or a later one",
        )
    try:
        return cls(
            **{
                k: v if type(v) in _LEAVES and k not in _ENUMS else _typed(cls, k, v)
                for k, v in body.items()
            }
        )
    except (TypeError, ValueError) as error:
        raise JournalCorrupt(f"a {cls.__name__} entry is malformed: {error}") from error


def _typed(cls: type[Any], name: str, value: object) -> object:
    enum = _ENUMS.get(name)
    if enum is not None and cls is not e.Invalidated:
        return enum(value)
    if cls is e.Ended and name == "members":
        if not isinstance(value, dict):
            raise TypeError("members is not an object")
        return {path: _build(e.MemberEnd, body) for path, body in value.items()}
    if isinstance(value, list):
        return tuple(tuple(v) if isinstance(v, list) else v for v in value)
    return value
