"""Artifacts as they really are: missing, empty, half there, malformed, or not to be seen."""

from __future__ import annotations

import pytest

from npa.observation import Absent, Found, Observation, Unavailable
from npa.orchestration import outputs as look
from npa.orchestration.decide import OutputsKind
from npa.storage import Blob, ObjectInfo
from npa.workflow.step import Artifact, Trigger
from npa.workflow.walk import AskDecision, AskItems, Gate

NOW = 0.0


class Shelf:
    """Artifacts by URI; `blind` URIs cannot be looked at."""

    def __init__(self, content: dict[str, bytes], blind: frozenset[str] = frozenset()) -> None:
        self.content = content
        self.blind = blind

    def _seen(self, uri: str) -> Observation[bytes]:
        if uri in self.blind:
            return Unavailable("timeout", "", "shelf", NOW)
        if uri not in self.content:
            return Absent("NoSuchKey", "shelf", NOW)
        return Found(self.content[uri], "shelf", NOW)

    def get(self, uri: str) -> Observation[Blob]:
        seen = self._seen(uri)
        return Found(Blob(seen.value, "e"), "shelf", NOW) if isinstance(seen, Found) else seen

    def head(self, uri: str) -> Observation[ObjectInfo]:
        seen = self._seen(uri)
        if isinstance(seen, Found):
            return Found(ObjectInfo(uri, len(seen.value), "e"), "shelf", NOW)
        return seen

    def list(self, uri: str, *, limit: int | None = None) -> Observation[tuple[ObjectInfo, ...]]:
        if uri in self.blind:
            return Unavailable("timeout", "", "shelf", NOW)
        below = [u for u in self.content if u.startswith(uri)]
        return Found(
            tuple(ObjectInfo(u, len(self.content[u]), "e") for u in below[:limit]), "shelf", NOW
        )


@pytest.mark.parametrize(
    ("content", "blind", "kind"),
    [
        ({"m://a": b"x", "m://d/1": b"", "m://d/2": b"y"}, [], OutputsKind.VALID),
        ({"m://a": b"", "m://d/2": b"y"}, [], OutputsKind.MIXED),
        ({"m://a": b"x", "m://d/1": b""}, [], OutputsKind.MIXED),
        ({}, [], OutputsKind.ABSENT),
        ({"m://a": b"x"}, ["m://d/"], OutputsKind.UNSEEN),
        ({}, ["m://a"], OutputsKind.UNSEEN),
    ],
)
def test_one_output_that_cannot_be_seen_makes_the_whole_look_unseen(
    content: dict[str, bytes], blind: list[str], kind: OutputsKind
) -> None:
    shelf = Shelf(content, frozenset(blind))
    seen = look.look_at_outputs([Artifact("m://a"), Artifact("m://d/")], shelf)
    assert seen.kind is kind


def test_no_declared_outputs_is_a_case_of_its_own() -> None:
    assert look.look_at_outputs([], Shelf({})).kind is OutputsKind.NONE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"decision": "promote"}', "promote_checkpoint"),
        ('{"last_decision": "loop_back", "action": "promote"}', "loop_back_to_inner_loop"),
        ('{"action": " promote_checkpoint "}', "promote_checkpoint"),
        ('{"decision": "escalate"}', "escalate"),
    ],
)
def test_a_decision_is_read_by_the_first_key_and_normalised(text: str, value: str) -> None:
    ask = AskDecision("q", "w", ("m://none", "m://d"))
    answer = look.read_decision(ask, Shelf({"m://d": text.encode()}))
    assert isinstance(answer, look.Decided)
    assert (answer.value, answer.uri) == (value, "m://d")


@pytest.mark.req("E-01")
def test_a_decision_that_cannot_be_seen_is_not_looked_for_elsewhere() -> None:
    ask = AskDecision("q", "w", ("m://first", "m://second"))
    shelf = Shelf({"m://second": b'{"decision": "promote"}'}, frozenset({"m://first"}))
    assert look.read_decision(ask, shelf) == look.CannotSee("m://first", "timeout")


def gate(value: float = 0.9, op: str = ">=") -> AskDecision:
    return AskDecision("q", "w", (), (Gate("m://m", "scores.0.acc", op, value),))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"scores": [{"acc": 0.95}]}', "gate:0"),
        ('{"scores": [{"acc": 0.5}]}', "gate:none"),
        ('{"scores": [{"acc": 1}]}', "gate:0"),
    ],
)
def test_a_gate_decides_from_the_measured_number_and_records_it(text: str, answer: str) -> None:
    decided = look.read_decision(gate(), Shelf({"m://m": text.encode()}))
    assert isinstance(decided, look.Decided)
    assert decided.value == answer
    assert "scores.0.acc = " in decided.seen


@pytest.mark.parametrize(
    "text",
    [
        '{"scores": [{"acc": NaN}]}',
        '{"scores": [{"acc": 1e999}]}',
        '{"scores": [{"acc": true}]}',
        '{"scores": [{"acc": "0.95"}]}',
        '{"scores": []}',
        '{"scores": {"0": {}}}',
        "nothing",
    ],
)
def test_a_gate_without_a_finite_number_is_an_error_not_a_no(text: str) -> None:
    assert isinstance(look.read_decision(gate(), Shelf({"m://m": text.encode()})), look.BadArtifact)


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
def test_every_operator_compares_as_it_reads(op: str) -> None:
    python = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
    }
    for a, b in ((1.0, 2.0), (2.0, 2.0), (3.0, 2.0)):
        assert look.compare(a, op, b) is python[op](a, b)
    with pytest.raises(ValueError, match="operator"):
        look.compare(1, "=~", 2)


@pytest.mark.parametrize(
    ("text", "items"),
    [('[1, "b", true]', (1, "b", True)), ('{"items": ["x"]}', ("x",))],
)
def test_items_of_a_manifest(text: str, items: tuple[object, ...]) -> None:
    read = look.read_items(AskItems("k", "m://i", 3), Shelf({"m://i": text.encode()}))
    assert isinstance(read, look.ItemsRead)
    assert read.items == items


@pytest.mark.parametrize(
    "text", ["[]", "[1,2,3,4]", "[[1]]", "{}", '"x"', "[NaN]", "[1e999]", "x", "[" * 9000]
)
def test_a_manifest_that_cannot_be_used_is_an_error(text: str) -> None:
    read = look.read_items(AskItems("k", "m://i", 3), Shelf({"m://i": text.encode()}))
    assert isinstance(read, look.BadArtifact)


def test_a_trigger_that_cannot_be_seen_counts_as_nothing_known() -> None:
    trigger = Trigger("m://in/")
    assert look.count_objects(trigger, Shelf({"m://in/a": b"1"})) == 1
    assert look.count_objects(trigger, Shelf({})) == 0
    blind = Shelf({"m://in/a": b"1"}, frozenset({"m://in/"}))
    assert look.count_objects(trigger, blind) == look.CannotSee("m://in/", "timeout")
