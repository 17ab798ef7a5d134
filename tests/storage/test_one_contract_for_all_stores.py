"""Every kind of store keeps the same promises: a folder, memory, and S3 over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from npa.errors import StorageError, UsageError
from npa.observation import Absent, Found, Observation
from npa.storage import (
    CreateOutcome,
    ObjectInfo,
    Store,
    Stores,
    open_store,
    path_to_uri,
    probe_conditional_create,
)
from s3server import S3

CREATED, MINE, OTHER = CreateOutcome.CREATED, CreateOutcome.MINE, CreateOutcome.OTHER


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return open_store(path_to_uri(tmp_path / "root"))
    if request.param == "memory":
        return Store.in_memory()
    s3: S3 = request.getfixturevalue("s3")
    return s3.store("some/prefix/")


def keys(answer: Observation[tuple[ObjectInfo, ...]]) -> list[str]:
    assert isinstance(answer, Found)
    return [info.key for info in answer.value]


def test_the_root_ends_in_a_slash(store: Store) -> None:
    assert store.uri.endswith("/")


@pytest.mark.parametrize("durable", [False, True])
def test_create_has_three_outcomes(store: Store, durable: bool) -> None:
    assert store.create("a/b.json", b"one", durable=durable) is CREATED
    assert store.create("a/b.json", b"one", durable=durable) is MINE
    assert store.create("a/b.json", b"two", durable=durable) is OTHER
    answer = store.get("a/b.json")
    assert isinstance(answer, Found)
    assert answer.value.data == b"one"


def test_what_is_not_there_is_absent_with_a_proof(store: Store) -> None:
    for answer in (store.get("no/such"), store.head("no/such")):
        assert isinstance(answer, Absent)
        assert answer.proof


def test_a_folder_is_not_an_object(store: Store) -> None:
    store.put("a/b", b"x")
    assert isinstance(store.get("a"), Absent)
    assert isinstance(store.head("a"), Absent)
    assert isinstance(store.get("a/b/c"), Absent)


def test_head_gives_size_and_a_version_that_changes(store: Store) -> None:
    store.put("key", b"12345")
    first = store.head("key")
    store.put("key", b"123456")
    second = store.head("key")
    assert isinstance(first, Found)
    assert isinstance(second, Found)
    assert (first.value.size, second.value.size) == (5, 6)
    assert first.value.etag != second.value.etag


def test_an_empty_object_is_an_object(store: Store) -> None:
    assert store.create("empty", b"") is CREATED
    assert store.create("empty", b"") is MINE
    answer = store.head("empty")
    assert isinstance(answer, Found)
    assert answer.value.size == 0


def test_a_listing_is_sorted_and_below_the_folder_only(store: Store) -> None:
    for key in ("a/2", "a/10", "a/b/1", "a-x", "ab/1", "a", "z"):
        if key != "a" or not store.uri.startswith("file"):
            store.put(key, b"x")
    assert keys(store.list("a")) == keys(store.list("a/")) == ["a/10", "a/2", "a/b/1"]
    everything = [key for key in keys(store.list()) if key != "a"]
    assert everything == ["a-x", "a/10", "a/2", "a/b/1", "ab/1", "z"]
    assert keys(store.list("nothing/here")) == []


def test_a_listing_goes_on_after_a_key_and_stops_at_a_limit(store: Store) -> None:
    for number in range(7):
        store.put(f"journal/{number:010d}.json", b"x")
    after = "journal/0000000003.json"
    assert keys(store.list("journal", after=after)) == [
        f"journal/{number:010d}.json" for number in (4, 5, 6)
    ]
    assert keys(store.list("journal", after=after, limit=1)) == ["journal/0000000004.json"]
    with pytest.raises(UsageError):
        store.list("journal", limit=0)


def test_delete_removes_and_may_be_repeated(store: Store) -> None:
    store.put("key", b"x")
    store.delete("key")
    store.delete("key")
    assert isinstance(store.get("key"), Absent)


def test_files_travel_both_ways(store: Store, tmp_path: Path) -> None:
    source, copy = tmp_path / "source.bin", tmp_path / "deep" / "copy.bin"
    source.write_bytes(bytes(range(256)) * 80_000)  # more than two parts
    store.put_file("big.bin", source)
    answer = store.get_file("big.bin", copy)
    assert isinstance(answer, Found)
    assert answer.value.size == 256 * 80_000
    assert copy.read_bytes() == source.read_bytes()
    assert [path.name for path in copy.parent.iterdir()] == ["copy.bin"]


def test_a_missing_object_downloads_as_absent(store: Store, tmp_path: Path) -> None:
    assert isinstance(store.get_file("none", tmp_path / "copy"), Absent)
    assert not (tmp_path / "copy").exists()


def test_a_missing_file_cannot_be_uploaded(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write"):
        store.put_file("key", tmp_path / "none")
    assert keys(store.list()) == []


@pytest.mark.parametrize("key", ["train[3]/a", "a b", "a%41", "ü", "a+b&c=d", "a:b", "a?b*c"])
def test_unusual_keys_keep_their_spelling(store: Store, key: str) -> None:
    assert store.create(key, b"x") is CREATED
    assert keys(store.list()) == [key]
    assert isinstance(store.head(key), Found)


@pytest.mark.parametrize(
    "key", ["", "/a", "../a", "a/../b", "a/./b", "a//b", "a/", "a\0b", "x" * 1025, "a#123"]
)
def test_illegal_keys_are_refused(store: Store, key: str) -> None:
    acts: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.create(key, b"x"),
        lambda: store.put(key, b"x"),
        lambda: store.delete(key),
    ]
    for act in acts:
        with pytest.raises(UsageError):
            act()


def test_the_probe_passes_and_leaves_nothing(store: Store) -> None:
    probe_conditional_create(store)
    assert keys(store.list()) == []


def test_of_many_creators_exactly_one_creates(store: Store) -> None:
    writers, rounds = 8, 12
    with ThreadPoolExecutor(writers) as pool:
        for number in range(rounds):
            barrier = threading.Barrier(writers)

            def create(writer: int, key: str = f"k/{number}", gate: object = barrier) -> object:
                assert isinstance(gate, threading.Barrier)
                gate.wait(10)
                return store.create(key, b"writer %d" % writer, durable=True)

            outcomes = list(pool.map(create, range(writers)))
            assert outcomes.count(CREATED) == 1
            assert outcomes.count(OTHER) == writers - 1
            winner = outcomes.index(CREATED)
            answer = store.get(f"k/{number}")
            assert isinstance(answer, Found)
            assert answer.value.data == b"writer %d" % winner


def test_absolute_uris_resolve_to_one_store_per_root(s3: S3, tmp_path: Path) -> None:
    stores = Stores(s3.options)
    s3.store().put("a/b", b"there")
    (tmp_path / "my file").write_bytes(b"here")
    answer = stores.get(s3.uri + "a/b")
    assert isinstance(answer, Found)
    assert answer.value.data == b"there"
    assert isinstance(stores.head(path_to_uri(tmp_path / "my file")), Found)
    assert isinstance(stores.head(f"file://{tmp_path}/my%20file"), Found)
    assert isinstance(stores.head(f"file://{tmp_path}/none"), Absent)
    assert keys(stores.list(s3.uri + "a/")) == ["a/b"]
    assert keys(stores.list(f"file://{tmp_path}/")) == [f"{tmp_path}/my file".lstrip("/")]
    assert stores.resolve(s3.uri + "x")[0] is stores.resolve(s3.uri + "y")[0]
