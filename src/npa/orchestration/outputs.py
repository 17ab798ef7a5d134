"""Looking at artifacts: declared outputs, decisions, gates, foreach manifests, triggers.

Each look gives a closed answer in which "could not see" is a case of its own. Nothing here decides.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Protocol, assert_never, runtime_checkable

from msgspec import Struct

from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.decide import OutputsKind
from npa.storage import Blob, ObjectInfo
from npa.workflow.step import Artifact, Scalar, Trigger
from npa.workflow.walk import AskDecision, AskItems, Gate

DECISION_BYTES_MAX = 1 << 20
SEEN_CHARS_MAX = 2000  # how much of a decision artifact is quoted in the journal
DECISION_KEYS = ("decision", "last_decision", "action")
NORMAL = {
    "promote": "promote_checkpoint",
    "promote_checkpoint": "promote_checkpoint",
    "loop_back": "loop_back_to_inner_loop",
    "loop_back_to_inner_loop": "loop_back_to_inner_loop",
}


class Artifacts(Protocol):
    """Reading artifacts by absolute URI (`npa.storage.Stores` in production)."""

    def get(self, uri: str) -> Observation[Blob]: ...

    def head(self, uri: str) -> Observation[ObjectInfo]: ...

    def list(
        self, uri: str, *, limit: int | None = None
    ) -> Observation[tuple[ObjectInfo, ...]]: ...


@runtime_checkable
class ChecksPayloads(Protocol):
    """Artifacts that also know schemas (`npa.orchestration.payloads`)."""

    def check(self, output: Artifact, info: ObjectInfo) -> Observation[str]: ...


class OutputsSeen(Struct, frozen=True):
    """What was seen of a set of declared outputs, by URI.

    `records` are (uri, size in bytes, etag) of the valid ones; an empty object is not valid.
    `invalid` says which payloads are not what their schema says, and why.
    """

    kind: OutputsKind
    records: tuple[tuple[str, int, str], ...] = ()
    missing: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()


def look_at_outputs(outputs: Sequence[Artifact], artifacts: Artifacts) -> OutputsSeen:
    """Look at every declared output once."""
    if not outputs:
        return OutputsSeen(OutputsKind.NONE)
    records: list[tuple[str, int, str]] = []
    missing: list[str] = []
    unseen: list[str] = []
    invalid: list[str] = []
    for output in outputs:
        answer = _look_at_one(output, artifacts)
        wrong = _look_inside(output, answer, artifacts)
        if isinstance(wrong, Unavailable | Ambiguous):
            answer = wrong  # it is there and cannot be read
        match answer:
            case Found() if isinstance(wrong, Found) and wrong.value:
                invalid.append(f"{output.uri}: {wrong.value}")
            case Found(value=info):
                records.append((output.uri, info.size, info.etag))
            case Absent():
                missing.append(output.uri)
            case Unavailable(cause=cause):
                unseen.append(f"{output.uri} ({cause})")
            case Ambiguous():
                unseen.append(f"{output.uri} (ambiguous)")
            case _:
                assert_never(answer)
    return OutputsSeen(
        OutputsKind.INVALID if invalid and not unseen else _kind(records, missing, unseen),
        tuple(records),
        tuple(missing),
        tuple(unseen),
        tuple(invalid),
    )


def _look_inside(
    output: Artifact, there: Observation[ObjectInfo], artifacts: Artifacts
) -> Observation[str]:
    """What is wrong with a payload, if somebody here knows its schema; Found("") if nothing is."""
    if isinstance(there, Found) and isinstance(artifacts, ChecksPayloads):
        return artifacts.check(output, there.value)
    return Found("", "not looked", 0.0)


def _kind(records: Sequence[object], missing: Sequence[str], unseen: Sequence[str]) -> OutputsKind:
    if unseen:
        return OutputsKind.UNSEEN
    if not missing:
        return OutputsKind.VALID
    return OutputsKind.MIXED if records else OutputsKind.ABSENT


def together(seen: Mapping[str, OutputsSeen]) -> OutputsKind:
    """What the looks at all members of an attempt say together; by step path."""
    kinds = {s.kind for s in seen.values()} - {OutputsKind.NONE}
    if not seen:
        return OutputsKind.NOT_LOOKED
    if not kinds:
        return OutputsKind.NONE
    for kind in (OutputsKind.UNSEEN, OutputsKind.INVALID):
        if kind in kinds:
            return kind
    return kinds.pop() if len(kinds) == 1 else OutputsKind.MIXED


def _look_at_one(output: Artifact, artifacts: Artifacts) -> Observation[ObjectInfo]:
    if not output.is_prefix:
        answer = artifacts.head(output.uri)
        if isinstance(answer, Found) and answer.value.size <= 0:
            return Absent("the object is empty", answer.source, answer.as_of)
        return answer
    listing = artifacts.list(output.uri)
    match listing:
        case Found(value=infos):
            full = next((i for i in infos if i.size > 0), None)
            if full is None:
                return Absent("nothing with content lies there", listing.source, listing.as_of)
            size = sum(i.size for i in infos)
            return Found(ObjectInfo(full.key, size, full.etag), listing.source, listing.as_of)
        case Absent() | Unavailable() | Ambiguous():
            return listing
        case _:
            assert_never(listing)


# -- decisions ---------------------------------------------------------------------------------


class Decided(Struct, frozen=True):
    value: str
    uri: str
    digest: str
    seen: str


class NoDecision(Struct, frozen=True):
    """No artifact of the search order exists (each proven absent)."""

    looked_at: tuple[str, ...]


class BadArtifact(Struct, frozen=True):
    """The artifact exists and cannot be used: this fails the run, it is never guessed."""

    uri: str
    reason: str


class CannotSee(Struct, frozen=True):
    uri: str
    cause: str


DecisionRead = Decided | NoDecision | BadArtifact | CannotSee


def read_decision(ask: AskDecision, artifacts: Artifacts) -> DecisionRead:
    """Read the decision artifact that answers `ask`, or compute it from measured numbers."""
    if ask.gates:
        return _through_gates(ask.gates, artifacts)
    for uri in ask.uris:
        answer = artifacts.get(uri)
        match answer:
            case Found(value=blob):
                return parse_decision(uri, blob.data)
            case Absent():
                continue
            case Unavailable(cause=cause):
                return CannotSee(uri, cause)
            case Ambiguous():
                return CannotSee(uri, "ambiguous")
            case _:
                assert_never(answer)
    return NoDecision(ask.uris)


def parse_decision(uri: str, data: bytes) -> Decided | BadArtifact:
    """The decision in one artifact's bytes."""
    document = _json(uri, data)
    if isinstance(document, BadArtifact):
        return document
    if not isinstance(document, dict):
        return BadArtifact(uri, "it is not a JSON object")
    key = next((k for k in DECISION_KEYS if k in document), None)
    if key is None:
        return BadArtifact(uri, "it has none of `decision`, `last_decision`, `action`")
    word = document[key]
    if not isinstance(word, str) or not word.strip():
        return BadArtifact(uri, f"`{key}` is not a word")
    word = word.strip()
    return Decided(NORMAL.get(word, word), uri, _digest(data), _in_a_line(document))


