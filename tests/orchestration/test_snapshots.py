"""Snapshots: the same state as the whole journal gives, and never trusted when anything is odd."""

from __future__ import annotations

import json

import pytest

from npa.errors import JournalCorrupt
from npa.orchestration import snapshots
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Appended, Journal, key_of
from npa.orchestration.journal.codec import canonical
from npa.orchestration.state import Attempt, RunState
from npa.storage import Store

SNAPSHOT = f"{snapshots.FOLDER}0000000011.json"


def member(result: e.Result, code: str = "") -> e.MemberEnd:
    return e.MemberEnd(result, "payload" if code else "", code, outputs=(("m://x", 3, "etag"),))


def written() -> tuple[Store, Journal, RunState]:
    """A journal with every kind of entry, and the state that it folds to."""
    store = Store.in_memory()
    journal = Journal(store, lambda: 1000.5)
    state = RunState()
    script: list[list[e.Entry]] = [
        [e.Genesis("s", {"plan": 1}, {"run_id": "r"})],
        [e.DriverEntry("h", "b", 1, 2, "complete")],
        [
            e.Reserved(
                "g", "g", 1, "k1", "n1", e.Cause.FIRST, {"g/b": "d1", "g/a": "d2"}, ("b", "a")
            ),
            e.Intent("k1", e.Verb.LAUNCH, 5.0),
        ],
        [e.Outcome("k1", "7", "q"), e.Observed("k1", "running", "", {"g/a": "running"})],
        [
            e.Ended(
                "k1",
                e.Result.FAILED,
                "payload",
                "X",
                {"g/b": member(e.Result.SUCCEEDED), "g/a": member(e.Result.FAILED, "X")},
                first_failed="g/a",
            ),
            e.Reserved("g", "g", 2, "k2", "n2", e.Cause.RETRY, {"g/a": "d2"}, ("a",), "k1"),
        ],
        [e.Intent("k2", e.Verb.LAUNCH, 5.0)],
        [e.Outcome("k2", "8", "q", adopted=True), e.Intent("k2", e.Verb.CANCEL, 0.0, "8", "user")],
        [e.CancelUnverified("k2", "8", 1), e.Held("H", "why", "do", "g"), e.Heartbeat()],
        [e.Decision("q?next", "promote", "k1", "m://d", "dd"), e.Preflight(True)],
        [e.Expansion("f", ("a", 1, None), "m://i", "ii"), e.Triggered("t", "m://t", 3, 2)],
        [e.Invalidated(("g/b",), "rerun"), e.CancelRequested("enough", "me"), e.Released("held")],
    ]
    for epoch, entries in enumerate(script):
        result = journal.append(entries, epoch=2 if epoch > 1 else 0)
        assert isinstance(result, Appended)
        state.apply([result.frame])
    return store, journal, state


def test_the_script_holds_every_part_of_a_state() -> None:
    _store, _journal, state = written()
    empty = RunState()
    names = RunState.__struct_fields__
    same = [name for name in names if getattr(state, name) == getattr(empty, name)]
    # a run that is over, reopened or failed has these; the rest must be there to be compared
    assert set(same) <= {"terminal", "failure", "reopened", "last_wave", "skipped"}


def test_a_state_survives_as_json_with_the_order_of_its_maps() -> None:
    _store, _journal, state = written()
    again = snapshots.from_json(json.loads(canonical(snapshots.to_json(state))))
    again._frame = state._frame
    assert again == state
    assert list(again.latest) == list(state.latest)
    assert again.attempts["k1"].members == ("g/b", "g/a")
    assert again.live["k2"] is again.attempts["k2"] is again.waves["g"].last
    assert isinstance(again.attempts["k1"], Attempt)


def test_a_run_is_read_from_its_snapshot_and_its_last_frames() -> None:
    store, journal, state = written()
    snapshots.write(store, state, journal.digest)
    result = journal.append([e.Heartbeat()], epoch=2)
    assert isinstance(result, Appended)
    state.apply([result.frame])
    store.put(key_of(3), b"unreadable: older frames are not read again")
    reader = Journal(store, lambda: 0.0)
    again = snapshots.read(store, reader)
    assert again == state
    assert reader.head == 12


@pytest.mark.parametrize("damage", ["layout", "check", "state", "digest", "bytes"])
def test_a_damaged_snapshot_is_left_aside_and_the_journal_is_read(damage: str) -> None:
    store, journal, state = written()
    snapshots.write(store, state, journal.digest)
    answer = store.get(SNAPSHOT)
    head, _, body = answer.value.data.partition(b"\n")  # type: ignore[union-attr]
    document = json.loads(head)
    if damage == "state":
        body = canonical(json.loads(body) | {"lifecycle": "completed"})
    else:
        document[damage] = 99 if damage == "layout" else "0" * 64
    store.put(SNAPSHOT, b"{" if damage == "bytes" else canonical(document) + b"\n" + body)
    assert snapshots.read(store, Journal(store, lambda: 0.0)) == state


def test_a_snapshot_does_not_hide_a_broken_end_of_the_chain() -> None:
    store, journal, state = written()
    snapshots.write(store, state, journal.digest)
    store.put(key_of(12), b"{")
    with pytest.raises(JournalCorrupt):
        snapshots.read(store, Journal(store, lambda: 0.0))


def test_snapshots_get_rarer_as_a_run_grows() -> None:
    last, taken = 0, []
    for n in range(1, 20_001):
        if snapshots.due(n, last):
            last = n
            taken.append(n)
    assert taken[:3] == [512, 1280, 2432]
    assert len(taken) < 12


def test_a_long_run_that_ends_gets_a_last_snapshot_and_a_short_one_none() -> None:
    assert not snapshots.due(1200, 512, over=True)
    assert snapshots.due(3500, 2432, over=True)
