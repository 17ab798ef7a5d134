"""Snapshots of the fold: so that opening a long run reads its end, not its whole history.

A snapshot is derived and disposable: `npa-workflow/snapshots/<n>.json` holds the state after frame
n, a checksum of itself, and the digest of frame n, which ties it to the chain. Anything odd about
one (another layout, a bad checksum, a frame that does not match) and the whole journal is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from npa.errors import StorageError
from npa.observation import Found
from npa.orchestration.journal.chain import GENESIS_PREV, Journal, key_of
from npa.orchestration.journal.codec import canonical, decode, encode
from npa.orchestration.journal.entries import Cause
from npa.orchestration.journal.frame import parse
from npa.orchestration.state import Attempt, DriverView, Lifecycle, RunState, Stage, Wave
from npa.storage import Storage

FOLDER = "npa-workflow/snapshots/"
LAYOUT = 1
FRAMES_MIN = 512  # a shorter run is read whole
GROWTH = 1.5  # a snapshot costs as much as the state is large, so they get rarer as it grows

_BY_KEY = ("live", "latest")  # maps whose values are attempts, written as keys
_ENTRIES = ("genesis", "failure", "cancel")
_ENTRY_MAPS = ("held", "decisions", "expansions", "triggers")
_PLAIN = (
    *("n", "at", "seal", "parts", "request", "created_at", "lifecycle_at", "terminal"),
    *("stale", "reopened", "last_wave", "entries"),
)


def due(n: int, last: int) -> bool:
    """Is it time for a snapshot at frame `n`, the last one being at frame `last` (0: none)?"""
    return n >= last * GROWTH + FRAMES_MIN


def write(storage: Storage, state: RunState, digest: str) -> None:
    """Write the snapshot of `state`; `digest` is that of its last frame. Never raises."""
    body = to_json(state)
    check = hashlib.sha256(canonical(body)).hexdigest()
    document = {"layout": LAYOUT, "digest": digest, "check": check, "state": body}
    try:
        storage.create(f"{FOLDER}{state.n:010d}.json", canonical(document))
    except StorageError:
        return  # the journal is the truth; this was a comfort


def read(storage: Storage, journal: Journal) -> RunState:
    """The state of a run: from its newest usable snapshot on, else from its first frame.

    Raises what `Journal.read` raises.
    """
    state = _newest(storage)
    if state is None:
        journal.start_at(0, GENESIS_PREV)
        whole = RunState()
        whole.apply(journal.read())
        return whole
    started, digest = state
    journal.start_at(started.n, digest)
    started.apply(journal.read())
    return started


def _newest(storage: Storage) -> tuple[RunState, str] | None:
    listing = storage.list(FOLDER)
    if not isinstance(listing, Found):
        return None
    for info in reversed(listing.value):
        found = _usable(storage, info.key)
        if found is not None:
            return found
    return None


def _usable(storage: Storage, key: str) -> tuple[RunState, str] | None:
    answer = storage.get(key)
    if not isinstance(answer, Found):
        return None
    try:
        document = json.loads(answer.value.data)
        body, digest = document["state"], document["digest"]
        if document["layout"] != LAYOUT:
            return None
        if document["check"] != hashlib.sha256(canonical(body)).hexdigest():
            return None
        state = from_json(body)
        frame = storage.get(key_of(state.n))
        if not isinstance(frame, Found):
            return None
        tied = parse(frame.value.data)
        return (state, digest) if (tied.n, tied.digest) == (state.n, digest) else None
    except Exception:  # derived data: whatever is wrong with it, the journal is read instead
        return None


# -- the state as plain values -----------------------------------------------------------------


def to_json(state: RunState) -> dict[str, Any]:
    """All of a state as JSON values."""
    body: dict[str, Any] = {name: _plain(getattr(state, name)) for name in _PLAIN}
    body["lifecycle"] = state.lifecycle.value
    body["preflight"] = list(state.preflight) if state.preflight is not None else None
    body["driver"] = None if state.driver is None else _record(state.driver)
    for name in _ENTRIES:
        entry = getattr(state, name)
        body[name] = None if entry is None else encode(entry)
    for name in _ENTRY_MAPS:
        body[name] = {k: encode(v) for k, v in getattr(state, name).items()}
    for name in _BY_KEY:
        body[name] = {k: a.key for k, a in getattr(state, name).items()}
    body["attempts"] = [_attempt(a) for a in state.attempts.values()]
    body["waves"] = [
        [w.key, w.budget_from, [a.key for a in w.attempts]] for w in state.waves.values()
    ]
    # canonical JSON sorts keys, so the order in which maps were filled is kept apart
    body["order"] = {name: list(getattr(state, name)) for name in (*_BY_KEY, *_ENTRY_MAPS)}
    return body


def from_json(body: Mapping[str, Any]) -> RunState:
    """Read what `to_json` wrote. Raises LookupError, TypeError, ValueError or JournalCorrupt."""
    state = RunState(**{name: body[name] for name in _PLAIN})
    state.lifecycle = Lifecycle(body["lifecycle"])
    state.preflight = tuple(body["preflight"]) if body["preflight"] is not None else None
    state.driver = DriverView(**body["driver"]) if body["driver"] is not None else None
    for name in _ENTRIES:
        setattr(state, name, None if body[name] is None else decode(body[name]))
    order = body["order"]
    for name in _ENTRY_MAPS:
        setattr(state, name, {k: decode(body[name][k]) for k in order[name]})
    for raw in body["attempts"]:
        attempt = _attempt_from(raw)
        state.attempts[attempt.key] = attempt
    for name in _BY_KEY:
        setattr(state, name, {k: state.attempts[body[name][k]] for k in order[name]})
    for key, budget_from, keys in body["waves"]:
        state.waves[key] = Wave(key, [state.attempts[k] for k in keys], budget_from)
    return state


def _record(value: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    record = {f.name: getattr(attempt, f.name) for f in fields(attempt)}
    record["end"] = None if attempt.end is None else encode(attempt.end)
    record["digests"] = list(attempt.digests.items())  # their order is the members' order
    return {name: _plain(value) for name, value in record.items()}


def _attempt_from(raw: Mapping[str, Any]) -> Attempt:
    values = dict(raw)
    end = None if raw["end"] is None else decode(raw["end"])
    values.update(
        cause=Cause(raw["cause"]),
        stage=Stage(raw["stage"]),
        digests=dict(raw["digests"]),
        states=tuple(raw["states"]),
        end=end,
    )
    return Attempt(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return value