def _through_gates(gates: Sequence[Gate], artifacts: Artifacts) -> DecisionRead:
    last: Decided | None = None
    for index, gate in enumerate(gates):
        answer = artifacts.get(gate.uri)
        match answer:
            case Found(value=blob):
                number = _measure(gate, blob.data)
                if isinstance(number, BadArtifact):
                    return number
                seen = f"{gate.path} = {number!r}; asked {gate.op} {gate.value!r}"
                last = Decided("gate:none", gate.uri, _digest(blob.data), seen)
                if compare(number, gate.op, gate.value):
                    return Decided(f"gate:{index}", gate.uri, last.digest, seen)
            case Absent():
                return NoDecision((gate.uri,))
            case Unavailable(cause=cause):
                return CannotSee(gate.uri, cause)
            case Ambiguous():
                return CannotSee(gate.uri, "ambiguous")
            case _:
                assert_never(answer)
    return last if last is not None else NoDecision(())


def compare(number: float, op: str, value: float) -> bool:
    """`number op value`. Raises ValueError for an operator outside the closed set."""
    match op:
        case "<":
            return number < value
        case "<=":
            return number <= value
        case ">":
            return number > value
        case ">=":
            return number >= value
        case "==":
            return number == value
        case "!=":
            return number != value
        case _:
            raise ValueError(f"unknown operator {op!r}")


