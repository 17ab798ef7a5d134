"""How URIs split, and which options are refused before anything is contacted."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npa.errors import UsageError
from npa.storage import Location, StoreOptions, open_store, path_to_uri, split_uri, uri_to_path
from npa.target.secret import Secret

CANARY = "canary-4711"


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("s3://b/a/b", Location("s3", "b", "a/b")),
        ("s3://b", Location("s3", "b", "")),
        ("gcs://b/a", Location("gs", "b", "a")),
        ("azure://c/a/", Location("az", "c", "a/")),
        ("file:///a%20b", Location("file", "", "a b")),
        ("file:///a b", Location("file", "", "a b")),
        ("file://localhost/a", Location("file", "", "a")),
        ("s3://b/a%20b", Location("s3", "b", "a%20b")),
    ],
)
def test_a_uri_splits_into_root_and_key(uri: str, location: Location) -> None:
    assert split_uri(uri) == location


@pytest.mark.parametrize(
    "uri",
    ["", "a/b", "/a/b", "ftp://h/a", "s3:///a", "s3://", "file://host/a", "s3://b/\0", "s3:b"],
)
def test_what_is_no_artifact_uri_is_refused(uri: str) -> None:
    with pytest.raises(UsageError):
        split_uri(uri)


@given(st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1))
def test_a_path_survives_the_way_to_a_uri_and_back(name: str) -> None:
    path = Path("/folder") / name
    assert uri_to_path(path_to_uri(path)) == path


@pytest.mark.parametrize("uri", ["s3://b/a/../c", "file:///a/../../etc", "s3://b//a"])
def test_a_root_cannot_climb(uri: str) -> None:
    with pytest.raises(UsageError):
        open_store(uri)


def test_options_never_show_a_secret() -> None:
    options = StoreOptions("https://s3.example.com", "r", *[Secret(CANARY)] * 3)
    assert CANARY not in f"{options} {options!r}"
    with pytest.raises(TypeError):
        pickle.dumps(options)


@pytest.mark.parametrize(
    "endpoint",
    ["http://s3.example.com", "s3.example.com", f"https://user:{CANARY}@s3.example.com", "ftp://h"],
)
def test_unsafe_endpoints_are_refused_without_echoing_a_password(endpoint: str) -> None:
    with pytest.raises(UsageError) as caught:
        StoreOptions(endpoint)
    assert CANARY not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.1.2.3"])
def test_plain_http_is_for_loopback_only(host: str) -> None:
    assert StoreOptions(f"http://{host}:9000").is_loopback


def test_half_a_pair_of_keys_is_refused() -> None:
    with pytest.raises(UsageError):
        StoreOptions(access_key=Secret("only"))
