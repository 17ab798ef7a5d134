"""The chain of frames under lost replies, other writers, outages and torn objects."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from npa.errors import JournalCorrupt, StorageError
from npa.observation import Observation, Unavailable
from npa.orchestration.journal.chain import Appended, Journal, Lost, Unknown, key_of
from npa.orchestration.journal.codec import canonical
from npa.orchestration.journal.entries import (
    CancelRequested,
    DriverEntry,
    Entry,
    Genesis,
    Heartbeat,
    RunFailed,
)
from npa.storage import Blob, CreateOutcome, Store

GENESIS = Genesis("seal", {"workflow": "1"}, {"run_id": "r"})
DRIVER = DriverEntry("host", "boot", 1, 2, "complete")
NOW = 1000.25


class Flaky(Store):
    """A real in-memory store whose next creates and reads go wrong as told."""

    @classmethod
    def new(cls) -> Flaky:
        store = cls.in_memory()
        assert isinstance(store, cls)
        store.create_faults = []
        store.blind = 0
        return store

    create_faults: list[str]
    blind: int

    def create(
        self, key: str, data: bytes, *, durable: bool = False, later: bool = False
    ) -> CreateOutcome | Unavailable:
        fault = self.create_faults.pop(0) if self.create_faults else ""
        if fault == "lost request":
            return Unavailable("timeout", "no reply", "test", NOW)
        answer = super().create(key, data, durable=durable, later=later)
        if fault == "lost reply":
            return Unavailable("timeout", "no reply", "test", NOW)
        return answer

    def get(self, key: str) -> Observation[Blob]:
        if self.blind:
            self.blind -= 1
            return Unavailable("timeout", "no reply", "test", NOW)
        return super().get(key)


def journal(store: Store) -> Journal:
    return Journal(store, lambda: NOW)


def append(j: Journal, *entries: Entry) -> object:
    return j.append(entries, epoch=0)


def started(store: Store, *more: Sequence[Entry]) -> Journal:
    j = journal(store)
    for entries in ([GENESIS], *more):
        assert isinstance(append(j, *entries), Appended)
    return j


def test_a_lost_reply_is_recognised_as_our_own_frame() -> None:
    store = Flaky.new()
    j = started(store)
    store.create_faults = ["lost reply"]
    assert isinstance(append(j, DRIVER), Unknown)
    assert isinstance(j.settle(), Appended)
    assert [f.entries for f in journal(store).read()] == [(GENESIS,), (DRIVER,)]


def test_a_lost_request_is_offered_again_and_written_once() -> None:
    store = Flaky.new()
    j = started(store)
    store.create_faults = ["lost request", "lost request"]
    assert isinstance(append(j, DRIVER), Unknown)
    assert isinstance(j.settle(), Unknown)
    assert isinstance(j.settle(), Appended)
    assert len(journal(store).read()) == 2


@pytest.mark.parametrize("fault", ["lost reply", "lost request"])
def test_nothing_new_is_written_while_an_earlier_frame_is_unresolved(fault: str) -> None:
    store = Flaky.new()
    j = started(store)
    store.create_faults = [fault]
    assert isinstance(append(j, DRIVER), Unknown)
    result = append(j, Heartbeat())
    assert isinstance(result, Lost)
    assert [f.entries for f in result.frames] == [(DRIVER,)]
    assert isinstance(append(j, Heartbeat()), Appended)
    assert [f.entries for f in journal(store).read()] == [(GENESIS,), (DRIVER,), (Heartbeat(),)]


@pytest.mark.req("E-01")
def test_of_two_writers_one_wins_and_the_other_is_told_what_was_written() -> None:
    store = Store.in_memory()
    one = started(store)
    two = journal(store)
    two.read()
    assert isinstance(append(one, DRIVER), Appended)
    result = append(two, CancelRequested("stop", "user"))
    assert isinstance(result, Lost)
    assert [f.entries for f in result.frames] == [(DRIVER,)]
    assert isinstance(append(two, CancelRequested("stop", "user")), Appended)
    assert [len(f.entries) for f in one.refresh()] == [1]


def test_equal_entries_of_two_writers_are_two_frames() -> None:
    store = Store.in_memory()
    one = started(store)
    two = journal(store)
    two.read()
    assert isinstance(append(one, Heartbeat()), Appended)
    assert isinstance(append(two, Heartbeat()), Lost)


def test_losing_without_being_able_to_read_the_winner_is_unknown() -> None:
    store = Flaky.new()
    one = started(store)
    two = journal(store)
    two.read()
    append(one, DRIVER)
    store.blind = 10  # the store's own read-back and ours
    assert isinstance(append(two, Heartbeat()), Unknown)
    store.blind = 0
    settled = two.settle()
    assert settled is None or isinstance(settled, Lost)
    assert journal(store).read()[-1].entries == (DRIVER,)


def test_an_outage_is_never_an_empty_journal() -> None:
    store = Flaky.new()
    started(store)
    store.blind = 1
    with pytest.raises(StorageError) as caught:
        journal(store).read()
    assert not isinstance(caught.value, JournalCorrupt)
    assert "nothing was decided" in caught.value.not_done


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"{}", b'{"n":2}', b"\xff\xfe", b'"text"', b"[" * 5000],
    ids=["empty", "torn", "list", "no fields", "few fields", "no text", "string", "deep"],
)
def test_a_torn_or_foreign_frame_is_corrupt(damage: bytes) -> None:
    store = Store.in_memory()
    started(store, [DRIVER])
    store.put(key_of(2), damage)
    with pytest.raises(JournalCorrupt):
        journal(store).read()


def test_a_changed_frame_breaks_the_chain_after_it() -> None:
    store = Store.in_memory()
    started(store, [DRIVER], [Heartbeat()])
    other = {
        "n": 2,
        "prev": "0" * 64,
        "at": NOW,
        "epoch": 0,
        "by": "x",
        "entries": [{"kind": "run_failed", "body": {"code": "X", "reason": "forged"}}],
    }
    store.put(key_of(2), canonical(other))
    with pytest.raises(JournalCorrupt, match="follow"):
        journal(store).read()


@pytest.mark.parametrize("key", [key_of(4), "npa-workflow/journal/0000000002.bak"])
def test_a_gap_or_a_foreign_object_is_corrupt(key: str) -> None:
    store = Store.in_memory()
    started(store, [DRIVER])
    store.put(key, b"{}")
    with pytest.raises(JournalCorrupt, match="gap"):
        journal(store).read()


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "time_travel", "body": {}},
        {"kind": "run_failed", "body": {"code": "X", "reason": "y", "newer": 1}},
    ],
)
def test_what_a_newer_version_wrote_is_refused_not_skipped(entry: dict[str, object]) -> None:
    store = Store.in_memory()
    j = started(store)
    frame = {"n": 2, "prev": j.digest, "at": NOW, "epoch": 0, "by": "x", "entries": [entry]}
    store.put(key_of(2), canonical(frame))
    with pytest.raises(JournalCorrupt) as caught:
        journal(store).read()
    assert "newer npa" in caught.value.hint


def test_reading_goes_on_from_a_trusted_point() -> None:
    store = Store.in_memory()
    j = started(store, [DRIVER])
    n, digest = j.head, j.digest
    append(j, RunFailed("X", "y"))
    later = journal(store)
    later.start_at(n, digest)
    assert [f.entries for f in later.read()] == [(RunFailed("X", "y"),)]
    wrong = journal(store)
    wrong.start_at(n, "f" * 64)
    with pytest.raises(JournalCorrupt):
        wrong.read()
