"""The core tools as the programs that a task runs, on files and on S3."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from npa.errors import NpaError, UsageError
from npa.storage import Stores
from npa.tools import fetch
from npa.tools.task import Task
from s3server import S3

BODY = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(BODY).hexdigest()


class Place:
    """A root URI, and what a child needs to reach it."""

    def __init__(self, uri: str, stores: Stores, environment: dict[str, str]) -> None:
        self.uri, self.stores, self.environment = uri, stores, environment

    def put(self, name: str, data: bytes) -> str:
        store, key = self.stores.resolve(self.uri + name)
        store.put(key, data)
        return self.uri + name

    def get(self, name: str) -> bytes | None:
        answer = self.stores.get(self.uri + name)
        return getattr(getattr(answer, "value", None), "data", None)

    def document(self, name: str) -> dict[str, object]:
        data = self.get(name)
        assert data is not None
        value = json.loads(data)
        assert isinstance(value, dict)
        return value

    def run(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "NPA_CONFIG_DIR")}
        return subprocess.run(
            [sys.executable, "-m", f"npa.tools.{tool}", *arguments],
            env={**environment, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return Place(f"file://{tmp_path}/store/", Stores(), {})
    s3: S3 = request.getfixturevalue("s3")
    return Place(s3.uri, Stores(s3.options), s3.environment)


def test_copy_takes_an_object_or_a_prefix_between_stores(place: Place, tmp_path: Path) -> None:
    place.put("in/a", b"1")
    place.put("in/deep/b", b"2")
    local = f"file://{tmp_path}/local/"
    done = place.run("copy", "--source", place.uri + "in/", "--target", local)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "local" / "deep" / "b").read_bytes() == b"2"
    done = place.run("copy", "--source", local + "a", "--target", place.uri + "out/c")
    assert done.returncode == 0, done.stderr
    assert place.get("out/c") == b"1"
    done = place.run("copy", "--source", place.uri + "in/", "--target", place.uri + "again/")
    assert done.returncode == 0, done.stderr
    assert place.get("again/deep/b") == b"2"


def test_copy_of_what_is_absent_fails(place: Place) -> None:
    for source in ("none", "none/"):
        done = place.run("copy", "--source", place.uri + source, "--target", place.uri + "x/")
        assert done.returncode == 1
        assert place.uri + source in done.stderr


def threshold(place: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    report, decision = place.uri + "report.json", place.uri + "decision.json"
    return place.run("threshold", "--report", report, "--decision", decision, *arguments)


@pytest.mark.parametrize(
    ("op", "value", "decision"),
    [
        (">=", "0.9", "promote_checkpoint"),
        (">", "0.9", "loop_back_to_inner_loop"),
        ("<=", "-1", "loop_back_to_inner_loop"),
        ("==", "0.9", "promote_checkpoint"),
    ],
)
def test_the_gate_decides_from_the_number_it_saw(
    place: Place, op: str, value: str, decision: str
) -> None:
    data = b'{"runs": [{"accuracy": 0.9}]}'
    place.put("report.json", data)
    done = threshold(place, "--path", "runs.0.accuracy", "--op", op, f"--threshold={value}")
    assert done.returncode == 0, done.stderr
    written = place.document("decision.json")
    assert written["decision"] == decision
    assert written["measured"] == 0.9
    assert written["report_sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "report",
    [
        '{"metrics": {}}',
        '{"metrics": {"accuracy": "0.9"}}',
        '{"metrics": {"accuracy": true}}',
        '{"metrics": {"accuracy": NaN}}',
        '{"metrics": {"accuracy": null}}',
        '{"metrics.accuracy": 1}',
        "{",
    ],
)
def test_what_is_no_measured_number_fails_and_decides_nothing(report: str, tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/", Stores(), {})
    place.put("report.json", report.encode())
    done = threshold(place, "--path", "metrics.accuracy", "--op", ">=", "--threshold", "0.5")
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert place.get("decision.json") is None


def test_a_missing_path_says_what_is_there(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/", Stores(), {})
    place.put("report.json", b'{"metrics": {"acuracy": 1}}')
    done = threshold(place, "--path", "metrics.accuracy", "--op", ">=", "--threshold", "0.5")
    assert "`metrics` has `acuracy`" in done.stderr


def test_a_missing_report_fails(place: Place) -> None:
    done = threshold(place, "--path", "a", "--op", ">=", "--threshold", "1")
    assert done.returncode != 0
    assert place.get("decision.json") is None


class Handler(http.server.BaseHTTPRequestHandler):
    """`/ok`, `/busy-N` (N times 503, then fine), `/short`, `/code-N`, `/loop`, `/to-ok`, …"""

    seen: ClassVar[list[str]] = []

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        Handler.seen.append(path)
        name, _, number = path.lstrip("/").partition("-")
        if name == "busy" and Handler.seen.count(path) <= int(number):
            self.send_error(503)
        elif name == "code":
            self.send_error(int(number))
        elif path in ("/loop", "/to-ok", "/to-file"):
            self.send_response(302)
            places = {"/loop": "/loop", "/to-ok": "/ok?signature=canary-4711"}
            self.send_header("Location", places.get(path, "file:///etc/passwd"))
            self.end_headers()
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY) + (9 if name == "short" else 0)))
            self.end_headers()
            self.wfile.write(BODY)


@pytest.fixture
def web() -> Iterator[str]:
    Handler.seen.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def call(tmp_path: Path, *arguments: str) -> list[float]:
    """Run the tool in this process without its pauses; returns them."""
    pauses: list[float] = []
    words = ["--target", f"file://{tmp_path}/out/body", *arguments]
    assert fetch.main(words, Task(Stores()), sleep=pauses.append) == 0
    return pauses


def test_fetch_checks_the_hash_and_writes_the_artifact(place: Place, web: str) -> None:
    target = place.uri + "body"
    done = place.run("fetch", "--url", web + "/ok", "--target", target, "--sha256", SHA256)
    assert done.returncode == 0, done.stderr
    assert place.get("body") == BODY


def test_fetch_records_what_came_without_signatures(place: Place, web: str) -> None:
    record = place.uri + "record.json"
    url = web + "/to-ok?token=canary-4711"
    done = place.run("fetch", "--url", url, "--target", place.uri + "b", "--record", record)
    assert done.returncode == 0, done.stderr
    written = place.document("record.json")
    assert (written["sha256"], written["bytes"]) == (SHA256, len(BODY))
    assert written["final_url"] == web + "/ok"
    assert "canary" not in f"{written}{done.stdout}{done.stderr}"


def test_a_busy_server_is_asked_again_with_growing_pauses(tmp_path: Path, web: str) -> None:
    assert call(tmp_path, "--url", web + "/busy-2", "--sha256", SHA256) == [1.0, 2.0]
    assert (tmp_path / "out" / "body").read_bytes() == BODY


@pytest.mark.parametrize(
    ("path", "more", "message", "requests"),
    [
        ("/ok", ["--sha256", "0" * 64], "the SHA-256 is", 1),
        ("/ok", ["--sha256", SHA256, "--max-bytes", "1000"], "more than 1000 bytes", 1),
        ("/busy-9", ["--sha256", SHA256], "HTTP 503, after 4 tries", 4),
        ("/short", ["--sha256", SHA256], "after 4 tries", 4),
        ("/code-404", ["--sha256", SHA256], "HTTP 404", 1),
        ("/to-file", ["--sha256", SHA256], "HTTP 302", 1),
    ],
)
def test_what_does_not_hold_writes_nothing(
    tmp_path: Path, web: str, path: str, more: list[str], message: str, requests: int
) -> None:
    with pytest.raises(NpaError, match=message):
        call(tmp_path, "--url", web + path, *more)
    assert not (tmp_path / "out").exists()
    assert len(Handler.seen) == requests


def test_redirects_are_bounded(tmp_path: Path, web: str) -> None:
    with pytest.raises(NpaError):
        call(tmp_path, "--url", web + "/loop", "--sha256", SHA256)
    assert len(Handler.seen) <= fetch.REDIRECTS_MAX + 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "https://h.example.com/x"],
        ["--url", "http://h.example.com/x", "--record", "file:///r"],
        ["--url", "https://user:canary-4711@h.example.com/x", "--sha256", SHA256],
        ["--url", "file:///etc/passwd", "--sha256", SHA256],
        ["--url", "https://h.example.com/x", "--sha256", "abc"],
        ["--url", "https://h.example.com/x", "--sha256", SHA256, "--max-bytes", "0"],
    ],
)
def test_unsafe_requests_are_refused_before_any_network(
    tmp_path: Path, arguments: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        call(tmp_path, *arguments)
    assert "canary" not in caught.value.message
