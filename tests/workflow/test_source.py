"""YAML with positions: the 1.2 core schema, places, and limits."""

from __future__ import annotations

import gc
import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from npa.workflow.meaning import Position
from npa.workflow.source import (
    ALIAS_NODES_MAX,
    FILE_BYTES_MAX,
    Source,
    parse_bytes,
    parse_text,
    resolve_plain,
)


def codes(source: Source) -> list[str]:
    return [item.code for item in source.diagnostics]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2026-08-22", "2026-08-22"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("-.inf", -math.inf),
        ("1.2.3", "1.2.3"),
        ("0.1.0-cu128", "0.1.0-cu128"),
        ("+", "+"),
        ("-", "-"),
        (".", "."),
        ("nan", "nan"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_scalars_follow_the_yaml_1_2_core_schema(text: str, value: object) -> None:
    assert resolve_plain(text) == value
    assert type(resolve_plain(text)) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(resolve_plain(".NaN"))  # type: ignore[arg-type]


def test_quoted_scalars_and_block_scalars_are_text() -> None:
    source = parse_text("a: '12'\nb: \"true\"\nc: |\n  12\nd: ! 12\n", "f")
    assert source.value == {"a": "12", "b": "true", "c": "12\n", "d": "12"}


def test_a_leading_zero_is_told_once_and_only_for_plain_numbers() -> None:
    source = parse_text("a: 007\nb: '007'\nc: 0\nd: 0.5\n", "f")
    assert codes(source) == ["NPA009"]
    assert (source.diagnostics[0].line, source.diagnostics[0].column) == (1, 4)


def test_keys_and_values_know_their_place() -> None:
    positions = parse_text("a: 1\nlist:\n  - x: {deep: ok}\n  - 'quoted'\n", "f").positions
    assert positions.key(("list", 0, "x", "deep")) == Position(3, 9, 13)
    assert positions.value(("list", 0, "x", "deep")) == Position(3, 15, 17)
    assert positions.value(("list", 1)) == Position(4, 5, 13)
    assert positions.key(("a",)) == Position(1, 1, 2)


def test_an_unknown_path_answers_for_its_nearest_parent() -> None:
    positions = parse_text("a:\n  b: 1\n", "f").positions
    assert positions.value(("a", "nope", "deeper")) == positions.value(("a",))
    assert positions.value(("a", "b", "deeper")) == positions.value(("a", "b"))
    assert positions.value(("a", "b", 3)) == positions.value(("a", "b"))


def test_a_path_finds_the_other_spelling_of_a_key() -> None:
    positions = parse_text("tool_ref: x\nmaxPolls: 3\n", "f").positions
    assert positions.key(("toolRef",)) == Position(1, 1, 9)
    assert positions.value(("max_polls",)) == Position(2, 11, 12)


def test_columns_count_characters_not_bytes() -> None:
    positions = parse_text("ключ: значение\n", "f").positions
    assert positions.value(("ключ",)) == Position(1, 7, 15)


def test_a_block_scalar_spans_its_first_line() -> None:
    positions = parse_text("run: |\n  one\n  two\n", "f").positions
    assert positions.value(("run",)) == Position(1, 6, 7)


def test_duplicate_keys_are_errors_that_name_the_first_line() -> None:
    source = parse_text("a: 1\nb: {x: 1, x: 2}\na: 3\n", "f")
    assert [(d.code, d.line) for d in source.diagnostics] == [("NPA004", 2), ("NPA004", 3)]
    assert source.diagnostics[1].help == "the first one is on line 1"
    assert source.value == {"a": 1, "b": {"x": 1}}


def test_merges_add_what_is_missing_and_keep_what_is_there() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc:\n  <<: [*a, *b]\n  x: own\n"
    source = parse_text(text, "f")
    assert source.value["c"] == {"x": "own", "y": 2, "z": 4}  # type: ignore[index]
    assert source.positions.value(("c", "z")) == Position(2, 17, 18)
    assert codes(source) == []


def test_a_quoted_merge_key_is_a_plain_key() -> None:
    assert parse_text("'<<': 1\n", "f").value == {"<<": 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: *nowhere\n", "NPA006"),
        ("a: &x [1, *x]\n", "NPA006"),
        ("a: 1\n---\nb: 2\n", "NPA003"),
        ("a: [\n", "NPA002"),
        ("a: b: c\n", "NPA002"),
        ("\ta: 1\n", "NPA002"),
        ("{a: 1}: 2\n", "NPA008"),
        ("a: &k [1]\n*k : 2\n", "NPA008"),
        ("a: {{config.x}}\n", "NPA008"),
        ("<<: 3\n", "NPA008"),
        ("a: !!int x\n", "NPA007"),
        ("a: !!binary aGk=\n", "NPA007"),
        ("a: !!set {x}\n", "NPA007"),
        ("a: !own 1\n", "NPA007"),
        ("a: b\x00c\n", "NPA001"),
        ("a: \ud800\n", "NPA001"),
        ("[" * 70, "NPA005"),
    ],
)
def test_what_cannot_be_read_is_a_diagnostic_with_a_place(text: str, code: str) -> None:
    source = parse_text(text, "f")
    assert codes(source) == [code]
    assert source.diagnostics[0].line >= 1


