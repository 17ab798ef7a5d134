"""A real S3 server in a process of its own, behind a door that can be shut.

The server is moto in one thread (see `s3server`). The door is a TCP proxy in this process: while it
is shut, connections are refused and open ones are reset, as when a store is down. Run as a script,
this file is the server: it prints its port and serves until it is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from npa.storage import StoreOptions
from s3server import ACCESS_KEY, REGION, SECRET_KEY, options_for

BUCKET = "chaos"


def serve() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=False)
    print(server.server_port, flush=True)
    server.serve_forever()


class Door:
    """Forwards a fixed port of ours to the server. `passed` counts connections."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.passed = 0
        self.port = 0
        self.open()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        if self._listener is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=[listener], daemon=True).start()

    def shut(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            self._listener = None
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.passed += 1
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            left = [2]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=[source, sink, left], daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, left: list[int]) -> None:
        with self._lock:
            self._open.add(source)
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            left[0] -= 1
            if not left[0]:
                self._open -= {source, sink}
                source.close()
                sink.close()


class Server:
    """The server behind its door, with one bucket."""

    def __init__(self, port: int) -> None:
        self.door = Door(port)
        put = urllib.request.Request(f"{self.door.endpoint}/{BUCKET}", method="PUT")
        with urllib.request.urlopen(put) as reply:
            assert reply.status == 200

    @property
    def uri(self) -> str:
        return f"s3://{BUCKET}/"

    @property
    def options(self) -> StoreOptions:
        return options_for(self.door.endpoint)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.door.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
        }


@contextlib.contextmanager
def s3_process() -> Iterator[Server]:
    """Start the server; it ends with the block."""
    folder = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, str(Path(__file__))],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": folder},
    ) as process:
        try:
            assert process.stdout is not None
            server = Server(int(process.stdout.readline()))
            yield server
            server.door.shut()
        finally:
            process.kill()


if __name__ == "__main__":
    serve()
