"""The driver's side of the zygote: start it when first needed, hand over requests, read replies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from npa.orchestration.local.procfs import Identity

REPLY_SECONDS_MAX = 30.0
"""How long a launch waits for the claim. Later the folder decides (see `LocalEngine.launch`)."""
CLOSE_SECONDS_MAX = 5.0


class Claimed(Struct, frozen=True):
    """The shim has the claim. `pipe` reads `+` at each change and ends when the shim is over."""

    shim: Identity
    pipe: int


class Foreign(Struct, frozen=True):
    """Somebody else holds the claim; nothing was started by us."""


class NotStarted(Struct, frozen=True):
    """`stage` failed with `errno`: fork, claim, workdir, or here before anything was sent."""

    errno: int
    stage: str


class Silent(Struct, frozen=True):
    """No reply: nobody is left who could give one (`ended`), or not in time."""

    ended: bool
    detail: str


Reply = Claimed | Foreign | NotStarted | Silent


class Launcher:
    """One zygote at a time. `launch` raises nothing: each end is a value."""

    def __init__(self, root: Path, env: Mapping[str, str]) -> None:
        """`env` is all that the zygote's own interpreter gets; `root` is shown in `ps`."""
        self._root = root
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._errors = -1

    @property
    def pid(self) -> int | None:
        """Pid of the zygote, if one was started."""
        return None if self._process is None else self._process.pid

    def get_ready(self) -> None:
        """Start the zygote ahead of the first launch; if that fails, the launch says why."""
        with contextlib.suppress(OSError):
            if self._living() is None:
                self._start()

    def launch(self, request: Mapping[str, object]) -> Reply:
        try:
            return self._launch(json.dumps(request).encode())
        except OSError as error:
            return NotStarted(error.errno or 0, "launcher")

    def _launch(self, data: bytes) -> Reply:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            body = os.memfd_create("npa-job", os.MFD_CLOEXEC)
            try:
                _write_all(body, data)
                self._send([body, writer])
            finally:
                os.close(body)
                os.close(writer)
        except OSError:
            os.close(reader)
            raise
        reply = self._receive(reader)
        if not isinstance(reply, Claimed):
            os.close(reader)
        return reply

    def _send(self, fds: list[int]) -> None:
        """A zygote that died is replaced; a message that was not taken was not sent."""
        for last in (False, True):
            channel = self._living() or self._start()
            try:
                socket.send_fds(channel, [b"j"], fds)
            except (BrokenPipeError, ConnectionResetError):
                self.close()
                if last:
                    raise
            else:
                return

    def _living(self) -> socket.socket | None:
        """The channel, unless the zygote ended under it: then its last shim is let go, too."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        return self._channel

    def _receive(self, reader: int) -> Reply:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        if not poll.poll(REPLY_SECONDS_MAX * 1000):
            return Silent(False, f"no reply within {REPLY_SECONDS_MAX:.0f} s")
        word, _, rest = os.read(reader, 4096).decode().partition(" ")
        if word == "claimed":
            return Claimed(Identity.parse(rest.rstrip("+")), reader)
        if word == "foreign":
            return Foreign()
        if word == "errno":
            number, _, stage = rest.partition(" ")
            return NotStarted(int(number), stage)
        return Silent(True, self._last_words())

    def _last_words(self) -> str:
        """Last line that the zygote wrote before it ended."""
        size = os.fstat(self._errors).st_size if self._errors >= 0 else 0
        text = os.pread(self._errors, 2000, max(0, size - 2000)) if size else b""
        lines = text.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "the launcher process ended"

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._errors = os.memfd_create("npa-zygote-errors", os.MFD_CLOEXEC)
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        str(Path(__file__).with_name("zygote.py")),
                        str(theirs.fileno()),
                        str(self._root),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env=self._env,
                    cwd="/",
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                self.close()
                raise
        self._channel = ours
        return ours

    def close(self) -> None:
        """End the zygote. Shims, and so the jobs, live on."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(CLOSE_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