def test_what_is_missing_at_the_end_is_told_after_the_last_word() -> None:
    (item,) = parse_text("a: 1\nb: [1,\n   2\n\n", "f").diagnostics
    assert (item.code, item.line, item.column) == ("NPA002", 3, 5)
    assert item.help == "while parsing a flow sequence that began on line 2"


def test_core_tags_are_read() -> None:
    source = parse_text("a: !!str 12\nb: !!float 3\nc: !!map {x: !!null ''}\nd: !!seq []\n", "f")
    assert source.value == {"a": "12", "b": 3.0, "c": {"x": None}, "d": []}
    assert codes(source) == []


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    source = parse_text("\n".join(lines), "f")
    assert codes(source) == ["NPA005"]
    assert not source.usable


def test_aliases_may_expand_up_to_the_limit() -> None:
    each = 999  # and one for the list itself
    anchor = f"a: &a [{', '.join('1' * each)}]\n"
    times = ALIAS_NODES_MAX // (each + 1)
    fits = anchor + "b: [" + ", ".join(["*a"] * times) + "]\n"
    assert parse_text(fits, "f").usable
    assert not parse_text(fits + "c: *a\n", "f").usable


def test_a_file_beyond_4_mib_is_refused() -> None:
    assert codes(parse_text("# " + "x" * FILE_BYTES_MAX, "f")) == ["NPA005"]
    assert codes(parse_bytes(b"# " + "é".encode() * (FILE_BYTES_MAX // 2), "f")) == ["NPA005"]


def test_bytes_that_are_not_utf_8_have_a_place() -> None:
    source = parse_bytes(b"a: 1\nb: caf\xe9\n", "f")
    assert [(d.code, d.line, d.column) for d in source.diagnostics] == [("NPA001", 2, 7)]
    assert source.lines[1] == "b: caf\ufffd"


def test_a_byte_order_mark_does_not_matter() -> None:
    assert parse_bytes(b"\xef\xbb\xbfa: 1\n", "f").value == {"a": 1}


def test_an_empty_file_has_no_value_and_no_complaint() -> None:
    source = parse_text("# nothing\n", "f")
    assert (source.value, source.usable, codes(source)) == (None, True, [])


def test_the_collector_is_left_as_it_was() -> None:
    assert gc.isenabled()
    parse_text("a: 1", "f")
    parse_text("a: [", "f")
    assert gc.isenabled()


# The dumper follows YAML 1.1 and leaves text such as `1e3` unquoted, which 1.2 reads as a number.
_TEXT = st.text(max_size=12).filter(lambda text: resolve_plain(text or "a") in (text, "a"))
_SCALARS = st.one_of(st.booleans(), st.integers(), _TEXT, st.none())
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(_TREES, st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_a_dumper_writes_is_read_back_the_same(tree: object, flow: bool) -> None:
    text = yaml.safe_dump({"root": tree}, default_flow_style=flow)
    source = parse_text(text, "f")
    assert source.value == {"root": tree}
    assert codes(source) == []
