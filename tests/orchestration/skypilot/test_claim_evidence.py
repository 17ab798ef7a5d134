"""Why a job ended before its payload: read from what its task left in the store."""

from __future__ import annotations

import json

import pytest

from npa.orchestration.claims import FOLDER, key_of
from npa.orchestration.evidence import Klass, klass_of
from npa.orchestration.skypilot.claim_evidence import CODES, ClaimEvidence
from npa.orchestration.skypilot.task_codes import TaskCode
from npa.storage import Store


def evidence(claim: object | None, note: object | None = None) -> str:
    store = Store.in_memory()
    if claim is not None:
        store.create(key_of("aa"), json.dumps(claim).encode())
    if note is not None:
        store.create(f"{FOLDER}aa/ended-7", json.dumps(note).encode())
    found = ClaimEvidence(store, "npa-1")("aa", "7")
    return found.code if found is not None else ""


def test_a_job_that_holds_its_claim_failed_by_itself() -> None:
    assert evidence({"job": "7", "provider": "npa-1"}) == ""
    assert evidence(None) == ""


@pytest.mark.parametrize(
    "claim",
    [
        {"job": "6", "provider": "npa-1"},
        {"job": "7", "provider": "npa-2"},
        {"driver": "host 12"},
    ],
)
def test_a_second_launch_of_an_attempt_is_no_failure_of_the_payload(claim: object) -> None:
    code = evidence(claim)
    assert code == CODES[TaskCode.CLAIMED]
    assert klass_of(code) is Klass.UNKNOWN


def test_a_claim_that_cannot_be_read_says_nothing() -> None:
    assert evidence({"job": "sky-managed-7_task", "provider": "npa-1"}) == ""
    assert evidence([1]) == ""


def test_a_note_of_the_task_names_its_reserved_code() -> None:
    mine = {"job": "7", "provider": "npa-1"}
    assert evidence(mine, {"code": 96}) == "SOURCE_NOT_BROUGHT"
    assert evidence(None, {"code": 94}) == "NODE_UNFIT"
    assert evidence(mine, {"code": 3}) == ""


def test_no_reserved_code_is_a_failure_of_the_payload() -> None:
    assert set(CODES) == set(TaskCode)
    assert Klass.PAYLOAD not in {klass_of(code) for code in CODES.values()}
