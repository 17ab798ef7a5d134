"""Our end of the bridge: starts it, keeps it, gives each call a deadline, and never raises for it.

What comes back is a `Reply`: the bridge's own answer, its typed error, or `Broken` when there was
no answer at all. `Broken` says nothing of what happened at the other end.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

SCRIPT = Path(__file__).with_name("bridge.py")
LINE_BYTES_MAX = 64 * 1024 * 1024


class Answer(Struct, frozen=True):
    value: Mapping[str, Any]


class Refused(Struct, frozen=True):
    """A typed error of the bridge. `posted`: a launch's POST had been made before."""

    code: str
    kind: str
    message: str
    status: int = 0
    controller: str = ""
    posted: bool = False


class Broken(Struct, frozen=True):
    """No answer: `died`, `timeout`, `schema` or `start`. `posted` as far as was heard."""

    cause: str
    detail: str
    posted: bool = False


Reply = Answer | Refused | Broken


class _Call(Struct):
    owner: subprocess.Popen[bytes] | None = None
    done: threading.Event = field(default_factory=threading.Event)
    reply: Reply | None = None
    posted: bool = False
    events: list[Mapping[str, Any]] = field(default_factory=list)


class BridgeClient(Struct):
    """One bridge process, started when it is needed and again when it is gone.

    `argv` starts it, `environment` is asked for each start, `log` takes what SkyPilot prints.
    """

    argv: tuple[str, ...]
    environment: Callable[[], Mapping[str, str]]
    cwd: Path
    log: Path
    _process: subprocess.Popen[bytes] | None = None
    _calls: dict[int, _Call] = field(default_factory=dict)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    starts: int = 0

    def call(self, op: str, seconds: float, **fields: Any) -> Reply:
        """Ask and wait at most `seconds`. A call that times out leaves the bridge alone."""
        call = _Call()
        try:
            number = self._send(call, {"op": op, **fields})
        except OSError as error:
            return Broken("start", f"{type(error).__name__}: {error.strerror}")
        if not call.done.wait(seconds):
            with self._lock:
                self._calls.pop(number, None)
            return Broken("timeout", f"no answer to {op} within {seconds:.0f} s", call.posted)
        return call.reply or Broken("died", "the bridge ended before it answered", call.posted)

    def close(self) -> None:
        """Let the bridge go: it finishes launches under way by itself, and exits."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(2)

    def restart(self) -> None:
        """End a bridge that does not answer. Its launches stay known by their observation files."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """The living bridge's process, 0 if there is none."""
        with self._lock:
            alive = self._process is not None and self._process.poll() is None
            return self._process.pid if alive and self._process is not None else 0

    # -- inside --------------------------------------------------------------------------------

    def _send(self, call: _Call, request: Mapping[str, Any]) -> int:
        with self._lock:
            for _ in range(2):
                process = self._running()
                stdin = process.stdin
                if stdin is None:
                    break
                call.owner = process
                self._next += 1
                number = self._next
                self._calls[number] = call
                line = json.dumps({"id": number, **request}).encode() + b"\n"
                try:
                    stdin.write(line)
                    stdin.flush()
                    return number
                except OSError:  # it died since: nothing of this call was taken in
                    self._calls.pop(number, None)
                    process.kill()
                    process.wait()
                    self._process = None
            raise OSError(0, "the bridge ends as soon as it is started")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        log = os.open(
            self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            # A session of its own: Ctrl-C at the terminal is for the driver to handle.
            process = subprocess.Popen(
                self.argv,
                env=dict(self.environment()),
                cwd=self.cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
        self._process = process
        self.starts += 1
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        cause, detail = "died", "the bridge ended before it answered"
        stdout = process.stdout
        if stdout is None:
            return
        try:
            while line := stdout.readline(LINE_BYTES_MAX):
                document = json.loads(line)
                if not isinstance(document, dict) or not isinstance(document.get("id"), int):
                    raise ValueError("not a reply")
                self._take(document)
        except (ValueError, KeyError, TypeError) as error:
            # Who writes garbage once cannot be believed afterwards.
            cause, detail = "schema", f"the bridge wrote something that is no reply ({error})"
            process.kill()
        with stdout, suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        process.wait()
        with self._lock:
            if self._process is process:
                self._process = None
            orphans = {n: c for n, c in self._calls.items() if c.owner is process}
            for number in orphans:
                del self._calls[number]
        for call in orphans.values():
            call.reply = Broken(cause, detail, call.posted)
            call.done.set()

    def _take(self, document: Mapping[str, Any]) -> None:
        with self._lock:
            call = self._calls.get(document["id"])
            if call is None:
                return  # an answer that came after its deadline
            if "event" in document:
                call.posted = call.posted or document["event"] in ("posting", "accepted")
                call.events.append(document)
                return
            del self._calls[document["id"]]
        call.reply = _reply(document, call.posted)
        call.done.set()


def _reply(document: Mapping[str, Any], posted: bool) -> Reply:
    if document["ok"] is True and isinstance(document["value"], dict):
        return Answer(document["value"])
    error = document["error"]
    return Refused(
        code=str(error["code"]),
        kind=str(error.get("type", "")),
        message=str(error.get("message", "")),
        status=int(error.get("status", 0)),
        controller=str(error.get("controller", "")),
        posted=posted,
    )
