"""A real S3 server in a process of its own, behind a door that can be shut.

The server is moto in one thread (see `s3server`). The door is a TCP proxy in this process: while it
is shut, connections are refused and open ones are reset, as when a store is down. Run as a script,
this file is the server: it prints its port and serves until it is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
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
        self._threads: list[threading.Thread] = []
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
        self._start(self._accept, listener)

    def shut(self) -> None:
        """Refuse new connections and cut the open ones."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener = None
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()

    def before(self, client: socket.socket) -> None:
        """Called with each new connection before anything of it is passed on."""

    def _start(self, target: Callable[[socket.socket], None], one: socket.socket) -> None:
        thread = threading.Thread(target=target, args=[one], daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                self.passed += 1
                self._threads = [one for one in self._threads if one.is_alive()]
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            with self._lock:
                self._open.add(client)
            try:
                self.before(client)
                with socket.create_connection(("127.0.0.1", self._target)) as server:
                    _forward(client, server)
            finally:
                with self._lock:
                    self._open.discard(client)


def _forward(client: socket.socket, server: socket.socket) -> None:
    """Both ways until one of them ends."""
    other = {client: server, server: client}
    while True:
        for one in select.select([client, server], [], [])[0]:
            data = one.recv(1 << 16)
            if not data:
                return
            other[one].sendall(data)


class Server:
    """The server behind its door, with one bucket."""

    def __init__(self, port: int) -> None:
        self.target = port
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
