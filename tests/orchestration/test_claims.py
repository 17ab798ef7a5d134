"""The payload fence from the driver's side, on a real store."""

from __future__ import annotations

import json

import pytest

from npa.observation import Observation, Unavailable
from npa.orchestration.claims import StoredClaims, key_of
from npa.orchestration.decide import Fence
from npa.storage import Blob, CreateOutcome, Store

KEY = "a" * 64


def test_a_claim_that_nobody_has_is_sealed() -> None:
    store = Store.in_memory()
    assert StoredClaims(store, "host 1").take(KEY) is Fence.SEALED
    assert StoredClaims(store, "host 1").take(KEY) is Fence.SEALED


def test_a_seal_of_another_driver_is_as_good() -> None:
    store = Store.in_memory()
    StoredClaims(store, "host 1").take(KEY)
    assert StoredClaims(store, "host 2").take(KEY) is Fence.SEALED


@pytest.mark.parametrize("content", [b'{"job": "7", "provider": "u1"}', b"not json", b"[]"])
def test_a_claim_that_a_job_has_is_taken(content: bytes) -> None:
    store = Store.in_memory()
    store.create(key_of(KEY), content)
    assert StoredClaims(store, "host 1").take(KEY) is Fence.TAKEN


class Blind(Store):
    """Creates nothing and shows nothing, from now on."""

    def create(
        self, key: str, data: bytes, *, durable: bool = False, later: bool = False
    ) -> CreateOutcome | Unavailable:
        return Unavailable("timeout", "", "test", 0.0)


class Shy(Store):
    """Says that something exists and cannot show it."""

    def create(
        self, key: str, data: bytes, *, durable: bool = False, later: bool = False
    ) -> CreateOutcome | Unavailable:
        return CreateOutcome.OTHER

    def get(self, key: str) -> Observation[Blob]:
        return Unavailable("timeout", "", "test", 0.0)


@pytest.mark.parametrize("kind", [Blind, Shy])
def test_a_claim_that_cannot_be_seen_is_neither(kind: type[Store]) -> None:
    assert StoredClaims(kind.in_memory(), "host 1").take(KEY) is Fence.UNSEEN


def test_a_job_that_finds_the_seal_sees_a_holder_that_is_not_it() -> None:
    store = Store.in_memory()
    StoredClaims(store, "host 1").take(KEY)
    answer = store.get(key_of(KEY))
    holder = json.loads(answer.value.data)  # type: ignore[union-attr]
    assert holder == {"driver": "host 1"}
