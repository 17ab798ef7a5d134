"""A server on loopback that says given bytes, whatever they are: one answer a connection."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORDED: Mapping[str, Any] = json.loads(
    (Path(__file__).parent / "recordings" / "plain_api.json").read_text()
)
SILENCE = b"\0silence"  # the connection stays open, and nothing is said


def recorded(name: str, **headers: str) -> bytes:
    """A recorded answer as it went over the wire; `headers` replace those of the recording."""
    entry = RECORDED[name]
    return http(entry["body"].encode(), entry["status"], {**entry["headers"], **headers})


def http(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    named = {"content-length": str(len(body)), "connection": "close", **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items() if value)
    return f"HTTP/1.1 {status} -\r\n{head}\r\n".encode() + body


@dataclass
class Speaker:
    """Says `post` to a POST and `get` to a GET. `asked` keeps the requests."""

    post: bytes = b""
    get: bytes = b""
    asked: list[bytes] = field(default_factory=list)
    endpoint: str = ""

    def answer(self, connection: socket.socket, over: threading.Event) -> None:
        with connection, contextlib.suppress(OSError):
            request = read_request(connection)
            self.asked.append(request)
            said = self.post if request.startswith(b"POST") else self.get
            if said == SILENCE:
                over.wait(30)
                return
            connection.sendall(said)


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0].partition(b":")[2]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def speaking(post: bytes = b"", get: bytes = b"") -> Iterator[Speaker]:
    speaker, over = Speaker(post, get), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    speaker.endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=speaker.answer, args=(connection, over), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield speaker
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
