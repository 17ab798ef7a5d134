"""The bridge's client: a deadline for each call, and no belief in a bridge that writes garbage."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from npa.orchestration.skypilot.bridge import CODES, Rows, describe
from npa.orchestration.skypilot.client import Answer, BridgeClient, Broken, Refused
from npa.orchestration.skypilot.launch_refused import REFUSED
from npa.orchestration.skypilot.plain_api import QUEUE_FIELDS
from orchestration.skypilot.standin_bridge import row_of

ECHO = """
import json, os, sys, threading, time
def answer(r):
    if r["op"] == "silence": return
    if r["op"] == "garbage": say = "Welcome to SkyPilot!"
    elif r["op"] == "shape": say = "[]"
    elif r["op"] == "refuse":
        say = json.dumps({"id": r["id"], "ok": False, "error": {"code": "busy"}})
    elif r["op"] == "exit": os._exit(3)
    elif r["op"] == "posted":
        print(json.dumps({"id": r["id"], "event": "posting"}), flush=True); os._exit(3)
    else: say = json.dumps({"id": r["id"], "ok": True, "value": {"pid": os.getpid(), **r}})
    sys.stdout.write(say + "\\n"); sys.stdout.flush()
for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),)).start()
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BridgeClient]:
    made = BridgeClient((sys.executable, "-c", ECHO), dict, tmp_path, tmp_path / "bridge.log")
    yield made
    made.restart()


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not what():
        assert time.monotonic() < deadline


def test_one_bridge_answers_many_calls(client: BridgeClient) -> None:
    replies = [client.call("echo", 5.0, n=n) for n in range(5)]
    assert [r.value["n"] for r in replies if isinstance(r, Answer)] == [0, 1, 2, 3, 4]
    assert client.starts == 1


def test_calls_of_several_threads_get_their_own_answers(client: BridgeClient) -> None:
    got: dict[int, object] = {}

    def ask(n: int) -> None:
        got[n] = client.call("echo", 5.0, n=n)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(r, Answer) and r.value["n"] == n for n, r in got.items())


def test_a_call_without_an_answer_ends_at_its_deadline(client: BridgeClient) -> None:
    reply = client.call("silence", 0.2)
    assert isinstance(reply, Broken)
    assert reply.cause == "timeout"
    assert isinstance(client.call("echo", 5.0), Answer)
    assert client.starts == 1


@pytest.mark.parametrize("op", ["garbage", "shape"])
def test_a_bridge_that_writes_garbage_is_ended_and_replaced(client: BridgeClient, op: str) -> None:
    reply = client.call(op, 5.0)
    assert isinstance(reply, Broken)
    assert reply.cause == "schema"
    assert isinstance(client.call("echo", 5.0), Answer)
    assert client.starts == 2


def test_a_bridge_that_dies_breaks_the_calls_that_wait(client: BridgeClient) -> None:
    reply = client.call("exit", 5.0)
    assert isinstance(reply, Broken)
    assert (reply.cause, reply.posted) == ("died", False)


def test_what_was_heard_before_it_died_is_kept(client: BridgeClient) -> None:
    reply = client.call("posted", 5.0)
    assert isinstance(reply, Broken)
    assert reply.posted


def test_a_bridge_killed_between_calls_is_started_again(client: BridgeClient) -> None:
    first = client.call("echo", 5.0)
    assert isinstance(first, Answer)
    os.kill(first.value["pid"], signal.SIGKILL)
    eventually(lambda: client.pid == 0)
    assert isinstance(client.call("echo", 5.0), Answer)
    assert client.starts == 2


def test_a_bridge_that_cannot_be_started_is_broken_and_no_crash(tmp_path: Path) -> None:
    client = BridgeClient((str(tmp_path / "none"),), dict, tmp_path, tmp_path / "log")
    reply = client.call("echo", 5.0)
    assert isinstance(reply, Broken)
    assert reply.cause == "start"


def test_an_error_keeps_its_code(client: BridgeClient) -> None:
    reply = client.call("refuse", 5.0)
    assert isinstance(reply, Refused)
    assert reply.code == "busy"


def test_a_closed_client_lets_its_bridge_end(client: BridgeClient) -> None:
    client.call("echo", 5.0)
    client.close()
    eventually(lambda: client.pid == 0)


# -- the bridge's own file, as far as it needs no SkyPilot ---------------------------------------


def test_errors_are_typed_by_class_and_by_base_class() -> None:
    class ResourcesUnavailableError(Exception):
        pass

    class Special(ResourcesUnavailableError):
        pass

    assert describe(Special("x"))["code"] == "no_resources"
    assert describe(ValueError("x"))["code"] == "invalid"
    assert describe(TypeError("x"))["code"] == "unknown"
    assert describe(KeyError("x"))["code"] == "unknown"


def test_every_code_of_a_refused_launch_is_one_that_the_bridge_can_say() -> None:
    own = {"busy", "interrupted", "expired"}
    assert set(REFUSED) <= set(CODES.values()) | own


def test_rows_are_appended_whole_and_private(tmp_path: Path) -> None:
    rows = Rows(str(tmp_path / "rows"))
    rows.add("posting", name="a")
    rows.add("result", job_ids=[1])
    rows.close()
    lines = (tmp_path / "rows").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == ["posting", "result"]
    assert (tmp_path / "rows").stat().st_mode & 0o777 == 0o600


def test_the_stand_in_answers_in_the_shape_of_the_real_one() -> None:
    recording = Path(__file__).parent / "recordings" / "bed.jsonl"
    entries = [json.loads(line) for line in recording.read_text().splitlines()]
    real = next(e["value"]["rows"][0] for e in entries if e["op"] == "queue" and e["value"]["rows"])
    assert set(row_of(1, "job", 0, "task")) == set(real)
    assert set(real) <= set(QUEUE_FIELDS)
