"""Looks at outputs with a schema: wrong is not missing, and what cannot be read is neither."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from changed import replace
from npa.observation import Absent, Found, Observation, Unavailable
from npa.orchestration import decide as d
from npa.orchestration.decide import OutputsKind, decide
from npa.orchestration.engine import Phase
from npa.orchestration.outputs import look_at_outputs, together
from npa.orchestration.payloads import CheckedArtifacts
from npa.storage import Blob, ObjectInfo
from npa.workflow.payload import read_schema
from npa.workflow.step import Artifact
from orchestration.test_decide import BASE, TRANSIENT, found

SCHEMAS = {"n": read_schema("n", {"type": "number"})}
GOOD, BAD, PLAIN = Artifact("s3://b/good", "n"), Artifact("s3://b/bad", "n"), Artifact("s3://b/bad")
GONE = Artifact("s3://b/gone", "n")


@dataclass
class Shelf:
    """Artifacts by URI; those in `hidden` are seen and cannot be read."""

    held: dict[str, bytes]
    hidden: set[str] = field(default_factory=set)

    def get(self, uri: str) -> Observation[Blob]:
        if uri in self.hidden:
            return Unavailable("timeout", "", "shelf", 0.0)
        if uri not in self.held:
            return Absent("not on the shelf", "shelf", 0.0)
        return Found(Blob(self.held[uri], "e"), "shelf", 0.0)

    def head(self, uri: str) -> Observation[ObjectInfo]:
        if uri not in self.held:
            return Absent("not on the shelf", "shelf", 0.0)
        return Found(ObjectInfo(uri, len(self.held[uri]), "e"), "shelf", 0.0)

    def list(self, uri: str, *, limit: int | None = None) -> Observation[tuple[ObjectInfo, ...]]:
        return Absent("not on the shelf", "shelf", 0.0)


def checked(*hidden: str) -> CheckedArtifacts:
    held = {GOOD.uri: b"1", BAD.uri: json.dumps("text").encode()}
    return CheckedArtifacts(Shelf(held, set(hidden)), SCHEMAS)


@pytest.mark.req("E-05")
@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        ([GOOD], OutputsKind.VALID),
        ([BAD], OutputsKind.INVALID),
        ([GOOD, BAD], OutputsKind.INVALID),
        ([GONE, BAD], OutputsKind.INVALID),
        ([PLAIN], OutputsKind.VALID),
        ([GONE], OutputsKind.ABSENT),
    ],
)
def test_a_wrong_payload_is_invalid(outputs: list[Artifact], kind: OutputsKind) -> None:
    assert look_at_outputs(outputs, checked()).kind is kind


def test_what_cannot_be_read_is_unseen_and_never_invalid() -> None:
    seen = look_at_outputs([GOOD, BAD], checked(GOOD.uri))
    assert seen.kind is OutputsKind.UNSEEN
    assert seen.unseen == ("s3://b/good (timeout)",)


def test_one_invalid_member_speaks_for_the_group() -> None:
    looks = {path: look_at_outputs([a], checked()) for path, a in (("x", GOOD), ("y", BAD))}
    assert together(looks) is OutputsKind.INVALID


def test_row_14_success_with_a_wrong_payload_is_the_program_s_failure() -> None:
    over = replace(BASE, observation=found(Phase.SUCCEEDED), outputs=OutputsKind.INVALID)
    step = decide(over)
    assert isinstance(step, d.Fail)
    assert (step.klass.value, step.code) == ("payload", "DECLARED_OUTPUT_INVALID")


@pytest.mark.req("E-02")
def test_row_22_a_transient_failure_beside_a_wrong_payload_holds() -> None:
    over = replace(BASE, observation=found(Phase.FAILED, TRANSIENT), outputs=OutputsKind.INVALID)
    step = decide(over)
    assert isinstance(step, d.Hold)
    assert step.code == "OUTPUT_EVIDENCE"