def _measure(gate: Gate, data: bytes) -> float | BadArtifact:
    document = _json(gate.uri, data)
    if isinstance(document, BadArtifact):
        return document
    for part in gate.path.split("."):
        if isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            return BadArtifact(gate.uri, f"it has no `{gate.path}`")
    if isinstance(document, bool) or not isinstance(document, (int, float)):
        return BadArtifact(gate.uri, f"`{gate.path}` is not a number")
    if not math.isfinite(document):
        return BadArtifact(gate.uri, f"`{gate.path}` is {document}, which decides nothing")
    return float(document)


# -- manifests and triggers --------------------------------------------------------------------


class ItemsRead(Struct, frozen=True):
    items: tuple[Scalar, ...]
    uri: str
    digest: str


def read_items(ask: AskItems, artifacts: Artifacts) -> ItemsRead | BadArtifact | CannotSee:
    """The items of a `foreach`: a JSON list of scalars, or an object with such a list `items`."""
    answer = artifacts.get(ask.uri)
    match answer:
        case Found(value=blob):
            return _items(ask, blob.data)
        case Absent(proof=proof):
            return BadArtifact(ask.uri, f"there is no manifest ({proof})")
        case Unavailable(cause=cause):
            return CannotSee(ask.uri, cause)
        case Ambiguous():
            return CannotSee(ask.uri, "ambiguous")
        case _:
            assert_never(answer)


def _items(ask: AskItems, data: bytes) -> ItemsRead | BadArtifact:
    document = _json(ask.uri, data)
    if isinstance(document, BadArtifact):
        return document
    if isinstance(document, dict):
        document = document.get("items")
    if not isinstance(document, list):
        return BadArtifact(ask.uri, "it is neither a JSON list nor an object with a list `items`")
    if not all(x is None or isinstance(x, (str, int, float, bool)) for x in document):
        return BadArtifact(ask.uri, "an item is not a plain value")
    if any(isinstance(x, float) and not math.isfinite(x) for x in document):
        return BadArtifact(ask.uri, "an item is not a finite number")
    if not 1 <= len(document) <= ask.max_items:
        return BadArtifact(
            ask.uri, f"it has {len(document)} items; between 1 and {ask.max_items} are allowed"
        )
    return ItemsRead(tuple(document), ask.uri, _digest(data))


def count_objects(trigger: Trigger, artifacts: Artifacts) -> int | CannotSee:
    """How many objects lie under a trigger's URI."""
    answer = artifacts.list(trigger.uri)
    match answer:
        case Found(value=infos):
            return len(infos)
        case Absent():
            return 0
        case Unavailable(cause=cause):
            return CannotSee(trigger.uri, cause)
        case Ambiguous():
            return CannotSee(trigger.uri, "ambiguous")
        case _:
            assert_never(answer)


def _json(uri: str, data: bytes) -> object:
    if len(data) > DECISION_BYTES_MAX:
        return BadArtifact(uri, f"it has {len(data)} bytes; at most {DECISION_BYTES_MAX} are read")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return BadArtifact(uri, "it is not JSON")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _in_a_line(document: object) -> str:
    return json.dumps(document, ensure_ascii=False)[:SEEN_CHARS_MAX]
