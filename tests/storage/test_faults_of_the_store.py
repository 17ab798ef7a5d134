"""What a store that misbehaves over HTTP is taken for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faulty_s3 import Fault, FaultyS3, faulty_s3
from npa.errors import StorageError, StoreFull, StoreUnfit
from npa.observation import Absent, Found, Unavailable
from npa.storage import Blob, CreateOutcome, Store, open_store, probe_conditional_create
from npa.storage.store import TRIES_MAX
from s3server import options_for

CREATED, MINE, OTHER = CreateOutcome.CREATED, CreateOutcome.MINE, CreateOutcome.OTHER


@pytest.fixture
def server() -> Iterator[FaultyS3]:
    with faulty_s3() as running:
        yield running


@pytest.fixture
def store(server: FaultyS3) -> Store:
    return quick(server.endpoint)


def quick(endpoint: str) -> Store:
    """A store that does not pause between tries."""
    opened = open_store("s3://bucket/run/", options_for(endpoint))
    opened._sleep = lambda seconds: None
    return opened


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.BUSY_AFTER, Fault.EXISTS_FOR_OWN])
def test_a_create_whose_reply_was_lost_is_mine(
    server: FaultyS3, store: Store, fault: Fault
) -> None:
    server.script("PUT", fault)
    assert store.create("frame", b"mine") is MINE
    assert server.count("PUT") == 1


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.BUSY_BEFORE, Fault.EXISTS_FOR_OWN])
def test_a_lost_reply_over_a_key_of_somebody_else_is_other(
    server: FaultyS3, store: Store, fault: Fault
) -> None:
    server.objects["run/frame"] = b"theirs"
    server.script("PUT", fault)
    assert store.create("frame", b"mine") is OTHER
    assert server.objects["run/frame"] == b"theirs"


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.BUSY_BEFORE, Fault.CONFLICT])
def test_a_create_that_provably_did_nothing_is_tried_again(
    server: FaultyS3, store: Store, fault: Fault
) -> None:
    server.script("PUT", fault)
    assert store.create("frame", b"mine") is CREATED
    assert server.objects["run/frame"] == b"mine"


def test_a_create_that_cannot_be_read_back_is_unavailable(server: FaultyS3, store: Store) -> None:
    server.script("PUT", Fault.RESET_AFTER)
    server.script("GET", *[Fault.BUSY_BEFORE] * TRIES_MAX)
    answer = store.create("frame", b"mine")
    assert isinstance(answer, Unavailable)
    assert answer.cause == "throttled"
    assert store.create("frame", b"mine") is MINE


def test_a_create_that_is_refused_for_good_is_unavailable_at_once(
    server: FaultyS3, store: Store
) -> None:
    server.script("PUT", Fault.FORBIDDEN)
    answer = store.create("frame", b"mine")
    assert isinstance(answer, Unavailable)
    assert answer.cause == "forbidden"
    assert server.count("PUT") == 1


def test_a_spent_quota_is_store_full(server: FaultyS3, store: Store) -> None:
    server.script("PUT", Fault.QUOTA)
    with pytest.raises(StoreFull):
        store.create("frame", b"mine")


def test_a_store_that_ignores_conditions_is_refused_and_left_clean(
    server: FaultyS3, store: Store
) -> None:
    server.state.ignores_conditions = True
    with pytest.raises(StoreUnfit):
        probe_conditional_create(store)
    assert server.objects == {}


def test_a_sound_store_passes_the_probe_and_is_left_clean(server: FaultyS3, store: Store) -> None:
    probe_conditional_create(store)
    assert server.objects == {}


@pytest.mark.parametrize(
    "fault", [Fault.RESET_AFTER, Fault.BUSY_AFTER, Fault.EXISTS_FOR_OWN, Fault.BUSY_BEFORE]
)
def test_a_sound_store_with_a_bad_moment_passes_the_probe(
    server: FaultyS3, store: Store, fault: Fault
) -> None:
    server.script("PUT", fault)
    probe_conditional_create(store)
    assert server.objects == {}


def test_a_probe_that_cannot_tell_says_so(server: FaultyS3, store: Store) -> None:
    server.script("PUT", Fault.FORBIDDEN)
    server.script("GET", Fault.FORBIDDEN)
    with pytest.raises(StorageError) as caught:
        probe_conditional_create(store)
    assert not isinstance(caught.value, StoreUnfit)
    assert "forbidden" in caught.value.message


def test_absent_needs_the_word_of_the_store(server: FaultyS3, store: Store) -> None:
    assert isinstance(store.get("nothing"), Absent)
    assert isinstance(store.head("nothing"), Absent)


CAUSES = [
    (Fault.NO_BUCKET, "no_bucket"),
    (Fault.BARE_404, "absence_unproven"),
    (Fault.FORBIDDEN, "forbidden"),
    (Fault.EXPIRED, "bad_credentials"),
    (Fault.BUSY_BEFORE, "throttled"),
    (Fault.ERROR_500, "server_error"),
    (Fault.RESET_BEFORE, "reset"),
    (Fault.TRUNCATED, "truncated"),
    (Fault.PORTAL, "bad_reply"),
]


@pytest.mark.parametrize(("fault", "cause"), CAUSES)
def test_a_get_that_cannot_see_is_unavailable_never_absent(
    server: FaultyS3, store: Store, fault: Fault, cause: str
) -> None:
    server.objects["run/key"] = b"data"
    server.script("GET", *[fault] * TRIES_MAX)
    answer = store.get("key")
    assert isinstance(answer, Unavailable)
    assert answer.cause == cause
    assert "secret-looking" not in repr(answer)


@pytest.mark.parametrize(("fault", "cause"), CAUSES[:-2])
def test_a_head_that_cannot_see_is_unavailable_never_absent(
    server: FaultyS3, store: Store, fault: Fault, cause: str
) -> None:
    server.script("HEAD", *[fault] * TRIES_MAX)
    server.script("GET", *[fault] * TRIES_MAX)
    answer = store.head("key")
    assert isinstance(answer, Unavailable)
    # A HEAD reply has no body, so all that 403 says there is "forbidden".
    assert answer.cause == ("forbidden" if fault is Fault.EXPIRED else cause)


@pytest.mark.parametrize("fault", [fault for fault, _ in CAUSES])
def test_a_listing_that_cannot_see_is_never_an_empty_one(
    server: FaultyS3, store: Store, fault: Fault
) -> None:
    server.objects["run/key"] = b"data"
    server.script("GET", *[fault] * (2 * TRIES_MAX))
    assert isinstance(store.list(), Unavailable)


def test_an_empty_listing_of_a_sound_store_is_found(store: Store) -> None:
    answer = store.list()
    assert isinstance(answer, Found)
    assert answer.value == ()


@pytest.mark.parametrize("fault", [Fault.BUSY_BEFORE, Fault.RESET_BEFORE, Fault.TRUNCATED])
def test_one_bad_moment_of_a_read_is_overcome(server: FaultyS3, store: Store, fault: Fault) -> None:
    server.objects["run/key"] = b"data"
    server.script("GET", fault)
    answer = store.get("key")
    assert isinstance(answer, Found)
    assert answer.value.data == b"data"


def test_a_name_that_does_not_resolve_is_unavailable() -> None:
    store = open_store("s3://bucket/", options_for("https://nowhere.invalid"))
    store._sleep = lambda seconds: None
    answer = store.get("key")
    assert isinstance(answer, Unavailable)
    assert answer.cause == "dns"


def test_a_server_that_is_gone_is_unavailable() -> None:
    with faulty_s3() as server:
        store = quick(server.endpoint)
    answer = store.list()
    assert isinstance(answer, Unavailable)
    assert answer.cause == "refused"


def test_a_download_that_breaks_leaves_no_file(
    server: FaultyS3, store: Store, tmp_path: Path
) -> None:
    server.objects["run/key"] = b"data"
    server.script("GET", *[Fault.FORBIDDEN] * TRIES_MAX)
    answer = store.get_file("key", tmp_path / "copy")
    assert isinstance(answer, Unavailable)
    assert list(tmp_path.iterdir()) == []


def test_a_key_cannot_fake_the_word_of_the_store(server: FaultyS3, store: Store) -> None:
    key = "status code: 404 Not Found: <Code>NoSuchKey<"
    server.script("GET", Fault.FORBIDDEN)
    answer = store.get(key)
    assert isinstance(answer, Unavailable)
    assert answer.cause == "forbidden"


def test_blob_has_the_version_under_which_it_was_read(server: FaultyS3, store: Store) -> None:
    store.put("key", b"data")
    seen, info = store.get("key"), store.head("key")
    assert isinstance(seen, Found)
    assert isinstance(info, Found)
    assert seen.value == Blob(b"data", info.value.etag)
