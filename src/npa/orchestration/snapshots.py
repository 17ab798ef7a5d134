"""Snapshots of the fold: so that opening a long run reads its end, not its whole history.

A snapshot is derived and disposable: `npa-workflow/snapshots/<n>.json` holds the state after frame
n, in two lines: a head (layout, a checksum of the second line, and the digest of frame n, which
ties it to the chain) and the state. Anything odd about one (another layout, a bad checksum, a frame
that does not match) and the whole journal is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec.structs import fields

from npa.errors import StorageError
from npa.observation import Found
from npa.orchestration.journal.chain import GENESIS_PREV, Journal, key_of
from npa.orchestration.journal.codec import canonical, decode, encode
from npa.orchestration.journal.entries import Cause
from npa.orchestration.journal.frame import parse
from npa.orchestration.state import Attempt, DriverView, Lifecycle, RunState, Stage, Wave
from npa.storage import Storage
from npa.workflow.source import no_collector

FOLDER = "npa-workflow/snapshots/"
LAYOUT = 3
FRAMES_MIN = 512  # a shorter run is read whole
GROWTH = 1.5  # a snapshot costs as much as the state is large, so they get rarer as it grows

TAIL_MAX = 1024  # frames after the last snapshot with which a run may end without another one

_BY_KEY = ("live", "latest")  # maps whose values are attempts, written as their numbers
_ENTRIES = ("genesis", "failure", "cancel")
_ENTRY_MAPS = ("held", "decisions", "expansions", "triggers")
_PLAIN = (
    *("n", "at", "seal", "parts", "request", "created_at", "lifecycle_at", "terminal"),
    *("stale", "reopened", "last_wave", "entries"),
)


def due(n: int, last: int, *, over: bool = False) -> bool:
    """Is it time for a snapshot at frame `n`, the last one being at frame `last` (0: none)?

    A run that is `over` may get one more, because from now on it is only read.
    """
    return n >= last * GROWTH + FRAMES_MIN or (over and n - last > TAIL_MAX)


def write(storage: Storage, state: RunState, digest: str) -> None:
    """Write the snapshot of `state`; `digest` is that of its last frame. Never raises."""
    body = canonical(to_json(state))
    check = hashlib.sha256(body).hexdigest()
    head = canonical({"layout": LAYOUT, "digest": digest, "check": check})
    try:
        storage.create(f"{FOLDER}{state.n:010d}.json", head + b"\n" + body)
    except StorageError:
        return  # the journal is the truth; this was a comfort


def read(storage: Storage, journal: Journal) -> RunState:
    """The state of a run: from its newest usable snapshot on, else from its first frame.

    Raises what `Journal.read` raises.
    """
    with no_collector():
        return _read(storage, journal)


def _read(storage: Storage, journal: Journal) -> RunState:
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
    head, _, body = answer.value.data.partition(b"\n")
    try:
        document = json.loads(head)
        digest = document["digest"]
        if document["layout"] != LAYOUT:
            return None
        if document["check"] != hashlib.sha256(body).hexdigest():
            return None
        state = from_json(json.loads(body))
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
    body["skipped"] = list(state.skipped)
    body["preflight"] = list(state.preflight) if state.preflight is not None else None
    body["driver"] = None if state.driver is None else _record(state.driver)
    for name in _ENTRIES:
        entry = getattr(state, name)
        body[name] = None if entry is None else encode(entry)
    number = {key: n for n, key in enumerate(state.attempts)}
    # pairs, not maps: canonical JSON sorts keys, and the order in which maps were filled counts
    for name in _ENTRY_MAPS:
        body[name] = [(k, encode(v)) for k, v in getattr(state, name).items()]
    for name in _BY_KEY:
        body[name] = [(k, number[a.key]) for k, a in getattr(state, name).items()]
    body["attempts"] = [_attempt(a) for a in state.attempts.values()]
    body["waves"] = [
        [w.key, w.budget_from, [number[a.key] for a in w.attempts]] for w in state.waves.values()
    ]
    return body


def from_json(body: Mapping[str, Any]) -> RunState:
    """Read what `to_json` wrote. Raises LookupError, TypeError, ValueError or JournalCorrupt."""
    state = RunState(**{name: body[name] for name in _PLAIN})
    state.lifecycle = Lifecycle(body["lifecycle"])
    state.skipped = tuple(body["skipped"])
    state.preflight = tuple(body["preflight"]) if body["preflight"] is not None else None
    state.driver = DriverView(**body["driver"]) if body["driver"] is not None else None
    for name in _ENTRIES:
        setattr(state, name, None if body[name] is None else decode(body[name]))
    for name in _ENTRY_MAPS:
        setattr(state, name, {k: decode(raw) for k, raw in body[name]})
    attempts = [_attempt_from(raw) for raw in body["attempts"]]
    state.attempts = {attempt.key: attempt for attempt in attempts}
    for name in _BY_KEY:
        setattr(state, name, {k: attempts[n] for k, n in body[name]})
    for key, budget_from, numbers in body["waves"]:
        state.waves[key] = Wave(key, [attempts[n] for n in numbers], budget_from)
    return state


def _record(value: Any) -> dict[str, Any]:
    return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}


_ATTEMPT = tuple((f.name, f.default) for f in fields(Attempt))


def _attempt(attempt: Attempt) -> dict[str, Any]:
    """What differs from a fresh attempt."""
    record: dict[str, Any] = {}
    for name, default in _ATTEMPT:
        value = getattr(attempt, name)
        if value != default:
            record[name] = value.value if isinstance(value, Enum) else value
    record["digests"] = list(attempt.digests.items())  # their order is the members' order
    if not attempt.member_phases:
        del record["member_phases"]
    if attempt.end is not None:
        record["end"] = encode(attempt.end)
    return record


def _attempt_from(raw: Mapping[str, Any]) -> Attempt:
    values = dict(raw)
    values.update(
        cause=Cause(raw["cause"]),
        stage=Stage(raw.get("stage", Stage.RESERVED.value)),
        digests=dict(raw["digests"]),
        states=tuple(raw["states"]),
        end=decode(raw["end"]) if "end" in raw else None,
    )
    return Attempt(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return value
