"""A plain look believes only the whole answer of the right server; nothing else is a queue."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npa.observation import Found, Unavailable
from npa.orchestration.skypilot import installer, plain_api
from npa.orchestration.skypilot.client import SCRIPT, Answer, BridgeClient, Refused, Reply
from npa.orchestration.skypilot.jobqueue import Queue
from npa.orchestration.skypilot.plain_api import Failed, Odd, PlainApi
from npa.orchestration.skypilot.rows import Snapshot
from orchestration.skypilot.api_speaker import RECORDED, SILENCE, Speaker, http, recorded, speaking

ACCEPTED = recorded("accepted")
HEADERS: Mapping[str, str] = RECORDED["group"]["headers"]
REQUEST: str = RECORDED["accepted"]["headers"]["x-skypilot-request-id"]


def ask(post: bytes, get: bytes, seconds: float = 20.0) -> dict[str, Any]:
    with speaking(post, get) as speaker:
        return PlainApi(speaker.endpoint, "npa-user").queue(seconds)


def odd(post: bytes, get: bytes, seconds: float = 20.0) -> str:
    with pytest.raises(Odd) as seen:
        ask(post, get, seconds)
    return seen.value.code


def answer(**changes: Any) -> bytes:
    """The recorded answer with some fields of its payload changed."""
    payload = json.loads(RECORDED["group"]["body"]) | changes
    return http(json.dumps(payload).encode(), 200, HEADERS)


def value(**changes: Any) -> bytes:
    """The recorded answer with some parts of the returned queue changed; None takes one out."""
    queue = json.loads(json.loads(RECORDED["group"]["body"])["return_value"]) | changes
    return answer(return_value=json.dumps({k: v for k, v in queue.items() if v is not None}))


def jobs() -> list[dict[str, Any]]:
    return list(json.loads(json.loads(RECORDED["group"]["body"])["return_value"])["jobs"])


def test_it_speaks_of_the_version_that_is_installed() -> None:
    assert plain_api.VERSION == installer.VERSION


def test_a_recorded_queue_is_told_whole() -> None:
    with speaking(ACCEPTED, recorded("group")) as speaker:
        told = PlainApi(speaker.endpoint, "npa-user").queue(20.0)
    assert [(r["job_id"], r["task_id"], r["task_name"], r["status"]) for r in told["rows"]] == [
        (1, 0, "all-one", "RUNNING"),
        (1, 1, "all-two", "RUNNING"),
    ]
    assert told["total"] == 1
    assert all(set(row) == set(plain_api.QUEUE_FIELDS) for row in told["rows"])
    assert ask(ACCEPTED, recorded("empty")) == {"rows": [], "total": 0}

    # Asked as this session's user, for all of its jobs, with nothing restarted by it.
    post, get = speaker.asked
    body = json.loads(post.partition(b"\r\n\r\n")[2])
    assert body["env_vars"]["SKYPILOT_USER_ID"] == "npa-user"
    assert (body["refresh"], body["skip_finished"], body["all_users"]) == (False, False, False)
    assert get.startswith(f"GET /api/get?request_id={REQUEST} ".encode())


def test_a_failed_request_hands_over_its_payload() -> None:
    for name in ("failed", "controller_stopped"):
        with pytest.raises(Failed) as seen:
            ask(ACCEPTED, recorded(name))
        assert json.loads(seen.value.payload["error"])["type"] in (
            "ValueError",
            "ClusterNotUpError",
        )


HTML = b"<!doctype html><title>Sign in</title>"
NO_JOBS = {"jobs": [], "total": 0, "total_no_filter": 0, "status_counts": {}}


@pytest.mark.parametrize(
    ("post", "get", "code"),
    [
        pytest.param(b"", b"", "unreachable", id="closed without a word"),
        pytest.param(ACCEPTED, b"", "unreachable", id="closed before the answer"),
        pytest.param(SILENCE, b"", "unreachable", id="too slow to take it"),
        pytest.param(ACCEPTED, SILENCE, "unreachable", id="too slow to answer"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", b"", "schema", id="another protocol"),
        pytest.param(ACCEPTED, b"\x16\x03\x01garbage\r\n\r\n", "schema", id="garbage"),
        pytest.param(http(HTML), b"", "schema", id="a page for a POST"),
        pytest.param(ACCEPTED, http(HTML), "schema", id="a page of another server"),
        pytest.param(ACCEPTED, http(HTML, 200, HEADERS), "schema", id="a page of this server"),
        pytest.param(ACCEPTED, http(b"", 200, HEADERS), "schema", id="nothing"),
        pytest.param(ACCEPTED, http(b"null", 200, HEADERS), "schema", id="null"),
        pytest.param(ACCEPTED, http(b"[]", 200, HEADERS), "schema", id="a list"),
        pytest.param(ACCEPTED, http(b"[" * 100_000, 200, HEADERS), "schema", id="too deep"),
        pytest.param(ACCEPTED, recorded("group")[:-40], "schema", id="cut short"),
        pytest.param(
            ACCEPTED,
            recorded("empty", **{"content-length": ""})[:-40],
            "schema",
            id="cut short without a length",
        ),
        pytest.param(
            ACCEPTED,
            recorded("group", **{"transfer-encoding": "chunked", "content-length": ""}),
            "schema",
            id="no chunks where chunks are said",
        ),
        pytest.param(http(b"", 302, {"location": "/x"}), b"", "schema", id="sent elsewhere"),
        pytest.param(
            http(b"", 302, {**HEADERS, "location": "/x"}), b"", "http", id="sent elsewhere by it"
        ),
        pytest.param(http(b"oops", 500), b"", "http", id="HTTP 500"),
        pytest.param(ACCEPTED, http(b"oops", 502), "http", id="HTTP 502 of a proxy"),
        pytest.param(ACCEPTED, http(b"{}", 500, HEADERS), "http", id="HTTP 500 without a payload"),
        pytest.param(ACCEPTED, http(b"x", 500, HEADERS), "schema", id="HTTP 500 in words"),
        pytest.param(http(b"null", 503, HEADERS), b"", "busy", id="HTTP 503 to the POST"),
        pytest.param(ACCEPTED, http(b"null", 503, HEADERS), "busy", id="HTTP 503"),
        pytest.param(http(b"null", 401, HEADERS), b"", "http", id="HTTP 401"),
        pytest.param(recorded("unprocessable"), b"", "http", id="HTTP 422"),
        pytest.param(recorded("not_found"), b"", "http", id="HTTP 404 to the POST"),
        pytest.param(ACCEPTED, recorded("unknown"), "request_unknown", id="server restarted"),
        pytest.param(
            recorded("accepted", **{"x-skypilot-version": "0.13.0"}), b"", "version", id="newer"
        ),
        pytest.param(
            ACCEPTED, recorded("group", **{"x-skypilot-api-version": "48"}), "version", id="older"
        ),
        pytest.param(
            recorded("accepted", **{"x-skypilot-request-id": ""}), b"", "schema", id="no request"
        ),
        pytest.param(
            recorded("accepted", **{"x-skypilot-request-id": "../jobs"}),
            b"",
            "schema",
            id="a request that is none",
        ),
        pytest.param(ACCEPTED, answer(request_id="0"), "schema", id="another request"),
        pytest.param(ACCEPTED, answer(name="sky.status"), "schema", id="another question"),
        pytest.param(ACCEPTED, answer(status="RUNNING"), "schema", id="not over"),
        pytest.param(ACCEPTED, answer(status="FAILED"), "schema", id="failed, and HTTP 200"),
        pytest.param(ACCEPTED, answer(status="CANCELLED"), "interrupted", id="cancelled"),
        pytest.param(ACCEPTED, answer(error="{}"), "schema", id="an error beside the value"),
        pytest.param(ACCEPTED, answer(return_value=NO_JOBS), "schema", id="a value as it is"),
        pytest.param(ACCEPTED, answer(return_value="null"), "schema", id="no value"),
        pytest.param(ACCEPTED, answer(return_value="[]"), "schema", id="the list of older ones"),
        pytest.param(ACCEPTED, answer(return_value="{}"), "schema", id="an empty value"),
        pytest.param(ACCEPTED, value(jobs=None), "schema", id="no jobs"),
        pytest.param(ACCEPTED, value(jobs={}), "schema", id="jobs that are no list"),
        pytest.param(ACCEPTED, value(jobs=["x"]), "schema", id="a row that is none"),
        pytest.param(ACCEPTED, value(jobs=[]), "schema", id="fewer rows than are counted"),
        pytest.param(ACCEPTED, value(total=2), "schema", id="more counted than told"),
        pytest.param(ACCEPTED, value(total=0), "schema", id="none counted"),
        pytest.param(ACCEPTED, value(total=None), "schema", id="nothing counted"),
        pytest.param(ACCEPTED, value(jobs=jobs()[:1]), "schema", id="one row of two"),
        pytest.param(ACCEPTED, value(status_counts=None), "schema", id="no counts of rows"),
        pytest.param(
            ACCEPTED, value(status_counts={"RUNNING": "2"}), "schema", id="words for counts"
        ),
        pytest.param(ACCEPTED, value(total=True), "schema", id="a count that is none"),
    ],
)
@pytest.mark.req("D-04")
def test_what_is_no_whole_answer_is_never_a_queue(post: bytes, get: bytes, code: str) -> None:
    assert odd(post, get, 0.5 if SILENCE in (post, get) else 20.0) == code


def test_a_row_needs_every_field_and_real_ids() -> None:
    for name in plain_api.QUEUE_FIELDS:
        rows = jobs()
        del rows[0][name]
        assert odd(ACCEPTED, value(jobs=rows)) == "schema"
    for number in (None, "1", 1.0, True):
        rows = jobs()
        rows[0]["job_id"] = number
        assert odd(ACCEPTED, value(jobs=rows)) == "schema"


def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, and nobody listens
        api = PlainApi(f"http://127.0.0.1:{reserved.getsockname()[1]}", "npa-user")
        with pytest.raises(Odd) as seen:
            api.queue(20.0)
    assert seen.value.code == "unreachable"


@pytest.mark.req("D-04")
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_answer_that_is_damaged_anywhere_is_the_same_queue_or_none(data: st.DataObject) -> None:
    """Bytes cut out of, or put into, the body of a true answer; its length is told as it is."""
    body = RECORDED["group"]["body"].encode()
    at = data.draw(st.integers(0, len(body)))
    gone = data.draw(st.integers(0, len(body) - at))
    put = data.draw(st.binary(max_size=4))
    damaged = body[:at] + put + body[at + gone :]
    try:
        told = ask(ACCEPTED, http(damaged, 200, HEADERS))
    except Odd:
        return
    assert ([row["job_id"] for row in told["rows"]], told["total"]) == ([1, 1], 1)


@pytest.mark.req("D-03")
def test_a_stopped_controller_is_woken_by_a_look_that_nobody_waits_for() -> None:
    with speaking(ACCEPTED) as speaker:
        assert PlainApi(speaker.endpoint, "npa-user").wake(20.0) == REQUEST
    (post,) = speaker.asked
    assert json.loads(post.partition(b"\r\n\r\n")[2])["refresh"] is True


# -- the state of one request ----------------------------------------------------------------------


def status(get: bytes, request_id: str = REQUEST) -> str:
    with speaking(b"", get) as speaker:
        return PlainApi(speaker.endpoint, "npa-user").request(request_id, 20.0)


def test_the_state_of_a_request_is_told_in_the_servers_word() -> None:
    assert status(recorded("status")) == "SUCCEEDED"


@pytest.mark.parametrize(
    ("get", "code"),
    [
        pytest.param(recorded("status_unknown"), "request_unknown", id="not known"),
        pytest.param(recorded("not_found"), "http", id="HTTP 404"),
        pytest.param(http(b"{}", 200, HEADERS), "schema", id="no list"),
        pytest.param(http(b"[1]", 200, HEADERS), "schema", id="no request"),
        pytest.param(http(HTML), "schema", id="a page"),
        pytest.param(http(b"[]"), "schema", id="an empty list of another server"),
        pytest.param(b"", "unreachable", id="closed"),
    ],
)
def test_no_state_of_a_request_is_made_up(get: bytes, code: str) -> None:
    with pytest.raises(Odd) as seen:
        status(get)
    assert seen.value.code == code


def test_the_state_of_another_request_is_not_taken() -> None:
    with pytest.raises(Odd, match="another request"):
        status(recorded("status"), "00000000-0000-4000-8000-000000000000")


# -- through the bridge and the engine's queue -----------------------------------------------------


@pytest.fixture
def through_bridge(tmp_path: Path) -> Iterator[Callable[[Speaker], BridgeClient]]:
    made: list[BridgeClient] = []

    def make(speaker: Speaker) -> BridgeClient:
        environment = {
            "HOME": str(tmp_path),
            "SKYPILOT_API_SERVER_ENDPOINT": speaker.endpoint,
            "SKYPILOT_USER_ID": "npa-user",
        }
        # An interpreter that has no SkyPilot at all: a plain look needs none.
        argv = (sys.executable, "-I", "-S", "-u", str(SCRIPT))
        made.append(BridgeClient(argv, lambda: environment, tmp_path, tmp_path / "bridge.log"))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_the_bridge_answers_a_look_without_skypilot(
    through_bridge: Callable[[Speaker], BridgeClient],
) -> None:
    with speaking(ACCEPTED, recorded("group")) as speaker:
        bridge = through_bridge(speaker)
        reply = bridge.call("queue", 30.0)
        assert isinstance(reply, Answer)
        assert reply.value["total"] == 1
        speaker.get = recorded("status")
        assert bridge.call("request", 30.0, request_id=REQUEST) == Answer({"status": "SUCCEEDED"})
        speaker.get = recorded("status_unknown")
        lost = bridge.call("request", 30.0, request_id=REQUEST)
        assert isinstance(lost, Refused)
        assert (lost.code, lost.status) == ("request_unknown", 404)


@pytest.mark.req("D-04")
def test_what_is_odd_is_unavailable_to_the_engine_and_never_an_empty_queue(
    through_bridge: Callable[[Speaker], BridgeClient],
) -> None:
    with speaking(ACCEPTED, recorded("group")) as speaker:
        bridge = through_bridge(speaker)

        def look() -> Reply:
            return bridge.call("queue", 30.0)

        def seen() -> object:
            return Queue(look, lambda: None).snapshot()

        found = seen()
        assert isinstance(found, Found)
        assert isinstance(found.value, Snapshot)
        for get, code in (
            (recorded("group")[:-40], "schema"),
            (http(HTML), "schema"),
            (recorded("group", **{"x-skypilot-version": "0.13.0"}), "version"),
            (value(jobs=[]), "schema"),
            (b"", "unreachable"),
            (http(b"null", 503, HEADERS), "busy"),
        ):
            speaker.get = get
            unseen = seen()
            assert isinstance(unseen, Unavailable), unseen
            assert unseen.cause == code
        assert time.time() >= unseen.as_of
