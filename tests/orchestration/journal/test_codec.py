"""Entries survive writing and reading, byte for byte, and malformed ones are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npa.errors import JournalCorrupt
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.codec import KINDS, canonical, decode, encode

text = st.text(max_size=8)
number = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000)
json_value = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
member = st.builds(
    e.MemberEnd,
    result=st.sampled_from(e.Result),
    klass=text,
    code=text,
    exit_code=st.none() | st.integers(0, 255),
    started_at=st.none() | number,
    ended_at=st.none() | number,
    outputs=st.lists(st.tuples(text, st.integers(0, 9), text), max_size=2).map(tuple),
    missing=st.lists(text, max_size=2).map(tuple),
)
OVERRIDES: dict[type[Any], dict[str, Any]] = {
    e.Expansion: {"items": st.lists(st.none() | text | number, max_size=3).map(tuple)},
    e.Ended: {"members": st.dictionaries(text, member, max_size=2)},
    e.Genesis: {
        "parts": st.dictionaries(text, st.none() | text, max_size=2),
        "request": st.dictionaries(text, text, max_size=2),
    },
    e.Reopened: {
        "parts": st.dictionaries(text, text, max_size=2),
        "request": st.dictionaries(text, text, max_size=2),
    },
}
entry = st.sampled_from(sorted(KINDS)).flatmap(
    lambda kind: st.builds(KINDS[kind], **OVERRIDES.get(KINDS[kind], {}))
)


@given(entry)
@settings(max_examples=300)
def test_an_entry_survives_a_round_trip(value: e.Entry) -> None:
    written = canonical(encode(value))
    again = decode(json.loads(written))
    assert again == value
    assert canonical(encode(again)) == written


@given(json_value)
@settings(max_examples=200)
def test_anything_else_is_corrupt_and_nothing_crashes(value: object) -> None:
    with pytest.raises(JournalCorrupt):
        decode(value)


@given(st.sampled_from(sorted(KINDS)), json_value)
@settings(max_examples=300)
def test_a_known_kind_with_any_body_is_read_or_refused(kind: str, body: object) -> None:
    try:
        decode({"kind": kind, "body": body})
    except JournalCorrupt:
        return


def test_defaults_are_left_out_so_that_frames_stay_small() -> None:
    assert encode(e.Intent("k", e.Verb.LAUNCH)) == {
        "kind": "intent",
        "body": {"key": "k", "verb": "launch"},
    }


def test_not_a_number_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical({"x": float("nan")})
