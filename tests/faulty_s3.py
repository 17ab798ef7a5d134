"""A small strict S3 that does wrong on command: lost replies, lies, refusals, short bodies.

`FaultyS3` keeps objects in memory under one lock. `server.script(method, ...)` queues faults for
requests of that method; each request takes the next one.
"""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Fault(Enum):
    RESET_BEFORE = "connection reset, nothing done"
    RESET_AFTER = "done, then connection reset"
    BUSY_BEFORE = "503, nothing done"
    BUSY_AFTER = "done, then 503"
    EXISTS_FOR_OWN = "done, then 412 for our own write"
    CONFLICT = "409, nothing done"
    FORBIDDEN = "403 AccessDenied"
    EXPIRED = "403 ExpiredToken"
    NO_BUCKET = "404 NoSuchBucket"
    BARE_404 = "404 without a body"
    TRUNCATED = "a body shorter than announced"
    PORTAL = "200 with an HTML page"
    QUOTA = "403 QuotaExceeded"
    ERROR_500 = "500"


_REFUSALS = {
    Fault.BUSY_BEFORE: (503, "SlowDown"),
    Fault.BUSY_AFTER: (503, "SlowDown"),
    Fault.EXISTS_FOR_OWN: (412, "PreconditionFailed"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.FORBIDDEN: (403, "AccessDenied"),
    Fault.EXPIRED: (403, "ExpiredToken"),
    Fault.NO_BUCKET: (404, "NoSuchBucket"),
    Fault.BARE_404: (404, ""),
    Fault.QUOTA: (403, "QuotaExceeded"),
    Fault.ERROR_500: (500, "InternalError"),
}
_AFTER = (Fault.RESET_AFTER, Fault.BUSY_AFTER, Fault.EXISTS_FOR_OWN)


@dataclass
class State:
    objects: dict[str, bytes] = field(default_factory=dict)
    scripts: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    ignores_conditions: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class FaultyS3:
    def __init__(self, port: int, state: State) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.state = state

    def script(self, method: str, *faults: Fault) -> None:
        self.state.scripts.setdefault(method, []).extend(faults)

    @property
    def objects(self) -> dict[str, bytes]:
        return self.state.objects

    def count(self, method: str) -> int:
        return self.state.requests.count(method)


@contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    state = State()
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, args=(0.01,), name="faulty-s3", daemon=True
    )
    thread.start()
    try:
        yield FaultyS3(server.server_port, state)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_DELETE = do_POST = do_GET  # noqa: N815 - names of http.server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.state.lock:
            self.state.requests.append(self.command)
            fault = self._next_fault()
            if fault is None or fault in _AFTER:
                status, reply, headers = self._do(body)
            elif fault is Fault.TRUNCATED:
                status, reply, headers = self._do(body)
                headers = {**headers, "Content-Length": str(len(reply) + 10)}
            elif fault is Fault.PORTAL:
                status, reply, headers = 200, b"<html>log in</html>", {}
        if fault in (Fault.RESET_BEFORE, Fault.RESET_AFTER):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if fault in _REFUSALS:
            status, reply, headers = _refusal(*_REFUSALS[fault])
        self._reply(status, reply, headers)
        if fault is Fault.TRUNCATED:
            self.close_connection = True

    def _next_fault(self) -> Fault | None:
        queue = self.state.scripts.get(self.command, [])
        return queue.pop(0) if queue else None

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _do(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        url = urlsplit(self.path)
        _, _, key = unquote(url.path).lstrip("/").partition("/")
        if self.command == "GET" and not key:
            return self._list(parse_qs(url.query))
        if self.command == "PUT":
            taken = key in self.state.objects and not self.state.ignores_conditions
            if taken and self.headers.get("If-None-Match") == "*":
                return _refusal(412, "PreconditionFailed")
            self.state.objects[key] = body
            return 200, b"", {"ETag": _etag(body)}
        if self.command in ("POST", "DELETE"):  # bulk delete names its keys in the body
            names = [key] if key else _keys_in(body)
            for name in names:
                self.state.objects.pop(name, None)
            rows = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
            return 200, f"<DeleteResult>{rows}</DeleteResult>".encode(), {}
        if key not in self.state.objects:
            return _refusal(404, "NoSuchKey")
        data = self.state.objects[key]
        headers = {"ETag": _etag(data), "Last-Modified": "Mon, 30 Nov 2026 00:00:00 GMT"}
        return 200, data, {**headers, "Content-Length": str(len(data))}

    def _list(self, query: dict[str, list[str]]) -> tuple[int, bytes, dict[str, str]]:
        prefix = query.get("prefix", [""])[0]
        after = query.get("start-after", [""])[0]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            f"<ETag>{_etag(data)}</ETag><LastModified>2026-11-30T00:00:00.000Z</LastModified>"
            "</Contents>"
            for key, data in sorted(self.state.objects.items())
            if key.startswith(prefix) and key > after
        )
        xml = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        return 200, xml.encode(), {}


def _refusal(status: int, code: str) -> tuple[int, bytes, dict[str, str]]:
    body = f"<Error><Code>{code}</Code><Message>secret-looking-text</Message></Error>"
    return status, body.encode() if code else b"", {}


def _keys_in(body: bytes) -> list[str]:
    return [part.split("</Key>")[0] for part in body.decode().split("<Key>")[1:]]


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
